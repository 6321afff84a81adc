"""Keeps two processes from writing to one folder at a time."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from train.foundation import file_locks, files

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
    file = None
    try:
        file = file_locks.open_locked(folder / name, f"{who} is using {folder}")
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):  # Whoever renamed the folder may have removed it.
                if files.is_at(file, folder / name):
                    (folder / name).unlink()
            file.close()
