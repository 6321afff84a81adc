"""Loads the classifier that the flags of a command choose."""

from pathlib import Path

from train.prediction import joined, published, trained
from train.prediction.classifier_flags import ChosenClassifier
from train.prediction.trained import TrainedClassifier


def load(chosen: ChosenClassifier, *, takes_images: bool = False) -> TrainedClassifier:
    """The classifier, with the errors of `trained.load`, `published.load` or `joined.join`.

    Args:
        chosen: the flags.
        takes_images: whether a run on features that knows the network that made them is joined
            with it.
    """
    if chosen.features_run is not None:
        run = trained.load(Path(chosen.features_run), chosen.places, chosen.taxonomy)
        return joined.join(run, chosen)
    if chosen.workdir is None:
        return published.load(chosen)
    run = trained.load(Path(chosen.workdir), chosen.places, chosen.taxonomy)
    return joined.join(run, chosen) if takes_images and joined.is_known(run) else run
