"""What every command of the program shares: flags, and mistakes told in one line.

A command's module imports at its top only what its flags need, and the rest in `main()`: so --help
and a mistake in the flags do not wait for JAX.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NoReturn

from absl import app, flags
from absl import logging as absl_logging

from train.foundation.errors import InterruptedRunError, UserError

# The exit code of a mistake in the command line, the configuration or the files.
_USER_ERROR = 2
# The exit code of a run that a signal stopped is this and the signal's number, as shells have it.
_SIGNAL = 128
# The exit code of a machine that refuses: a full disk, a folder that may not be written.
_SYSTEM_ERROR = 1


def run(command: Callable[[], None]) -> NoReturn:
    """Parses the flags and runs the command; a mistake ends in one line and an exit code."""
    app.run(lambda _arguments: _guarded(command), flags_parser=_parse)
    sys.exit(0)


def _parse(arguments: list[str]) -> list[str]:
    if "--help" in arguments or "-h" in arguments:
        app.usage(shorthelp=True, writeto_stdout=True, exitcode=0)
    try:
        rest = flags.FLAGS(arguments)
    except (AttributeError, KeyError) as error:
        _fail(_unknown_field(error, arguments), _USER_ERROR)
    except flags.Error as error:
        _fail(str(error), _USER_ERROR)
    except (IndexError, TypeError, ValueError) as error:
        # ml_collections, of what cannot be the name of a field.
        _fail(f"--config: {error}", _USER_ERROR)
    if rest[1:]:
        _fail(f"unexpected argument {rest[1]!r}: flags are written --name=value", _USER_ERROR)
    return rest


def _unknown_field(error: AttributeError | KeyError, arguments: Sequence[str]) -> str:
    """In words, what ml_collections raises for a field that the configuration does not have.

    What the configuration's file raises itself is a `ConfigurationFileError`.
    """
    # Perhaps with a hint on a line of its own.
    field, *hint = str(error.args[0]).strip('"').splitlines()
    return "; ".join([f"the configuration has no field {_whole(field, arguments)}", *hint])


def _whole(field: str, arguments: Sequence[str]) -> str:
    """The name of a field as the command line has it, of which the error has the last part."""
    name = field.strip("'")
    given = (argument.partition("=")[0].removeprefix("--") for argument in arguments)
    return next((repr(flag) for flag in given if name in flag.split(".")), field)


def _guarded(command: Callable[[], None]) -> None:
    # Below warnings, the libraries keep a diary.
    absl_logging.set_verbosity(absl_logging.WARNING)
    absl_logging.get_absl_handler().setFormatter(logging.Formatter("warning: %(message)s"))
    try:
        command()
    except UserError as error:
        _fail(str(error), _USER_ERROR)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        _fail(f"{error.strerror}: {error.filename}" if named else str(error), _SYSTEM_ERROR)
    except InterruptedRunError as error:
        if several := _several_processes():
            # All have stopped after the same step; who is quicker would have the others aborted.
            several.wait_for_others("stopped")
        _end(str(error), _SIGNAL + error.number)
    except KeyboardInterrupt:
        _end("stopped by SIGINT", _SIGNAL + signal.SIGINT)
    except RuntimeError:
        if (reason := _why_no_devices()) is None:
            raise
        platforms = os.environ.get("JAX_PLATFORMS", "")
        _fail(f"JAX finds no devices with JAX_PLATFORMS={platforms!r}: {reason}", _USER_ERROR)


def _why_no_devices() -> str | None:
    """Why JAX has no devices; None where it has some."""
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        return str(error)
    return None


def _several_processes() -> ModuleType | None:
    """The module of processes where there are several, which there are not before its import."""
    processes = sys.modules.get("train.devices.processes")
    return processes if processes is not None and processes.are_several() else None


def _fail(message: str, code: int) -> NoReturn:
    _end(f"error: {message}", code)


def _end(message: str, code: int) -> NoReturn:
    print(" ".join(message.split()), file=sys.stderr)  # noqa: T201
    if several := _several_processes():
        sys.stdout.flush()
        sys.stderr.flush()
        several.leave(code)
    sys.exit(code)
