"""What train.predict makes sets for: image files or rows of features, as `Examples`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import logging

from train.classifiers import classifier as classifiers
from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.data import grouping, look
from train.data.examples import Examples
from train.data.sources import features as feature_source
from train.data.sources.folder import Files
from train.foundation.errors import UserError
from train.foundation.printable import printable
from train.foundation.spelling import flags_for_fields
from train.prediction import image_files, shares
from train.scores import observations


def find(named: Sequence[str], features: Path | None, grammar: str | None) -> Examples:
    """The image files of --images, or the rows of --features, with the groups of --group."""
    return _images(named, grammar) if features is None else _rows(features, grammar)


def files(examples: Examples, features: Path | None) -> dict[Path, str]:
    """The files that they are read from, with names for messages."""
    if features is None:
        assert examples.names is not None
        return dict.fromkeys(map(Path, examples.names.tolist()), "one of the images")
    of_folder = features.glob("*.np[yz]") if features.is_dir() else [features]
    return dict.fromkeys(of_folder, "what --features is read from")


def _images(named: Sequence[str], grammar: str | None) -> Examples:
    """The image files of --images, with the groups that --group finds in their paths."""
    paths = np.array([str(path) for path in image_files.find(named)], object)
    found = Examples.of_source(
        Files(Path(), paths), np.full(len(paths), -1), (), "--images", names=paths
    )
    if grammar is None:
        return found
    copies = look.look(found).copies if grammar == grouping.NEAR_DUPLICATES else None
    return _grouped(found, grammar, copies)


def _rows(path: Path, grammar: str | None) -> Examples:
    """The rows of --features, with the groups of an array, or those in their names."""
    is_array = grammar is not None and not grouping.is_pattern(grammar)
    with flags_for_fields({"config.dataset.group": "--group"}):
        found = feature_source.find(
            path, group=grammar if is_array else None, labelled=False, field="--features"
        )
    feature_source.check_finite(found.array, found.where)
    if grammar is None:
        return dataclasses.replace(found, groups=None)
    if is_array:
        # An array of empty texts has no groups.
        return found if found.groups is not None else _of_groups(found, np.full(len(found), ""))
    if found.names is None:
        must_be = f"an array of {path}, which has no names to search"
        raise UserError(field="--group", must_be=must_be, got=grammar)
    return _grouped(found, grammar)


def _grouped(found: Examples, grammar: str, copies: np.ndarray | None = None) -> Examples:
    assert found.names is not None
    names = found.names.tolist()
    groups = grouping.find(grammar, names, field="--group", copies=copies, may_be_one=True)
    if len(found) > 1 and groups[0] and (groups == groups[0]).all():
        logging.warning(
            "--group: '%s' makes all %s examples one observation, %s",
            grammar,
            f"{len(found):,}",
            printable(groups[0]),
        )
    return _of_groups(found, groups)


def _of_groups(found: Examples, groups: np.ndarray) -> Examples:
    return dataclasses.replace(found, groups=groups.astype(object))


def of_share(examples: Examples, share: slice) -> Examples:
    """Every n-th example, or with groups all examples of every n-th observation."""
    of = np.arange(len(examples))
    if examples.groups is not None:
        _, of = observations.numbered(examples.groups)
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
        known = classifier.assembly.data.facts.embedded_by or made_by
        if known["parameters_digest"] != made_by["parameters_digest"]:
            raise UserError(
                f"{examples.where} are of {made_by['network']} with other weights than the "
                f"{known['network']} that made the features of the run"
            )
    return examples
