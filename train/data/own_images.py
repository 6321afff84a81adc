"""The data set `images`: your own photographs, in a folder, a table or a data set by its name.

`config.dataset.path` says what they are in: a folder, a table (`photos.csv`), a data set of Hugging
Face (`hf:NAME`, with the path of Parquet files or a name on the hub), or a prepared data set of
tensorflow-datasets (`tfds:NAME`).
"""

import dataclasses
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.configuration.datasets import (
    HOW_GROUPS_ARE_FOUND,
    IMAGES_ARE_IN,
    ImagesFields,
    OwnFields,
)
from train.data import (
    augmentation,
    corrections,
    division,
    grouping,
    image_changes,
    look,
    near_duplicates,
    reading,
    taxonomy,
)
from train.data.crops import ImageReader
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.examples import Examples, Split
from train.data.look import Looks, Seen
from train.data.near_duplicates import Alike
from train.data.sources import folder, table
from train.foundation import names
from train.foundation.errors import UserError

HUGGINGFACE, TFDS = "hf:", "tfds:"
_TABLES = (".csv", ".tsv", ".parquet")
# The fields that only some places have.
_FIELDS = {
    "a folder": {"nested"},
    "a table": {"image", "label", "annotator", "labels", "votes"},
    "hf:NAME": {"image", "label", "part", "train_split", "validation_split", "test_split"},
    "tfds:NAME": {"train_split", "validation_split", "test_split"},
}
_GROUP = "config.dataset.group"
HOW_TO_SKIP = (
    "the command of the run with --config.dataset.skip_unreadable=True leaves such images out"
)
# The size for the network if the images have many sizes, or are large.
_USUAL_SIZE = 224
# Images of one size up to this one are used as they are, and kept decoded if all need no more than
# so many bytes: to decode them in each epoch takes a third of the time of a small network.
_LARGEST_AS_IT_IS = 64
_MOST_KEPT = 2**30
_AHEAD = 256


def find(fields: ImagesFields, data_dir: str | None = None, *, labelled: bool = True) -> Examples:
    """The images at `config.dataset.path`, as they are given; without classes if not `labelled`.

    Raises:
        UserError: they are not there, or a field is for another place.
    """
    kind = _kind_of(fields.path)
    _check_fields(fields, kind)
    column = None if grouping.is_pattern(fields.group) else fields.group
    if column is not None and kind in ("a folder", "tfds:NAME"):
        raise UserError(field=_GROUP, must_be=HOW_GROUPS_ARE_FOUND, got=column)
    splits = {
        Split.TRAIN: fields.train_split,
        Split.VALIDATION: fields.validation_split,
        Split.TEST: fields.test_split,
    }
    given = {split: name for split, name in splits.items() if name is not None}
    if kind == "hf:NAME":
        # Imported here because datasets takes long to import.
        from train.data.sources import huggingface  # noqa: PLC0415

        return huggingface.find(
            fields.path.removeprefix(HUGGINGFACE),
            config=fields.part,
            data_dir=data_dir,
            splits=given,
            image=fields.image,
            label=fields.label,
            group=column,
            labelled=labelled,
        )
    if kind == "tfds:NAME":
        # Imported here because tensorflow-datasets takes long to import.
        from train.data.sources import tfds  # noqa: PLC0415

        return tfds.find(fields.path.removeprefix(TFDS), data_dir, splits=given)
    path = names.existing(Path(fields.path).expanduser().absolute())
    if not path.exists() or (kind == "a folder" and not path.is_dir()):
        but = f"{path} is another file" if path.exists() else f"there is no {path}"
        raise UserError(field="config.dataset.path", must_be=IMAGES_ARE_IN, but=but)
    if kind == "a folder":
        return folder.find(path, nested=fields.nested, labelled=labelled)
    columns = {"path": fields.image, "label": fields.label, "annotator": fields.annotator}
    columns["group"] = column
    return table.find(
        path,
        columns={name: called for name, called in columns.items() if called is not None},
        kind=fields.labels,
        rule=fields.votes,
        labelled=labelled,
    )


