"""New labelled examples for a classifier: found, and their classes matched by their names."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from absl import logging

from train.classifiers.classifier import Classifier, check_takes
from train.classifiers.trained import TrainedClassifier
from train.configuration.datasets import DatasetFields, FeaturesFields, ImagesFields
from train.data import grouping, own_images
from train.data.examples import Examples, Split
from train.data.sources import features
from train.foundation import names
from train.foundation.console import in_words
from train.foundation.errors import UserError, naming_flags

# The fields of a run on images that say how its tables are read.
_OF_TABLES = ("image", "label", "annotator", "labels", "votes")


def find(
    flag: str, path: Path, classifier: Classifier, group: str | None = None
) -> tuple[Examples, Mapping[str, str]]:
    """The examples that a flag names, and why each image that cannot be read is left out.

    Labels that are not below the number of classes are classes that the classifier does not know.
    Examples without groups have those of the pattern that found the groups of the training images.

    Args:
        flag: "images", a folder with a folder for each class or a table of images; or "features",
            files of features and labels.
        path: the file or folder.
        classifier: the classifier. Labels are read as those of its run.
        group: how the groups of examples are found: by `grouping` in a folder, by the name of a
            column or of an array elsewhere; None for those that the data have.

    Raises:
        UserError: the files do not have that form, the classifier takes other examples, or it knows
            none of their classes.
    """
    check_takes(classifier, flag)
    unreadable: Mapping[str, str] = {}
    with naming_flags({"config.dataset.path": f"--{flag}", "config.dataset.group": "--group"}):
        if flag == "features":
            found = _in_features(path, classifier, group)
        else:
            found, unreadable = _in_images(path, classifier, group)
        if found.groups is None and found.names is not None:
            where, called = f"--{flag} {path}", found.names.tolist()
            is_folder = flag == "images" and path.is_dir()
            named_by = "{flag}" if is_folder else "a column or an array group"
            grouping.warn_of_likely(where, called, found.labels, named_by)
    own = classifier.classes.names
    number = {names.same_form(name): label for label, name in enumerate(own)}
    unknown = [name for name in found.class_names if names.same_form(name) not in number]
    if len(unknown) == len(found.class_names):
        raise UserError(
            f"--{flag} {path} has no class of {classifier.title}: it has "
            f"{in_words(found.class_names, 'classes')}, and {classifier.title} has "
            f"{in_words(own, 'classes')}"
        )
    every = (*own, *unknown)
    number = {names.same_form(name): label for label, name in enumerate(every)}
    numbers = np.array([number[names.same_form(name)] for name in found.class_names], np.int32)
    return found.renumbered(numbers, every), unreadable


def _in_images(
    path: Path, classifier: Classifier, group: str | None
) -> tuple[Examples, Mapping[str, str]]:
    """The images that can be read, and why each of the others cannot; labels are by own classes."""
    fields, own = _of_run(classifier), _OF_TABLES if path.is_file() else ("nested",)
    known = {name: getattr(fields, name) for name in own if isinstance(fields, ImagesFields)}
    given = ImagesFields(
        name="images", batch_size=1, path=str(path), group=group, skip_unreadable=True, **known
    )
    found = own_images.find(given)
    if path.is_dir() and (found.splits != Split.NONE).any():
        # One of them may have the training images.
        raise UserError(
            f"--images must be a folder with a folder for each class: {path} has folders of splits"
        )
    found, seen, looks = own_images.looked_at(_undivided(found), given)
    found = dataclasses.replace(found, reader=classifier.reader)
    copies = None if looks is None else looks.copies[looks.reasons == ""]
    return _grouped(found, classifier, copies), seen.unreadable


def _in_features(path: Path, classifier: Classifier, group: str | None) -> Examples:
    """The rows; labels are by their own classes."""
    fields = _of_run(classifier)
    of_run = fields if isinstance(fields, FeaturesFields) else None
    found = features.find(
        path,
        kind="one" if of_run is None else of_run.labels,
        rule="shares" if of_run is None else of_run.votes,
        group=group,
        field="--features",
    )
    (width,), (expected,) = found.array.shape[1:], classifier.shape
    if width != expected:
        raise UserError(f"--features {path} must have {expected} features a row; it has {width}")
    features.check_finite(found.array, found.where)
    return _grouped(_undivided(found), classifier)


def _undivided(found: Examples) -> Examples:
    """The examples without splits, which are of no use here."""
    return dataclasses.replace(found, splits=np.full(len(found), Split.NONE, np.int8))


def _grouped(found: Examples, classifier: Classifier, copies: np.ndarray | None = None) -> Examples:
    """The examples with groups by the pattern of the training images, if they have none."""
    if found.groups is not None or found.names is None:
        return found
    fields, grammar = _of_run(classifier), None
    if isinstance(fields, ImagesFields) and grouping.is_pattern(fields.group):
        grammar = fields.group
    elif isinstance(classifier, TrainedClassifier):
        grammar = (classifier.parts.data.facts.embedded_by or {}).get("group")
    if grammar is None:
        return found
    what = "the pattern of the groups of the run"
    try:
        groups = grouping.find(grammar, found.names.tolist(), field=what, copies=copies)
    except UserError as error:
        # The user has not asked for them.
        logging.warning("%s; each example is taken as a group of its own", error)
        return found
    return dataclasses.replace(found, groups=groups)


def _of_run(classifier: Classifier) -> DatasetFields | None:
    """`config.dataset` of the run, by which labels are read."""
    return classifier.config.dataset if isinstance(classifier, TrainedClassifier) else None
