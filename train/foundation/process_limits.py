"""Refuses limits of this process, such as `ulimit -v`, that are too low for any command.

With too little memory the libraries of JAX fail to load, abort, or wait for ever, and with too few
open files good checkpoints cannot be read. This is called before anything else is imported.
"""

import resource
import sys

_USER_ERROR = 2
_GIGABYTE = 10**9
# For each option of `ulimit`: the limit, its smallest value, and both in words. A small network
# takes 1.6 GB of addresses on two cores, and 20 open files.
_NEEDED = {
    "v": (resource.RLIMIT_AS, 2 * _GIGABYTE, "of address space"),
    "d": (resource.RLIMIT_DATA, 2 * _GIGABYTE, "of data"),
    "n": (resource.RLIMIT_NOFILE, 64, "open files"),
}


def check() -> None:
    """Ends the process with one line if a limit is too low."""
    for option, (kind, least, what) in _NEEDED.items():
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < least:
            sys.stderr.write(
                f"error: this process may have {_in_words(limit)} {what} (`ulimit -{option}`); the "
                f"program needs at least {_in_words(least)}\n"
            )
            sys.exit(_USER_ERROR)


def _in_words(limit: int) -> str:
    return f"{limit / _GIGABYTE:.3g} GB" if limit >= _GIGABYTE // 1000 else str(limit)
