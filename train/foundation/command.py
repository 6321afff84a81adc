"""Runs the commands: parses their flags, and prints their help.

The module of a command imports at its top only what its flags need. Its `main()` imports the rest,
so that --help and mistakes in the flags do not wait for JAX.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import flags

from train.foundation.errors import UserError, guarded
from train.foundation.flags import plain
from train.foundation.kinds import did_you_mean

Main = Callable[[], int | None]
# Python's messages for a text that is not a number, and ours.
_NO_NUMBER = {
    "invalid literal for int() with base 10:": "must be an integer; got",
    "could not convert string to float:": "must be a number; got",
}


def run(main: Main) -> NoReturn:
    """Runs a command with the arguments of this process, and ends the process."""
    guarded(lambda: start(main, sys.argv))


def start(main: Main, typed: Sequence[str]) -> int | None:
    """Parses the flags of a command and runs it, or prints its help.

    Args:
        main: the command, whose module has defined its flags.
        typed: the name of the program and the arguments.

    Returns:
        The command's exit code.

    Raises:
        UserError: a flag is unknown, or has a value of another type.
    """
    arguments = [typed[0], *map(plain, typed[1:])]
    if "--help" in arguments or "-h" in arguments:
        _, _, listed = flags.FLAGS.module_help(_owner(main)).partition(":\n")
        sys.stdout.write(
            f"{(sys.modules[main.__module__].__doc__ or '').strip()}\n\nflags:\n{listed}\n"
        )
        return 0
    try:
        _, *rest = flags.FLAGS(arguments)
    except flags.UnrecognizedFlagError as error:
        # absl suggests all flags that start alike: for "prt" it suggests two flags, but not "port".
        known = [flag.name for flag in flags.FLAGS.get_key_flags_for_module(_owner(main))]
        hint = did_you_mean(error.flagname, known)
        raise UserError(f"there is no flag {error.flagname!r}{hint}") from error
    except flags.Error as error:
        message = str(error).removeprefix("flag ")
        for of_python, told in _NO_NUMBER.items():
            message = message.replace(of_python, told)
        raise UserError(message) from error
    if rest:
        raise UserError(f"unexpected argument {rest[0]!r}: flags are written --name=value")
    return main()


def _owner(main: Main) -> str:
    """The name under which absl has the flags of the command."""
    # absl has the flags of the main module under the name that Python was started with.
    return sys.argv[0] if main.__module__ == "__main__" else main.__module__
