"""Data sets of images of Hugging Face, read by the library `datasets`.

It copies Parquet files into Arrow files once, which are mapped into memory and read at random.
Importing this module raises `UserError` if the library is not installed.
"""

import hashlib
import itertools
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data.examples import Examples, Split, split_named
from train.data.sources import named_splits
from train.foundation import files, names
from train.foundation.errors import UserError, errors_told, needs_package

_FIELD = "config.dataset.path"
try:
    import datasets
    import pyarrow
    from datasets import Dataset, Image  # A folder of the name of the library has neither.
    from huggingface_hub.utils.tqdm import disable_progress_bars as disable_bars_of_hub
    from pyarrow import compute
except ImportError as error:
    raise needs_package(_FIELD, "datasets", "huggingface") from error

# Files that `save_to_disk` writes: of a split, and of several.
_SAVED = ("state.json", "dataset_dict.json")
# The number of a file among the files of a split.
_SHARD = re.compile(r"-\d+-of-\d+$")
# Stands for the label of an image without a label.
_NO_LABEL = frozenset({None, "", -1})
# What columns may hold, as `_kind` calls it. The only column of the first kind need not be named.
_IMAGES = ("images", "bytes", "texts")
_CLASSES = ("class labels", "texts", "integers")


def find(
    name_or_path: str,
    *,
    config: str | None,
    data_dir: str | None,
    splits: Mapping[Split, str],
    image: str | None,
    label: str | None,
    group: str | None,
    labelled: bool = True,
) -> Examples:
    """The images of a data set, by fields of `config.dataset`; without classes, of all splits.

    Args:
        name_or_path: a folder that `datasets` opens, a .parquet file, a folder of `save_to_disk`,
            or a name on the hub as user/name.
        config: the part of the data set that is meant, if it has several.
        data_dir: the folder that Arrow files are written to; `None` for the one of `datasets`.
        splits: the names of splits that are given.
        image: a column; `None` for "image", or the only one of that type.
        label: a column; `None` for "label", or the only one of class labels.
        group: a column; `None` for "group" if there is one.
        labelled: whether the images have classes.

    Raises:
        UserError: it cannot be opened, is not a data set of images with classes, or lacks a split.
    """
    where = f"{_FIELD} {name_or_path}"
    path = names.existing(Path(name_or_path).expanduser().absolute())
    _quieten()
    with errors_told(where):
        opened = _opened(name_or_path, path, config, data_dir)
        features = next(iter(opened.values())).features
        image = _column(features, image, "image", _IMAGES, where)
        if group is not None or "group" in features:
            group = _column(features, group, "group", _CLASSES, where)
        used = [(Split.NONE, name) for name in opened]
        if labelled:
            used = [*named_splits.chosen(list(opened), splits, where).items()]
            label = _column(features, label, "label", _CLASSES, where)
        values = {name: _values(opened[name], label if labelled else None) for _, name in used}
        class_of = _classes(features.get(label), {*itertools.chain(*values.values())}, where)
        number = {value: place for place, value in enumerate(class_of)}
        root = path if path.is_dir() else path.parent
        parts = []
        for split, name in used:
            part, images = opened[name], opened[name].select_columns(image)
            if isinstance(features[image], Image):
                images = images.cast_column(image, Image(decode=False))
            groups = ["" if one is None else str(one) for one in _values(part, group)]
            examples = Examples.of_source(
                _Images(images, root),
                np.array([number.get(one, -1) for one in values[name]]),
                (*class_of.values(),),
                where,
                names=np.array([f"{name}[{index}]" for index in range(len(part))], object),
                groups=np.array(groups, object),
                content=_content(part.data.column(image)),
            )
            parts.append((split, examples))
        return named_splits.joined(parts, splits, where)


@dataclass(frozen=True)
class _Images(Sequence[bytes]):
    """The images of a split: a column of bytes, of paths below a root, or of both by these names.

    It is a table of `datasets`, which is sent to processes by the names of its files.
    """

    part: Any
    root: Path

    def __len__(self) -> int:
        """The number of images."""
        return len(self.part)

    def __getitem__(self, index: Any) -> Any:
        """The bytes of an image; raises `OSError` if there is none, or its file cannot be read."""
        (found,) = self.part[int(index)].values()
        if isinstance(found, dict):
            found = found.get("path") if found.get("bytes") is None else found["bytes"]
        if found is None:
            raise OSError("there is no image")
        return files.read_bounded(self.root / found) if isinstance(found, str) else found