def _kind_of(path: str) -> str:
    if path in (HUGGINGFACE, TFDS):
        raise UserError(field="config.dataset.path", must_be=f"{path}NAME", got=path)
    if path.startswith(HUGGINGFACE):
        return "hf:NAME"
    if path.startswith(TFDS):
        return "tfds:NAME"
    return "a table" if path.lower().endswith(_TABLES) else "a folder"


def _check_fields(fields: ImagesFields, kind: str) -> None:
    """Refuses a field that the place of the images does not have."""
    for one in dataclasses.fields(fields):
        places = [place for place, own in _FIELDS.items() if one.name in own]
        if places and kind not in places and getattr(fields, one.name) != one.default:
            raise UserError(
                f"config.dataset.{one.name} is for {' and '.join(places)}; config.dataset.path is "
                f"{kind}: {fields.path}"
            )


@dataclass(frozen=True, kw_only=True)
class OwnImagesSpec(DatasetSpec):
    """Images that are decoded when a batch wants them.

    Attributes:
        fields: `config.dataset`.
        source: finds the images; called with the folder of all prepared data sets.
        own_reader: makes the reader for the shape of the pixels.
        seen: what an earlier look at the images has found; None before.
        look: looks at all images; several processes share that.
    """

    fields: ImagesFields
    source: Callable[[str | None], Examples]
    own_reader: Callable[[tuple[int, int, int]], ImageReader]
    seen: Seen | None = None
    look: Callable[[Examples], Looks] = look.look

    def load(self, data_dir: str | None) -> Dataset:
        """Finds the images, and looks at each unless it was done before; see `DatasetSpec`."""
        found = self.source(data_dir)
        examples, seen, looks = looked_at(found, self.fields, self.seen, self.look)
        examples = divided(examples, self.fields)
        shape = self._shape(seen)
        examples = dataclasses.replace(examples, reader=self.own_reader(shape))
        alike: Alike | None = None
        if looks is not None:
            warn_of_likely(examples)
            # The examples that are left are in the order of those that were found.
            copies = looks.copies[np.isin(found.places, examples.places)]
            alike = near_duplicates.between_splits(examples, copies)
        if self.fields.image_size is None and max(shape) <= _LARGEST_AS_IT_IS:
            examples = _decoded(examples)
        return Dataset(
            train=examples.of_split(Split.TRAIN),
            validation=examples.of_split(Split.VALIDATION),
            test=examples.of_split(Split.TEST),
            class_names=examples.class_names,
            image_shape=shape,
            digest=examples.digest(),
            tree=taxonomy.folders(examples.class_names) if self.fields.nested else None,
            seen=seen,
            alike=alike,
        )

    def of_shape(self, image_shape: tuple[int, ...]) -> DatasetSpec:
        """The data set with the shape that its images were found to have."""
        height, width, channels = image_shape
        mean, std = (
            # Grey pixels have the mean over the colours.
            values if channels == len(values) else (float(np.mean(values)),) * channels
            for values in (self.mean, self.std)
        )
        reader = self.own_reader((height, width, channels))
        return dataclasses.replace(self, image_shape=image_shape, mean=mean, std=std, reader=reader)

    def _shape(self, seen: Seen) -> tuple[int, int, int]:
        """The shape of the pixels."""
        if self.reader is not None:
            return self.reader.shape
        channels, size = 1 if seen.grey else 3, self.fields.image_size
        if size is None and seen.size is not None and max(seen.size) <= _LARGEST_AS_IT_IS:
            width, height = seen.size
            return height, width, channels
        return size or _USUAL_SIZE, size or _USUAL_SIZE, channels


