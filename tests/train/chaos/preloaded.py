"""Builds `faults.c`, and sets which call fails in the process that preloads it."""

import ctypes
import os
import subprocess
from dataclasses import dataclass
from errno import (
    EACCES,
    EDQUOT,
    EIO,
    EMFILE,
    EMLINK,
    ENODEV,
    ENOMEM,
    ENOSPC,
    EROFS,
    ESTALE,
    EXDEV,
)
from pathlib import Path

# Without an error, a transfer moves half of the bytes.
HALF = 0
# The calls, in the order of faults.c, and how each may fail.
CALLS = {
    "open": (EIO, EMFILE, EACCES, ENOSPC, EROFS, ESTALE),
    "read": (EIO, ESTALE, HALF),
    "write": (EIO, ENOSPC, EDQUOT, HALF),
    "sync": (EIO, ENOSPC),
    "rename": (EIO, ENOSPC, EACCES, EXDEV),
    "make a folder": (EIO, ENOSPC, EMLINK, EROFS),
    "remove": (EIO, EACCES, EROFS),
    "truncate": (EIO, ENOSPC),
    "map": (ENOMEM, ENODEV),
    "list": (EIO, EMFILE, EACCES),
}


@dataclass(frozen=True)
class Fault:
    """Calls of one kind that fail.

    Attributes:
        call: one of `CALLS`.
        number: the call that fails, counted from 1; 0 if none fails.
        lasting: whether all later ones fail, too.
        error: the error of the system, or `HALF`.
    """

    call: str
    number: int
    lasting: bool
    error: int

    def __str__(self) -> str:
        how = "half of it" if self.error == HALF else os.strerror(self.error)
        return f"{self.call} {self.number}{' and all later' if self.lasting else ''}: {how}"


def build(folder: Path) -> str:
    """Compiles the library into a folder, and returns its path."""
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(
        ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"],
        check=True,
    )
    return str(library)


def arm(folder: Path, fault: Fault) -> None:
    """From now on calls of this process on the files of a folder are counted, and may fail."""
    number, error = ctypes.c_long(fault.number), ctypes.c_int(fault.error)
    kind = list(CALLS).index(fault.call)
    _library().faults_arm(os.fsencode(folder), kind, number, int(fault.lasting), error)


def counts() -> dict[str, int]:
    """How many calls there were of each kind."""
    count = _library().faults_count
    count.restype = ctypes.c_long
    return {call: count(kind) for kind, call in enumerate(CALLS)}


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
