"""Locks of files. A process that is killed loses them."""

import fcntl
from pathlib import Path
from typing import BinaryIO

from absl import logging

from train.foundation import files
from train.foundation.errors import UserError


def open_locked(path: Path, busy: str) -> BinaryIO:
    """Opens a file to add to it, and locks it until it is closed; makes it, and its folder.

    If the file system has no locks, this warns.

    Args:
        path: the file, which whoever has its lock may remove.
        busy: what the message reports if another process has the lock: "another run is using x".

    Raises:
        UserError: another process has the lock, or the path is not a file.
    """
    while True:
        # Whoever had the lock may have removed the folder, too.
        path.parent.mkdir(parents=True, exist_ok=True)
        file = files.open_to_add(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise UserError(f"{busy}; wait until it ends, or stop it") from error
        except OSError as error:
            logging.warning(
                "%s: the file system has no locks (%s); make sure that nothing else writes there",
                path,
                error.strerror,
            )
            return file
        # Before this process had the lock, another one may have removed the file.
        if files.is_at(file, path):
            return file
        file.close()
