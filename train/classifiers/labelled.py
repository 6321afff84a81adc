"""New labelled examples for a classifier: found, and their classes matched by their names."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from absl import logging

from train.classifiers.classifier import Classifier, check_takes
from train.classifiers.trained import TrainedClassifier
from train.configuration.datasets import FeaturesFields, ImagesFields, OwnFields
from train.data import grouping, own_images
from train.data.examples import Examples, Split
from train.data.sources import features
from train.foundation import names
from train.foundation.errors import UserError
from train.foundation.messages import in_words
from train.foundation.spelling import flags_for_fields

_GROUP_FLAG = "--group"
_OF_RUN = "the pattern of the groups of the run"
# What names the groups of the examples of a flag.
_NAMED_BY = {
    "images": "{flag}",
    "table": "a column group of the table",
    "features": "an array group of the file",
}
# The fields of a run on images that say how its tables are read.
_OF_TABLES = ("image", "label", "annotator", "labels", "votes")


@dataclass(frozen=True)
class Expected:
    """What a classifier takes, and how its run read labels.

    Attributes:
        classifier: the classifier.
        group: how the groups of examples are found: by `grouping` in a folder, by the name of a
            column or of an array elsewhere; None for those that the data have.
        grammar: what found the groups of the training images; see `grouping`. It finds those of
            examples that have none of their own, by their names. None if nothing did.
        fields: `config.dataset` of the run, by which labels are read; None if it is not known.
        name: what messages call the classifier.
    """

    classifier: Classifier
    group: str | None = None
    grammar: str | None = None
    fields: OwnFields | None = None
    name: str = "the program"


def expected(classifier: Classifier, group: str | None = None) -> Expected:
    """What a classifier takes, with groups by `group`; see `Expected`."""
    if not isinstance(classifier, TrainedClassifier):
        return Expected(classifier, group)
    fields = classifier.config.dataset
    grammar = (classifier.assembly.data.facts.embedded_by or {}).get("group")
    if isinstance(fields, ImagesFields) and grouping.is_pattern(fields.group):
        grammar = fields.group
    return Expected(
        classifier,
        group,
        grammar,
        fields if isinstance(fields, OwnFields) else None,
        "the network" if classifier.workdir is None else "the run",
    )


@dataclass(frozen=True)
class LabelledData:
    """New labelled examples.

    Attributes:
        examples: the examples. Labels that are not below the number of classes are classes that the
            classifier does not know.
        unknown_names: the names of these classes.
        path: where the examples are.
        unreadable: why each image that cannot be read is left out, by its name.
    """

    examples: Examples
    unknown_names: tuple[str, ...]
    path: Path
    unreadable: Mapping[str, str] = field(default_factory=dict)


def find(flag: str, path: Path, expected: Expected) -> LabelledData:
    """The examples that a flag names.

    Args:
        flag: "images", a folder with a folder for each class or a table of images; or "features",
            files of features and labels.
        path: the value of the flag.
        expected: what the classifier takes.

    Raises:
        UserError: the files do not have that form, the classifier takes other examples, or it knows
            none of their classes.
    """
    check_takes(expected.classifier, flag)
    own_names = expected.classifier.classes.names
    path = names.existing(path.expanduser())
    unreadable: Mapping[str, str] = {}
    with flags_for_fields(
        {"config.dataset.path": f"--{flag}", "config.dataset.group": _GROUP_FLAG}
    ):
        if flag == "features":
            found = _in_features(path, expected)
        else:
            found, unreadable = _in_images(path, expected)
        if found.groups is None and found.names is not None:
            where, called = f"--{flag} {path}", found.names.tolist()
            named_by = _NAMED_BY["table" if flag == "images" and path.is_file() else flag]
            grouping.warn_of_likely(where, called, found.labels, named_by)
    number = {names.same_form(name): label for label, name in enumerate(own_names)}
    unknown = [name for name in found.class_names if names.same_form(name) not in number]
    if len(unknown) == len(found.class_names):
        raise UserError(
            f"--{flag} {path} has no class of {expected.name}: it has "
            f"{in_words(found.class_names, 'classes')}, and {expected.name} has "
            f"{in_words(own_names, 'classes')}"
        )
    every = (*own_names, *unknown)
    number = {names.same_form(name): label for label, name in enumerate(every)}
    numbers = np.array([number[names.same_form(name)] for name in found.class_names], np.int32)
    return LabelledData(found.renumbered(numbers, every), tuple(unknown), path, unreadable)


def _in_images(path: Path, expected: Expected) -> tuple[Examples, Mapping[str, str]]:
    """The images that can be read, and why each of the others cannot; labels are by own classes."""
    of_run = expected.fields if isinstance(expected.fields, ImagesFields) else None
    own = _OF_TABLES if path.is_file() else ("nested",)
    known = {} if of_run is None else {name: getattr(of_run, name) for name in own}
    fields = ImagesFields(
        name="images",
        batch_size=1,
        path=str(path),
        group=expected.group,
        skip_unreadable=True,
        **known,
    )
    found = own_images.find(fields)
    if path.is_dir():
        _refuse_splits(found, path)
    found, seen, looks = own_images.looked_at(_undivided(found), fields)
    copies = None if looks is None else looks.copies[looks.reasons == ""]
    found = _grouped(
        dataclasses.replace(found, reader=expected.classifier.reader), expected, copies
    )
    return found, seen.unreadable


def _undivided(found: Examples) -> Examples:
    """The examples without splits, which are of no use here."""
    return dataclasses.replace(found, splits=np.full(len(found), Split.NONE, np.int8))


def _grouped(found: Examples, expected: Expected, copies: np.ndarray | None = None) -> Examples:
    """The examples with groups by the grammar of the training images, if they have none."""
    if found.groups is not None or found.names is None or expected.grammar is None:
        return found
    try:
        groups = grouping.find(expected.grammar, found.names.tolist(), field=_OF_RUN, copies=copies)
    except UserError as error:
        # The user has not asked for them.
        logging.warning("%s; each example is taken as a group of its own", error)
        return found
    return dataclasses.replace(found, groups=groups)


def _refuse_splits(found: Examples, path: Path) -> None:
    """Refuses folders of splits, because one of them may have the training images."""
    if (found.splits == Split.NONE).all():
        return
    assert found.names is not None
    splits = dict.fromkeys(one.partition("/")[0] for one in found.names.tolist())
    raise UserError(
        field="--images",
        must_be=f"a folder with a folder for each class, as {path / min(splits)}",
        but=f"{path} has the folders of splits {', '.join(sorted(splits))}",
    )


def _in_features(path: Path, expected: Expected) -> Examples:
    """The rows; labels are by their own classes."""
    of_run = expected.fields if isinstance(expected.fields, FeaturesFields) else None
    found = features.find(
        path,
        kind="one" if of_run is None else of_run.labels,
        rule="shares" if of_run is None else of_run.votes,
        group=expected.group,
        field="--features",
    )
    width = found.array.shape[1:]
    if width != expected.classifier.shape:
        raise UserError(
            field="--features",
            must_be=f"rows of {expected.classifier.shape[0]} features, as in training",
            but=f"{path} has {width[0]} features a row",
        )
    features.check_finite(found.array, found.where)
    return _grouped(_undivided(found), expected)
