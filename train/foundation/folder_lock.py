"""Keeps two processes from writing to one folder at a time."""

import contextlib
import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from absl import logging

from train.foundation import files
from train.foundation.errors import UserError

# The file that a process locks while it writes to a folder.
LOCK = "lock"
# The errors of a folder that cannot be written to; a read-only mount has the last one.
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EROFS)


@contextlib.contextmanager
def held(folder: Path, who: str, *, name: str = LOCK) -> Iterator[None]:
    """Holds the lock of a folder. A process that is killed loses it.

    If the file system has no locks, this warns and continues. If the folder cannot be written to,
    it continues: no other process of this user writes there either.

    Args:
        folder: the folder, which is made if it does not exist.
        who: what holds the lock, for the message of the second process: "another run".
        name: the name of the file that is locked; with another one, for a part of the folder.

    Raises:
        UserError: another process holds the lock, or a link or a pipe is in its place.
    """
    file = _locked(folder, who, name)
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):  # Whoever renamed the folder may have removed it.
                if files.is_at(file, folder / name):
                    (folder / name).unlink()
            file.close()


def _locked(folder: Path, who: str, name: str) -> BinaryIO | None:
    """The file of the lock, which is held while it is open; None without locks."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = files.open_to_add(folder / name)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise UserError(f"{who} is using {folder}; wait until it ends, or stop it") from error
        except OSError as error:
            file.close()
            logging.warning(
                "%s: the file system has no locks (%s); make sure that nothing else writes there",
                folder,
                error.strerror,
            )
            return None
        # Between the two lines above, whoever had the lock may have removed the file.
        if files.is_at(file, folder / name):
            return file
        file.close()