def looked_at(
    found: Examples,
    fields: ImagesFields,
    earlier: Seen | None = None,
    look_at: Callable[[Examples], Looks] = look.look,
    *,
    how: str = HOW_TO_SKIP,
) -> tuple[Examples, Seen, Looks | None]:
    """The images that can be read, with their groups, and what was seen of all.

    They are not looked at again if an earlier look was at the same images: the last result is None
    then.

    Args:
        found: the images.
        fields: `config.dataset`.
        earlier: what an earlier look has found.
        look_at: looks at all images.
        how: how unreadable images are left out, for messages.

    Raises:
        UserError: images cannot be read, or the groups that are asked for are not there.
    """
    looks: Looks | None = None
    if earlier is not None and earlier.digest == found.digest():
        seen = earlier
    else:
        earlier, looks = None, look_at(found)
        seen = look.kept(found, looks)
    pattern = fields.group
    if grouping.is_pattern(pattern):
        assert found.names is not None
        groups = np.array(seen.groups, object)
        if not len(groups):
            copies = None if looks is None else looks.copies
            groups = grouping.find(pattern, found.names.tolist(), field=_GROUP, copies=copies)
        if pattern == grouping.NEAR_DUPLICATES:
            seen = dataclasses.replace(seen, groups=tuple(groups.tolist()))
        found = dataclasses.replace(found, groups=groups, grammar=pattern)
    # A run keeps what it has left out at its start.
    skip = fields.skip_unreadable or earlier is not None
    readable = look.readable(found, seen, skip=skip, how=how)
    return readable, seen, looks


def warn_of_likely(examples: Examples, how: str = "{flag}") -> None:
    """Warns of likely groups that splits divide, in the names of examples without groups."""
    if examples.groups is None and examples.names is not None:
        names_of, labels = examples.names.tolist(), examples.labels
        grouping.warn_of_likely(examples.where, names_of, labels, how, splits=examples.splits)


def divided(examples: Examples, fields: OwnFields, example: str = "image") -> Examples:
    """The examples with corrected labels and all splits; see `division.divide`."""
    if fields.corrections is not None:
        examples = corrections.apply(examples, fields.corrections)
    return division.divide(
        examples,
        validation=fields.validation_fraction,
        test=fields.test_fraction,
        unseen=fields.unseen_classes,
        example=example,
    )


def _decoded(examples: Examples) -> Examples:
    """The examples with small images in memory, without compression."""
    reader = examples.reader
    assert reader is not None
    if len(examples) * np.prod(reader.shape) > _MOST_KEPT:
        return examples

    def decoded(index: int) -> bytes:
        file = io.BytesIO()
        reader.decode(examples.encoded(index), examples.name(index)).save(file, "BMP")
        return file.getvalue()

    kept = [*reading.in_threads(decoded, range(len(examples)), ahead=_AHEAD)]
    return dataclasses.replace(examples, inputs=kept, places=np.arange(len(kept)))


def check(fields: ImagesFields) -> None:
    """Raises `UserError` for fields that cannot be, before anything is read."""
    has_columns = _kind_of(fields.path) in ("a table", "hf:NAME")
    if fields.group is not None and (grouping.is_pattern(fields.group) or not has_columns):
        grouping.check(fields.group, _GROUP)
    division.check_fractions(fields.validation_fraction, fields.test_fraction)


def make(fields: ImagesFields) -> OwnImagesSpec:
    """The data set of `config.dataset`."""
    check(fields)
    change = image_changes.CHANGES[fields.augmentation]
    imagenet = fields.normalization == "imagenet"
    return OwnImagesSpec(
        name=fields.name,
        num_classes=None,
        image_shape=None,
        mean=augmentation.IMAGENET_MEAN if imagenet else (0.5,) * 3,
        std=augmentation.IMAGENET_STD if imagenet else (0.5,) * 3,
        fields=fields,
        source=functools.partial(find, fields),
        own_reader=functools.partial(ImageReader.own, change=change),
    )


def _class_list(fields: ImagesFields) -> DatasetSpec:
    def none(_data_dir: str | None) -> Examples:
        raise UserError(f"{fields.path} has only the names of classes, and no images")

    name = f"unknown (classes of {Path(fields.path).name})"
    return dataclasses.replace(make(fields), name=name, source=none)


IMAGES = DatasetFamily(make, fields=ImagesFields)
# Images of known classes without a data set, for networks that were trained elsewhere. `path` is
# the file with the names of the classes; images are prepared like the user's own images.
CLASS_LIST = DatasetFamily(_class_list, fields=ImagesFields)
