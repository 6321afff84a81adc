"""Prints what commands answer to the command lines on standard input.

It runs in a process of its own, for flags of several commands have the same names.
"""

import contextlib
import importlib
import io
import shlex
import sys

from absl import flags

from train.foundation import command_line
from train.foundation.errors import UserError


def answered(line: str) -> str:
    """The lines that the command prints as it ends."""
    # ml_collections reads it, too.
    sys.argv = shlex.split(line)
    module = sys.argv[0]
    # Each start defines the flags.
    sys.modules.pop(module, None)
    for name in [name for name in flags.FLAGS if _is_of_a_command(name)]:
        delattr(flags.FLAGS, name)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
        _answer(importlib.import_module(module).main)
    return printed.getvalue().removeprefix("error: ")


def _answer(main) -> None:
    """Ends as `command_line.run` ends the command."""
    command_line._parse(sys.argv, main)
    try:
        main()
    except UserError as error:
        command_line._explain(error)


def _is_of_a_command(flag: str) -> bool:
    module = str(flags.FLAGS.find_module_defining_flag(flag))
    return module.startswith("train.") or flag.startswith("config.")


if __name__ == "__main__":
    for line in sys.stdin.read().splitlines():
        print(line)
        for one in answered(line).splitlines():
            print(f"    {one}")
