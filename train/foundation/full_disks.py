"""Turns the long error texts of libraries about a full disk into one line that names the disk."""

import errno
import os
import shutil
from pathlib import Path

_REASONS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
# The message of tfds, which looks at the free space before it writes.
_TOO_SMALL = "Not enough disk space"


def reason(error: BaseException, path: Path) -> str | None:
    """Why a path could not be written to, if the disk or a limit is the reason; else None.

    Args:
        error: what a library raised.
        path: what was to be written; it need not exist.
    """
    if _TOO_SMALL in str(error):
        found = os.strerror(errno.ENOSPC)
    else:
        found = next((one for one in _REASONS if one in str(error)), "")
    if found != os.strerror(errno.ENOSPC):
        return found or None
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    usage = shutil.disk_usage(there)
    return (
        f"{found}; the disk at {_mount_point(there)} has {usage.free / 1e6:,.1f} of "
        f"{usage.total / 1e6:,.1f} MB free"
    )


def _mount_point(path: Path) -> Path:
    path = path.resolve()
    while not path.is_mount() and path != path.parent:
        path = path.parent
    return path
