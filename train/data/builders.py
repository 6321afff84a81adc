"""The tfds builder of a data set: made, opened, and run if it generates its own files."""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from absl import logging

from train.foundation import checksums, full_disks
from train.foundation.errors import UserError, first_line, let_through
from train.foundation.spelling import spell

FILE_FORMAT = "array_record"


def make_builder(
    builder: Callable[..., tfds.core.DatasetBuilder], data_dir: str | None, *, name: str
) -> tfds.core.DatasetBuilder:
    """The builder of a data set, prepared or not.

    Args:
        builder: called with `data_dir` and `file_format`.
        data_dir: the folder of all prepared data sets; `None` for tfds's own default.
        name: the name of the data set in messages.

    Raises:
        UserError: the description of the prepared data set is damaged.
    """
    try:
        with quiet_tfds():
            return builder(data_dir=data_dir, file_format=FILE_FORMAT)
    except (OSError, UserError):
        raise
    except Exception as error:  # A damaged description can make tfds raise anything.
        below = "" if data_dir is None else f" below {data_dir}"
        raise damaged(f"{name}{below}", error) from error


def open_builder(
    builder: Callable[..., tfds.core.DatasetBuilder], data_dir: str | None, *, name: str
) -> tfds.core.DatasetBuilder:
    """The builder of a prepared data set.

    Args:
        builder: called with `data_dir` and `file_format`.
        data_dir: the folder of all prepared data sets; `None` for tfds's own default.
        name: the name of the data set in messages.

    Raises:
        UserError: the data set is not prepared, or its description is damaged.
    """
    made = make_builder(builder, data_dir, name=name)
    if _is_prepared(made):
        return made
    where = "" if data_dir is None else f" --data_dir={data_dir}"
    raise UserError(
        f"{spell('config.dataset.name')}: {name} is not prepared in {made.data_dir}; prepare "
        f"it with python -m train.prepare --dataset={name}{where}"
    )


def _is_prepared(builder: tfds.core.DatasetBuilder) -> bool:
    with quiet_tfds():
        return bool(builder.is_prepared())


def write_checksums(folder: Path) -> None:
    """Writes the checksums of all files of a prepared data set, except the records."""
    found = [
        path
        for path in folder.iterdir()
        if not path.name.startswith(".")
        and f".{FILE_FORMAT}-" not in path.name
        and path.name != checksums.FILE
    ]
    checksums.write(folder, found)


def check_writable(builder: tfds.core.DatasetBuilder) -> None:
    """Refuses a folder that cannot be written to, before any work is done."""
    folder = Path(builder.data_dir).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written to ({error.strerror}); give another folder with "
            "--data_dir of python -m train.prepare, --config.dataset.data_dir, or the environment "
            "variable TFDS_DATA_DIR"
        ) from error


def full_disk(path: Any, error: Exception) -> OSError:
    """The error of a full disk, which the writer of records reports as a `RuntimeError`."""
    reason = full_disks.reason(error, Path(path)) or str(error).partition(";")[0]
    return OSError(f"cannot write {path}: {reason}")


def damaged(which: Any, error: Exception) -> UserError:
    """The error of a prepared data set that cannot be read, in one line."""
    let_through(error)
    return UserError(
        f"the prepared data set {which} is damaged ({first_line(error)}); delete its folder and "
        "prepare it again"
    )


@contextlib.contextmanager
def quiet_tfds() -> Iterator[None]:
    """Hides tfds's progress bars, its messages, and its warning that a new folder is empty."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        logging.set_verbosity(verbosity)
