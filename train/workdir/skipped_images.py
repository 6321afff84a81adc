"""The list of the images that a run left out because they cannot be read."""

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from absl import logging

from train.data.batches import SkippedImage
from train.foundation import file_locks, files, names
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.workdir import run_files

# In `results.json`, if images were left out: their number, by split.
FIELD = "left_out"


class SkippedImages:
    """Lists each image that a run leaves out once, as soon as it is left out.

    A resumed run continues its list. Several processes may share one: each reads
    what the others have added before it adds an image.

    Args:
        workdir: the folder of the run; None to warn of the images without listing them.
    """

    def __init__(self, workdir: Path | None) -> None:
        self._path = None if workdir is None else workdir / run_files.SKIPPED
        self._seen: set[tuple[str, str]] = set()  # Each the split and the image; see `_key`.
        self._found = 0  # The images that `add` has reported, or could have.
        self._end = 0  # The length of the part of the file that has been read.
        self._read_what_is_there()

    def count(self, split: str) -> int:
        """The number of images of a split that are listed, also by other processes."""
        self._read_what_is_there()
        return sum(of_split == split for of_split, _ in self._seen)

    def add(self, skipped: SkippedImage, split: str) -> None:
        """Lists an image of a split, unless it is listed; prints a warning for some images."""
        if not self.add_told(skipped, split):
            return
        self._found += 1
        # The 1st, 10th, 100th and so on: there may be many.
        if self._found == 10 ** (len(str(self._found)) - 1):
            logging.warning(
                "images left out, unreadable so far: %d%s; %s",
                len(self._seen),
                "" if self._path is None else f", listed in {self._path}",
                skipped.message,
            )

    def add_told(self, skipped: SkippedImage, split: str) -> bool:
        """Lists an image that was already reported; returns whether it was not listed before."""
        key = _key(split, skipped.image)
        if key in self._seen:
            return False
        is_new = True
        if self._path is not None:
            with _lock(self._path) as file:
                torn = self._read(file)
                if torn:
                    file.truncate(self._end)
                is_new = key not in self._seen
                if is_new:
                    line = files.to_json({**asdict(skipped), "split": split})
                    file.write(line)
                    self._end += len(line)
        self._seen.add(key)
        return is_new

    def _read_what_is_there(self) -> None:
        if self._path is not None and self._path.exists():
            with _open(self._path) as file:
                self._read(file)

    def _read(self, file: BinaryIO) -> bytes:
        """Reads what was added since the last time; returns the end if a kill has torn it."""
        file.seek(self._end)
        *lines, torn = file.read().split(b"\n")
        self._end = file.tell() - len(torn)
        for line in lines:
            # The file may have been edited; lines that are not entries are ignored.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                self._seen.add(_key(entry["split"], entry["image"]))
        return torn


def show(workdir: Path, results: Mapping[str, Any]) -> None:
    """Prints how many images the finished run in a workdir left out, and where they are listed."""
    path = workdir / run_files.SKIPPED
    if not path.exists():
        return
    # Results of earlier versions do not have the numbers.
    numbers = ", ".join(
        f"{count:,} of {split}" for split, count in results.get(FIELD, {}).items() if count
    )
    if not numbers:
        with _open(path) as file:
            numbers = str(file.read().count(b"\n"))
    show_line(f"images left out as unreadable: {numbers}; listed in {path}")


def _key(split: str, image: str) -> tuple[str, str]:
    """The key of an image, which stays the same when its folder is moved.

    A copy on another file system may have its name in another form of Unicode.
    """
    return split, names.same_form(image)


def _open(path: Path) -> BinaryIO:
    try:
        return io.BufferedReader(files.open_regular(path))
    except (files.NotRegularError, IsADirectoryError) as error:
        raise UserError(f"{path} is not the list of images left out: {error.strerror}") from error


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[BinaryIO]:
    """The file, to read and to add to, while no other process does."""
    with files.name_in_errors(path), files.open_to_add(path) as file:
        # On shared file systems without locks two processes may list the same image.
        file_locks.wait_for_lock(file)
        yield file
