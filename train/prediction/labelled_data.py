"""New labelled examples for a finished run: found, and their classes matched by their names."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from absl import logging

from train.data.crops import ImageReader
from train.data.own import (
    feature_columns,
    feature_files,
    features,
    folders,
    groups,
    tables,
)
from train.data.own.determinations import ONE_LABEL, Reading
from train.data.own.encoded_images import Files
from train.data.own.found_images import FoundImages
from train.data.own.groups import Open
from train.data.own.listing import NO_SPLIT, Listing, Role
from train.data.records import Records, Rows, Split
from train.foundation import names
from train.foundation.errors import UserError
from train.foundation.messages import in_words
from train.foundation.spelling import flags_for_fields
from train.sharing import kinds

_GROUP_FLAG = "--group"
_OF_RUN = "the pattern of the groups of the run"
# What names the groups of the examples of a flag.
_NAMED_BY = {
    "images": "{flag}",
    "table": "a column group of the table",
    "features": "an array group of the file",
}


@dataclass(frozen=True)
class Expected:
    """What a classifier takes.

    Attributes:
        class_names: the names of its classes, in the order of the labels.
        inputs: what its examples are; see `DatasetSpec.inputs`.
        shape: the shape of an example.
        reader: makes pixels of images; None for other examples.
        nested: whether each folder with images is a class; see `folders.find`.
        group: how the groups of examples are found: by `groups` in a folder, by the name of a
            column or of an array elsewhere; None for those that the data have.
        grammar: what found the groups of the training images; see `groups`. It finds those of
            examples that have none of their own, by their names. None if nothing did.
        reading: how the labels of tables and of features are read; tables have `group`, too.
        name: what messages call it.
    """

    class_names: Sequence[str]
    inputs: str
    shape: tuple[int, ...]
    reader: ImageReader | None
    nested: bool = False
    group: str | None = None
    grammar: str | None = None
    reading: Reading = ONE_LABEL
    name: str = "the run"


@dataclass(frozen=True)
class LabelledData:
    """New labelled examples.

    Attributes:
        examples: the examples. Labels that are not below the number of classes are classes that the
            classifier does not know.
        unknown_names: the names of these classes.
        path: where the examples are.
        sizes: the bytes of each image, [n]; empty for rows.
    """

    examples: Split
    unknown_names: tuple[str, ...]
    path: Path
    sizes: np.ndarray

    @property
    def digest(self) -> str:
        """A hash of the examples, which also changes with their files."""
        examples, images = self.examples, self.examples.images
        names = [] if examples.names is None else [*examples.names]
        if not isinstance(images, Records):
            return kinds.digest(kinds.digest_of_content(self.path))
        files = images.source.files() if isinstance(images.source, Files) else ()
        return kinds.digest(names, examples.labels.tobytes(), kinds.digest_of_files(files))


def find(flag: str, path: Path, expected: Expected) -> LabelledData:
    """The examples that a flag names.

    Args:
        flag: "images", a folder with a folder for each class; "table", a table of images; or
            "features", files of features and labels.
        path: the value of the flag.
        expected: what the classifier takes.

    Raises:
        UserError: the files do not have that form, the classifier takes other examples, or it knows
            none of their classes.
    """
    inputs = "features" if flag == "features" else "images"
    if inputs != expected.inputs:
        raise UserError(f"--{flag} has {inputs}, and {expected.name} takes {expected.inputs}")
    path = names.existing(path.expanduser())
    with flags_for_fields(
        {"config.dataset.path": f"--{flag}", "config.dataset.group": _GROUP_FLAG}
    ):
        if flag == "features":
            examples, listing = _in_features(path, expected)
        else:
            examples, listing = _in_images(flag, path, expected)
        if examples.groups is None and examples.names is not None:
            where, named_by = f"--{flag} {path}", _NAMED_BY[flag]
            groups.warn(where, [*examples.names], examples.labels, named_by)
    class_names = listing.class_names
    number = {names.same_form(name): label for label, name in enumerate(expected.class_names)}
    unknown = [name for name in class_names if names.same_form(name) not in number]
    if len(unknown) == len(class_names):
        raise UserError(
            f"--{flag} {path} has no class of {expected.name}: it has "
            f"{in_words(class_names, 'classes')}, and {expected.name} has "
            f"{in_words(expected.class_names, 'classes')}"
        )
    number |= {
        names.same_form(name): label
        for label, name in enumerate(unknown, start=len(expected.class_names))
    }
    numbers = np.array([number[names.same_form(name)] for name in class_names], np.int32)
    truths = examples.truths
    examples = dataclasses.replace(
        examples,
        labels=numbers[examples.labels],
        truths=None if truths is None else truths.renumbered(numbers),
    )
    return LabelledData(examples, tuple(unknown), path, listing.sizes)


def _in_images(flag: str, path: Path, expected: Expected) -> tuple[Split, Listing]:
    """The images, and their list; labels are by its own classes."""
    if flag == "table":
        found = tables.find(path, reading=expected.reading, uses_splits=False)
        listing = found.listing
    else:
        found = folders.find(path, nested=expected.nested)
        _refuse_splits(found, flag, path)
        listing = found.listing
        if expected.group is not None:
            given = groups.find(
                expected.group, listing.paths, field=_GROUP_FLAG, open_image=found.images.open
            )
            listing = dataclasses.replace(listing, groups=given)
    assert expected.reader is not None
    listing = _grouped(listing, listing.paths, expected, found.images.open)
    indices = np.arange(len(listing))
    records = Records(found.images, indices, str(found.root), expected.reader)
    return _split(records, listing, listing.paths), listing


def _grouped(
    listing: Listing,
    texts: Sequence[str] | None,
    expected: Expected,
    open_image: Open | None = None,
) -> Listing:
    """The list with groups by the grammar of the training images, if it has none."""
    if listing.has_groups or texts is None or expected.grammar is None:
        return listing
    try:
        found = groups.find(expected.grammar, texts, field=_OF_RUN, open_image=open_image)
    except UserError as error:
        # The user has not asked for them.
        logging.warning("%s; each example is taken as a group of its own", error)
        return listing
    return dataclasses.replace(listing, groups=found)


def _split(examples: Records | Rows, listing: Listing, texts: Sequence[str] | None) -> Split:
    """The examples with their names, and their groups if an example has one."""
    return Split(
        examples,
        listing.labels,
        None if texts is None else np.array(texts, object),
        np.array(listing.groups, object) if listing.has_groups else None,
        listing.truths,
        listing.credits,
    )


def _refuse_splits(found: FoundImages, flag: str, path: Path) -> None:
    """Refuses folders of splits, because one of them may have the training images."""
    if (found.listing.roles == Role.TRAIN).all():
        return
    splits = dict.fromkeys(one.partition("/")[0] for one in found.listing.paths)
    raise UserError(
        field=f"--{flag}",
        must_be=f"a folder with a folder for each class, as {path / min(splits)}",
        but=f"{path} has the folders of splits {', '.join(sorted(splits))}",
    )


def _in_features(path: Path, expected: Expected) -> tuple[Split, Listing]:
    """The rows, and their list; labels are by its own classes."""
    arrays = feature_files.find(path, "--features")
    matrix = feature_files.read_features(arrays)
    number, width = matrix.shape
    if (width,) != expected.shape:
        raise UserError(
            field="--features",
            must_be=f"rows of {expected.shape[0]} features, as in training",
            but=f"{path} has {width} features a row",
        )
    feature_columns.check_finite(matrix, arrays.where)
    labels, class_names, truths = features.read_truths(arrays, number, expected.reading)
    listing = Listing(
        labels=labels,
        roles=np.full(number, NO_SPLIT, np.int8),
        class_names=class_names,
        groups=features.read_groups(arrays, expected.group, number),
        truths=truths,
    )
    rows, texts = Rows(matrix, np.arange(number)), features.texts_of_rows(arrays, "names", number)
    listing = _grouped(listing, texts, expected)
    return _split(rows, listing, texts), listing
