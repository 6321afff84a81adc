"""Loads the classifier that the flags of a command choose."""

from pathlib import Path

from train.prediction import published, trained
from train.prediction.classifier_flags import ChosenClassifier
from train.prediction.trained import TrainedClassifier


def load(chosen: ChosenClassifier) -> TrainedClassifier:
    """The classifier, with the errors of `trained.load` or `published.load`."""
    if chosen.workdir is not None:
        return trained.load(Path(chosen.workdir), chosen.places, chosen.taxonomy)
    return published.load(chosen)
