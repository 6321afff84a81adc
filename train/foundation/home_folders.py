"""The home folder in the values of flags.

A shell puts it in place of ~ only at the start of a word: a command gets `--workdir=~/run` as it is
typed. Every flag is treated alike, so that two commands have the same folder for one flag. A field
of the configuration keeps its ~, because it is saved and may be read on another machine.
"""

import os
import re
from collections.abc import Sequence

# A flag without dots in its name, and ~ or ~USER as the first folder of a path.
_AT_HOME = re.compile(r"(--?\w+=)(~(?:\w*/.*)?)", re.DOTALL)


def put_in(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the home folder in place of ~; an unknown user's stays as it is."""
    return [_put_in(argument) for argument in arguments]


def _put_in(argument: str) -> str:
    found = _AT_HOME.fullmatch(argument)
    # A function of os.path, because the method of `Path` fails for an unknown user.
    return argument if found is None else found[1] + os.path.expanduser(found[2])  # noqa: PTH111
