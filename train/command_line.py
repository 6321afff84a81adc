"""What every command of the program shares: flags, and mistakes told in one line."""

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import app, flags
from absl import logging as absl_logging

from train.devices import processes
from train.foundation.errors import InterruptedRunError, UserError

# The exit code of a mistake in the command line, the configuration or the files.
_USER_ERROR = 2
# The exit code of a run that a signal stopped is this and the signal's number, as shells have it.
_SIGNAL = 128
# The exit code of a machine that refuses: a full disk, a folder that may not be written.
_SYSTEM_ERROR = 1
# How JAX begins to say that it has no such devices, and Python that a text is no whole number.
_NO_BACKEND = "Unable to initialize backend"
_NOT_A_NUMBER = re.compile(r"invalid literal for int\(\) with base 10: '.*?'")


def run(command: Callable[[], None]) -> NoReturn:
    """Parses the flags and runs the command; a mistake ends in one line and an exit code."""
    app.run(lambda _arguments: _guarded(command), flags_parser=_parse)
    sys.exit(0)


def _parse(arguments: list[str]) -> list[str]:
    if "--help" in arguments or "-h" in arguments:
        app.usage(shorthelp=True, writeto_stdout=True, exitcode=0)
    try:
        rest = flags.FLAGS(arguments)
    except Exception as error:  # A configuration file is a program: it can raise anything.
        _fail(_flag_message(error, arguments), _USER_ERROR)
    if rest[1:]:
        _fail(f"unexpected argument {rest[1]!r}: flags are written --name=value", _USER_ERROR)
    return rest


def _flag_message(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with the flags, where the libraries' own words do not say it."""
    words = str(error.args[0]) if error.args else type(error).__name__
    match error:
        case SyntaxError():
            return f"{error.filename}, line {error.lineno}: {error.msg}"
        case AttributeError() if "get_config" in words:
            return "the file that --config names has no function get_config()"
        case KeyError() | AttributeError():
            # An unknown field, perhaps with a hint on a line of its own.
            field, *hint = words.strip('"').splitlines()
            return "; ".join([f"the configuration has no field {_whole(field, arguments)}", *hint])
        case flags.Error() if "Traceback" in words:
            # get_config() raised; its last line says what.
            last_line = words.splitlines()[-1]
            refused = last_line.removeprefix("ValueError: ")
            cannot_run = f"the file that --config names cannot be run: {last_line}"
            return cannot_run if refused == last_line else f"--config: {refused}"
        case flags.Error():
            return _NOT_A_NUMBER.sub("must be a whole number", words)
    return f"the file that --config names cannot be run: {type(error).__name__}: {error}"


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
        # All have stopped after the same step; who is quicker would have the others aborted.
        processes.wait_for_others("stopped")
        _end(str(error), _SIGNAL + error.number)
    except KeyboardInterrupt:
        _end("stopped by SIGINT", _SIGNAL + signal.SIGINT)
    except RuntimeError as error:
        if _NO_BACKEND not in str(error):
            raise
        platforms = os.environ.get("JAX_PLATFORMS", "")
        _fail(f"JAX finds no devices with JAX_PLATFORMS={platforms!r}: {error}", _USER_ERROR)


def _fail(message: str, code: int) -> NoReturn:
    _end(f"error: {message}", code)


def _end(message: str, code: int) -> NoReturn:
    print(" ".join(message.split()), file=sys.stderr)  # noqa: T201
    if processes.are_several():
        sys.stdout.flush()
        sys.stderr.flush()
        processes.leave(code)
    sys.exit(code)
