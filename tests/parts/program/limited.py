"""Becomes another command, within limits of the system, or without a standard file.

It is a program, and no function that is called between fork and exec: JAX has threads.

python -m tests.parts.program.limited CHANGES MODULE ARGUMENTS
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence

# The name of what is changed, and its arguments.
Change = tuple[str | int, ...]
_CHANGES: Mapping[str, Callable[..., object]] = {
    "limit": lambda kind, value: resource.setrlimit(kind, (value, resource.getrlimit(kind)[1])),
    "umask": os.umask,
    "close": os.close,
}


def command(changes: Sequence[Change], module: str, *arguments: str) -> list[str]:
    """The command line that starts a module of Python with these changes."""
    return [sys.executable, "-m", __name__, json.dumps(changes), module, *arguments]


if __name__ == "__main__":
    for name, *values in json.loads(sys.argv[1]):
        _CHANGES[name](*values)
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