def _quieten() -> None:
    """Leaves the errors of the libraries to what raises them, and their bars to terminals."""
    for library in ("datasets", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        disable_bars_of_hub()


def _opened(name: str, path: Path, config: str | None, data_dir: str | None) -> dict[str, Any]:
    """The splits by their names."""
    cache = None if data_dir is None else str(Path(data_dir).expanduser().absolute())
    is_on_hub = not path.exists() and name.count("/") == 1
    is_saved = any((path / saved).is_file() for saved in _SAVED)
    if config is not None and (is_saved or path.is_file()):
        raise UserError(field="config.dataset.part", must_be="None for this path", got=config)
    if is_saved:
        found = datasets.load_from_disk(str(path))
    elif path.is_file() and path.suffix.lower() == ".parquet":
        found = Dataset.from_parquet(str(path), "train", cache_dir=cache)
    elif path.is_dir() or is_on_hub:
        address = name if is_on_hub else str(path)
        builder = datasets.load_dataset_builder(address, config, cache_dir=cache)
        _check_names(builder, path)
        builder.download_and_prepare()
        found = builder.as_dataset()
    else:
        must_be = "a folder, a .parquet file, or user/name on the hub"
        raise UserError(field=_FIELD, must_be=must_be, got=name)
    splits = {found.split or "train": found} if isinstance(found, Dataset) else found
    return {str(split): part for split, part in splits.items()}


def _check_names(builder: Any, folder: Path) -> None:
    """Refuses files such as Test.parquet, which `datasets` would take for training."""
    root = folder.resolve()
    for file in map(Path, (builder.config.data_files or {}).get("train", ())):
        # Files elsewhere are named by a README.md.
        within = file.relative_to(root).with_suffix("") if file.is_relative_to(root) else Path()
        for part in within.parts:
            if split_named(_SHARD.sub("", part)) in (Split.VALIDATION, Split.TEST):
                raise UserError(
                    f"`datasets` would take {file} for training: write {part!r} in lower case"
                )


def _column(
    features: Mapping[str, Any], chosen: str | None, usual: str, kinds: Sequence[str], where: str
) -> str:
    """The chosen column, the usual one, or the only one of the first kind."""
    kind_of = {name: _kind(feature) for name, feature in features.items()}
    first = [name for name, kind in kind_of.items() if kind == kinds[0]]
    if chosen is None:
        chosen = first[0] if len(first) == 1 and usual not in features else usual
    if kind_of.get(chosen) not in kinds:
        has = ", ".join(f"{name} ({kind or 'of another kind'})" for name, kind in kind_of.items())
        raise UserError(
            field=f"config.dataset.{usual}",
            must_be=f"a column of {', '.join(kinds)}",
            but=f"got {chosen!r}, and {where} has {has}",
        )
    return chosen


def _kind(feature: Any) -> str:
    """What a column holds, in words; empty if it is of no use."""
    if isinstance(feature, dict):
        return "bytes" if {*feature} <= {"bytes", "path"} else ""
    if isinstance(feature, Image | datasets.ClassLabel):
        return "images" if isinstance(feature, Image) else "class labels"
    # As in large_string, binary_view and uint8.
    words = {"binary": "bytes", "string": "texts", "int": "integers"}
    dtype = feature.dtype if isinstance(feature, datasets.Value) else ""
    return next((word for part, word in words.items() if part in dtype), "")


def _values(part: Any, column: str | None) -> list[Any]:
    """The values of a column, texts in one form; None for each image without a column."""
    if column is None:
        return [None] * len(part)
    found = part.select_columns(column)[:][column]
    return [names.same_form(one) if isinstance(one, str) else one for one in found]


def _classes(feature: Any, found: set[Any], where: str) -> dict[Any, str]:
    """The names of the classes by what stands for them in the column, in their order."""
    found -= _NO_LABEL
    if _kind(feature) != "class labels":
        return {value: str(value) for value in sorted(found)}
    if unknown := found - {*range(feature.num_classes)}:
        raise UserError(f"{where}: a label is {min(unknown)}, of {feature.num_classes} classes")
    return dict(enumerate(feature.names))


def _content(column: Any) -> str:
    """A hash of the sizes of the images, wherever they lie; "" if nothing tells the sizes."""
    try:
        if pyarrow.types.is_struct(column.type):
            column = compute.struct_field(column, "bytes")
        sizes = compute.binary_length(column).to_pylist()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        return ""
    return hashlib.sha256(repr(sizes).encode()).hexdigest()
