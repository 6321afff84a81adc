"""The commands of the program in the way that it was started: `python -m train.X` or `topk-jax X`.

The sources write `python -m train.X` everywhere, which only runs in a checkout.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import topk_jax

# The console command; topk_jax/_console.py is its file.
CONSOLE = "topk-jax"
# The modules of `train` that are called otherwise there.
_MODULES = {"train": "main"}

_COMMAND = re.compile(r"\bpython\s+-m\s+train\.(\w+)")


def command_of(module: str) -> str:
    """The name of the console's command that is the module `train.MODULE`."""
    return next((name for name, other in _MODULES.items() if other == module), module)


def module_of(command: str) -> str:
    """The module of `train` that is a command of the console."""
    return _MODULES.get(command, command)


def as_typed(text: str) -> str:
    """A text with its commands as the user of this process types them."""
    if not _started_by_console():
        return text
    return _COMMAND.sub(lambda match: f"{CONSOLE} {command_of(match[1])}", text)


def as_process(arguments: Sequence[str]) -> list[str]:
    """The arguments of the process that runs a command.

    Args:
        arguments: those after `python`; of a command of the program `-m train.X …`.
    """
    option, module, *rest = arguments
    if option != "-m" or not _started_by_console():
        return [sys.executable, *arguments]
    # -m would need the program in a folder that Python looks into.
    console = Path(topk_jax.__path__[0]) / "_console.py"
    return [sys.executable, str(console), command_of(module.removeprefix("train.")), *rest]


def _started_by_console() -> bool:
    return sys.argv[0].startswith(f"{CONSOLE} ")
