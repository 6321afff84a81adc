"""Runs the commands: parses their flags, and prints their help.

The module of a command imports at its top only what its flags need. Its `main()` imports the rest,
so that --help and mistakes in the flags do not wait for JAX.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import flags

from train.foundation import kinds
from train.foundation.errors import UserError, guarded
from train.foundation.flags import plain

Main = Callable[[], int | None]


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
        hint = kinds.did_you_mean(error.flagname, known)
        others = "--help lists them"
        if "config" in known:
            others = "fields are --config.FIELD=VALUE"
        raise UserError(f"there is no flag {error.flagname!r}; {others}{hint}") from error
    except flags.IllegalFlagValueError as error:
        name, value = re.findall(r"(?s)^flag --([^=]+)=(.*?): ", str(error))[0]
        parser = flags.FLAGS[name].parser
        names = getattr(parser, "enum_values", None)
        must_be = kinds.describe(kinds.one_of(names), value) if names else parser.syntactic_help
        must_be = must_be or kinds.describe(bool)
        raise UserError(field=f"--{name}", must_be=must_be, got=value) from error
    except flags.Error as error:
        raise UserError(str(error)) from error
    if rest:
        raise UserError(f"unexpected argument {rest[0]!r}: flags are written --name=value")
    return main()


def _owner(main: Main) -> str:
    """The name under which absl has the flags of the command."""
    # absl has the flags of the main module under the name that Python was started with.
    return sys.argv[0] if main.__module__ == "__main__" else main.__module__
