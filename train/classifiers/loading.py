"""Loads the classifier that flags name: a program, a run, published weights, a joined head."""

import dataclasses
from pathlib import Path

from train.classifiers import joined, packaged, published, trained
from train.classifiers.classifier import Classifier
from train.classifiers.flags import ChosenClassifier
from train.foundation.errors import UserError


def load(chosen: ChosenClassifier, *, takes_images: bool | None = None) -> Classifier:
    """The classifier of a program, of a run or of published weights.

    Args:
        chosen: the flags.
        takes_images: whether a run on features is joined with the network that made them, to
            take images, if that is where it was; None as False. With --weights it is.

    Raises:
        UserError: see `packaged.read`, `trained.load`, `published.load` and `joined.join`.
    """
    if chosen.is_program:
        found = packaged.read(Path(str(chosen.weights)).expanduser(), "--weights")
        if chosen.taxonomy is None:
            return found
        return dataclasses.replace(found, classes=trained.below(chosen.taxonomy, found.classes))
    if chosen.workdir is None:
        return published.load(chosen)
    run = trained.load(Path(chosen.workdir), place=chosen.data, taxonomy=chosen.taxonomy)
    run = dataclasses.replace(run, shown=chosen.class_names(len(run.classes)))
    if chosen.weights is None and not (takes_images and joined.is_possible(run)):
        return run
    if takes_images is False:
        raise UserError("--weights is for images: the run takes the features themselves")
    return joined.join(run, chosen)
