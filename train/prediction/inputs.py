"""What train.predict makes sets for: image files or rows of features, as `Examples`."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.classifiers import classifier as classifiers
from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.data import grouping, look
from train.data.examples import Examples
from train.data.sources import features as feature_source
from train.data.sources import folder
from train.foundation.errors import UserError, naming_flags
from train.foundation.names import existing, shown
from train.prediction import shares
from train.scores.scores import numbered


def find(named: Sequence[str], features: Path | None, grammar: str | None) -> Examples:
    """The image files of --images, or the rows of --features, with the groups of --group.

    The groups are those of an array, or are found in the names.
    """
    array = None if features is None or grouping.is_pattern(grammar) else grammar
    if features is None:
        paths = np.array([str(path) for path in image_files(named)], object)
        unknown = np.full(len(paths), -1)
        found = Examples.of_source(
            folder.Files(Path(), paths), unknown, (), "--images", names=paths
        )
    else:
        with naming_flags({"config.dataset.group": "--group"}):
            found = feature_source.find(features, group=array, labelled=False, field="--features")
        feature_source.check_finite(found.array, found.where)
    groups = None
    if array is not None:
        # An array of empty texts has no groups.
        groups = np.full(len(found), "", object) if found.groups is None else found.groups
    elif grammar is not None:
        if found.names is None:
            must_be = f"an array of {features}, which has no names to search"
            raise UserError(field="--group", must_be=must_be, got=grammar)
        is_alike = grammar == grouping.NEAR_DUPLICATES and features is None
        copies = look.look(found).copies if is_alike else None
        names = found.names.tolist()
        groups = grouping.find(grammar, names, field="--group", copies=copies, may_be_one=True)
    return dataclasses.replace(found, groups=groups)


def image_files(named: Sequence[str]) -> list[Path]:
    """The files that the values of --images name, in their order; some may not be images.

    A folder stands for all images in it and its subfolders, sorted by path; see `folder.find`. A
    file that is named directly may have any name.

    Args:
        named: paths of files or folders; a value that is no path may have several, separated by
            commas.

    Raises:
        UserError: a path does not exist, or there is no file at all.
    """
    found: list[Path] = []
    for value in named:
        for text in [value] if _exists(value) else value.split(","):
            if not _exists(text):
                must_be, got = "image files or folders", shown(text) or repr(value)
                raise UserError(f"--images must name {must_be}; there is no {got}")
            path = existing(Path(text))
            if path.is_dir():
                images = folder.find(path, labelled=False, field="--images").inputs
                assert isinstance(images, folder.Files)
                found += map(path.joinpath, images.paths)
            else:
                found.append(path)
    return found


def _exists(path: str) -> bool:
    # The empty text would be the working directory. Path.exists raises on a long name.
    return path != "" and os.path.exists(existing(Path(path)))  # noqa: PTH110


def of_split(classifier: Classifier, split: str) -> Examples:
    """The examples of a split of the data set of a run."""
    assert isinstance(classifier, TrainedClassifier)
    found = classifier.load_dataset().splits[split]
    return dataclasses.replace(found, reader=classifier.reader) if found.are_encoded else found


def files(examples: Examples, features: Path | None) -> dict[Path, str]:
    """The files that they are read from, with names for messages."""
    if features is None:
        assert examples.names is not None
        return dict.fromkeys(map(Path, examples.names.tolist()), "one of the images")
    of_folder = features.glob("*.np[yz]") if features.is_dir() else [features]
    return dict.fromkeys(of_folder, "what --features is read from")


def of_share(examples: Examples, share: slice) -> Examples:
    """Every n-th example, or with groups all examples of every n-th observation."""
    of = np.arange(len(examples))
    if examples.groups is not None:
        _, of = numbered(examples.groups)
    chosen = shares.places(share, int(of.max()) + 1)
    return examples.take(np.flatnonzero(np.isin(of, chosen)))


def fit_for(examples: Examples, classifier: Classifier, features: Path | None) -> Examples:
    """The examples as the classifier takes them.

    Args:
        examples: images or rows.
        classifier: the classifier.
        features: what the rows are read from.

    Raises:
        UserError: it takes others, or the features are those of another network.
    """
    classifiers.check_takes(classifier, "images" if features is None else "features")
    if features is None:
        return dataclasses.replace(examples, reader=classifier.reader)
    (expected,), width = classifier.shape, examples.array.shape[1]
    if width != expected:
        raise UserError(f"{examples.where} must have {expected} features a row; it has {width}")
    made_by = feature_source.embedded_by(feature_source.arrays(features, "--features"))
    if made_by is not None and isinstance(classifier, TrainedClassifier):
        known = classifier.parts.data.facts.embedded_by or made_by
        if known["parameters_digest"] != made_by["parameters_digest"]:
            raise UserError(
                f"{examples.where} are of {made_by['network']} with other weights than the "
                f"{known['network']} that made the features of the run"
            )
    return examples
