"""Opens data sets of Hugging Face as Arrow files: by name, from Parquet files, or as saved.

`datasets` copies Parquet files into Arrow files once. One image of a Parquet file takes the time to
read its whole row group: for photographs of 0.1 MB, 7 ms in row groups of 100 images and 57 ms in
row groups of 100 MB, which `datasets` writes. From an Arrow file it takes 0.01 ms. Decoding takes 3
ms.
"""

import contextlib
import errno
import logging
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import absl.logging
import datasets
import huggingface_hub

from train.data.own.listing import Role, role_named
from train.foundation import messages, names
from train.foundation.errors import UserError

_PATTERN_CHARACTERS = frozenset("*?[]")
# Files that `Dataset.save_to_disk` and `DatasetDict.save_to_disk` write.
_SAVED, _SAVED_SPLITS = "state.json", "dataset_dict.json"
# The number of a file among the files of a split.
_SHARD = re.compile(r"-\d+-of-\d+$")
# The longest message of `datasets` that is shown. It may list all features.
_MOST_CHARACTERS = 250
# The errors of a disk that is full, or that may not be written to or read.
_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})


@dataclass(frozen=True)
class OpenedSplit:
    """A split of a data set.

    Attributes:
        features: the types of the columns, `datasets.Features`.
        files: the Arrow files with its rows.
    """

    features: Any
    files: tuple[str, ...]


def open_folder(path: Path, config: str | None, cache: str | None) -> dict[str, OpenedSplit]:
    """The splits of a folder with Parquet files, of one such file, or of a folder that was saved.

    Args:
        path: the folder or the file.
        config: the part of the data set that is meant, if the folder has several.
        cache: the folder that the Arrow files are written to; `None` for the one of `datasets`.
            What `save_to_disk` wrote is read in place.

    Raises:
        UserError: it cannot be opened.
    """
    path = names.existing(path)
    where = f"config.dataset.path {path}"
    if not path.exists():
        raise UserError(
            field="config.dataset.path",
            must_be="a folder or a .parquet file",
            but=f"{path} does not exist",
        )
    if found := sorted(_PATTERN_CHARACTERS & set(str(path))):
        raise UserError(
            f"{where} must not have any of * ? [ ], which `datasets` reads as patterns; it has "
            f"{' '.join(found)}"
        )
    if path.is_file() and path.suffix.lower() != ".parquet":
        raise UserError(
            field="config.dataset.path", must_be="a folder or a .parquet file", got=path.name
        )
    is_saved = any((path / name).is_file() for name in (_SAVED, _SAVED_SPLITS))
    if config is not None and (path.is_file() or is_saved):
        what = "a file" if path.is_file() else "what `save_to_disk` wrote"
        raise UserError(
            field="config.dataset.huggingface_config", must_be=f"None for {what}", got=config
        )
    with _reading(where):
        if path.is_file():
            return _splits(datasets.Dataset.from_parquet(str(path), "train", cache_dir=cache))
        if is_saved:
            return _splits(datasets.load_from_disk(str(path), keep_in_memory=False))
        builder = datasets.load_dataset_builder(str(path), config, cache_dir=cache)
        _check_splits(builder, path)
        _warn_of_unused(builder, path)
        return _splits(_prepared(builder))


def open_name(name: str, config: str | None, cache: str | None) -> dict[str, OpenedSplit]:
    """The splits of a data set on the hub of Hugging Face, or in the user's cache.

    Args:
        name: of the data set, as in "user/name".
        config: the part of the data set that is meant, if it has several.
        cache: the folder that the Arrow files are written to; `None` for the one of `datasets`.

    Raises:
        UserError: it cannot be opened.
    """
    if name.count("/") != 1:
        # `datasets` would read files of the folder that the program was started in for "csv".
        raise UserError(
            "config.dataset.huggingface_name must have the form user/name, as in ylecun/mnist; got "
            f"{name!r}"
        )
    with _reading(f"config.dataset.huggingface_name {name!r}"):
        # The prefix keeps `datasets` from a folder of this name.
        builder = datasets.load_dataset_builder(f"hf://datasets/{name}", config, cache_dir=cache)
        return _splits(_prepared(builder))


def _prepared(builder: Any) -> Any:
    """The data set, whose Arrow files are written unless they are there already."""
    builder.download_and_prepare()
    return builder.as_dataset()


def _splits(opened: Any) -> dict[str, OpenedSplit]:
    splits: Mapping[str, Any] = (
        {str(opened.split or "train"): opened} if isinstance(opened, datasets.Dataset) else opened
    )
    return {
        str(name): OpenedSplit(
            split.features, tuple(file["filename"] for file in split.cache_files)
        )
        for name, split in splits.items()
    }


def _check_splits(builder: Any, folder: Path) -> None:
    """Refuses files for training that are named like another split in another case.

    `datasets` knows the names of splits in lower case only, and takes other files for training.
    """
    root = folder.resolve()
    files = map(Path, builder.config.data_files.get("train", ()))
    # Files elsewhere are named by a README.md.
    for file in (file for file in files if file.is_relative_to(root)):
        parts = file.relative_to(root).with_suffix("").parts
        # As in "Test-00000-of-00001".
        names = (_SHARD.sub("", part) for part in parts)
        if other := next((one for one in names if role_named(one) not in (None, Role.TRAIN)), None):
            raise ValueError(
                f"`datasets` would take {'/'.join(parts)} for training; name it by its split in "
                f"lower case, {other.lower()!r}"
            )


def _warn_of_unused(builder: Any, folder: Path) -> None:
    """Warns of Parquet files in a folder that `datasets` takes for no split.

    If the folder describes its parts itself, in README.md, files of other parts are not used.
    """
    if len(builder.builder_configs) > 1:
        return
    used = {str(Path(file)) for files in builder.config.data_files.values() for file in files}
    # `datasets` follows a link to the folder.
    root = folder.resolve()
    unused = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.parquet"))
        if str(path) not in used
    ]
    if unused:
        absl.logging.warning(
            "not used, because they are not splits for `datasets`: %s",
            messages.in_words(unused, "files"),
        )


@contextlib.contextmanager
def _reading(where: str) -> Iterator[None]:
    """Makes one error of what `datasets` logs and raises, and shows its bars only on terminals."""
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        # Errors are logged before they are raised.
        logger.setLevel(logging.CRITICAL)
    libraries: tuple[Any, ...] = (datasets.utils, huggingface_hub.utils)
    hidden = [one for one in libraries if not one.are_progress_bars_disabled()]
    hidden = [] if sys.stderr.isatty() else hidden
    for library in hidden:
        library.disable_progress_bars()
    try:
        yield
    except Exception as error:  # An untrusted file can make the library raise anything.
        _raise_of_disk(error)
        cause = error
        if isinstance(error, datasets.exceptions.DatasetGenerationError):
            # It states only that there was an error.
            cause = error.__cause__ or error
        words = str(cause) or type(cause).__name__
        raise UserError(
            f"{where}: {textwrap.shorten(words, _MOST_CHARACTERS, placeholder=' …')}"
        ) from error
    finally:
        for library in hidden:
            library.enable_progress_bars()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _raise_of_disk(error: BaseException | None) -> None:
    """Raises the error of the disk that another error came of, if it did."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise error
        error = error.__cause__ or error.__context__
