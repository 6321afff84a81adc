"""The commands of the program in the way that it was started: `python -m train.X` or `topk-jax X`.

The sources write `python -m train.X` everywhere. It runs in a checkout alone.
"""

import re
import sys
from collections.abc import Sequence

from topk_jax import _console

_COMMAND = re.compile(r"\bpython\s+-m\s+train\.(\w+)")


def as_typed(text: str) -> str:
    """A text with its commands as the user of this process types them."""
    if not _started_by_console():
        return text
    return _COMMAND.sub(lambda match: f"{_console.NAME} {_console.command_of(match[1])}", text)


def as_process(arguments: Sequence[str]) -> list[str]:
    """The arguments of the process that runs a command.

    Args:
        arguments: those after `python`; of a command of the program `-m train.X …`.
    """
    option, module, *rest = arguments
    if option != "-m" or not _started_by_console():
        return [sys.executable, *arguments]
    # -m would need the program in a folder that Python looks into.
    name = _console.command_of(module.removeprefix("train."))
    return [sys.executable, _console.__file__, name, *rest]


def _started_by_console() -> bool:
    return sys.argv[0].startswith(f"{_console.NAME} ")
