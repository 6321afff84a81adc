"""Runs the commands: parses their flags, and ends mistakes in one line.

The usual reason for a mistake may follow on a second line.

The module of a command imports at its top only what its flags need. Its `main()` imports the rest,
so that --help and mistakes in the flags do not wait for JAX.
"""

import contextlib
import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from absl import app, flags
from absl import logging as absl_logging

from train.foundation import (
    addresses,
    environment,
    freed_memory,
    home_folders,
    interruption,
    invocation,
    refused_flags,
    standard_output,
)
from train.foundation.errors import (
    NO_PATH,
    USUALLY,
    InterruptedRunError,
    LimitError,
    UserError,
    first_line,
)
from train.foundation.nested import flatten
from train.foundation.printable import printable

# The exit code for a mistake in the command line, the configuration or the files.
_USER_ERROR = 2
# The end of the message about a device without enough memory, in commands that train.
_LARGE_BATCH = (
    "config.dataset.batch_size is too large for the device; config.optimizer.accumulation_steps "
    "computes a batch in parts"
)
# The message of pathlib, which raises a plain RuntimeError.
_NO_HOME = "Could not determine home directory."
# The exit code for errors of the system: a full disk, or a folder without write permission.
_SYSTEM_ERROR = 1
# The longest message, in letters: two paths of the greatest length that Linux takes.
_LONGEST = 8192
# What was expected, by the start of the message for a value of another type. absl has messages of
# its own, and passes on messages of Python.
_TYPES = {
    "invalid literal for int()": "an integer",
    "could not convert string to float": "a number",
    "('Non-boolean argument": "true or false",
    "Failed to parse": "followed by a dot and a field of this group",
}
_ILLEGAL = re.compile(rf"flag (--[^=]*)=(.*): ({'|'.join(map(re.escape, _TYPES))}).*", re.DOTALL)
# JAX has no types of its own for these.
_NO_PLATFORM = "Unable to initialize backend"
_JAX_SETTING = re.compile(r"for (JAX flag|environment 'JAX)")


def run(command: Callable[[], None]) -> NoReturn:
    """Parses the flags and runs the command. A mistake ends in one line and an exit code."""
    environment.mend()
    freed_memory.keep()
    standard_output.keep_what_fails()
    try:
        app.run(
            lambda _arguments: _guarded(command),
            flags_parser=lambda arguments: _parse(arguments, command),
        )
    except SystemExit as end:
        interruption.leave(int(end.code or 0))
    sys.exit(0)


def _parse(typed: list[str], command: Callable[[], None]) -> list[str]:
    arguments = home_folders.put_in(typed)
    if "--help" in arguments or "-h" in arguments:
        _show_help(command)
    if (mistake := refused_flags.mistake(arguments)) is not None:
        _fail(mistake, _USER_ERROR)
    try:
        addresses.check_arguments(arguments)
    except UserError as error:
        _fail(str(error), _USER_ERROR)
    _check_order(arguments)
    try:
        rest = flags.FLAGS(arguments)
    except (AttributeError, KeyError) as error:
        _fail(_unknown_field(error, arguments), _USER_ERROR)
    except flags.UnrecognizedFlagError as error:
        _fail(_unknown_flag(error.flagname, command), _USER_ERROR)
    except flags.Error as error:
        _fail(_of_another_type(str(error)), _USER_ERROR)
    except OSError as error:  # From the file that --config names.
        _explain(error)
    except (IndexError, TypeError, ValueError) as error:
        # ml_collections raises them for what cannot be the name of a field. absl names its flag.
        message = str(error)
        _fail(message if message.startswith("--") else f"--config: {message}", _USER_ERROR)
    if rest[1:]:
        _fail(f"unexpected argument {rest[1]!r}: flags are written --name=value", _USER_ERROR)
    return rest


def _of_another_type(message: str) -> str:
    """The message for a flag whose value is not a number or a truth value, in our words."""
    if found := _ILLEGAL.fullmatch(message):
        return f"{found[1]} must be {_TYPES[found[3]]}; got {found[2]!r}"
    return message


def _check_order(arguments: Sequence[str]) -> None:
    """Refuses a field of the configuration before the recipe that has it."""
    for argument in arguments:
        if argument.startswith(("--config=", "-config=")) or argument in ("--config", "-config"):
            return
        if argument.startswith("--config."):
            _fail(f"--config=RECIPE must come before the field {argument}", _USER_ERROR)


def _show_help(command: Callable[[], None]) -> NoReturn:
    """Prints the docstring of the command and its flags, and ends."""
    module = sys.modules[command.__module__]
    _, _, listed = flags.FLAGS.module_help(_owner(command)).partition(":\n")
    # There is no docstring with PYTHONOPTIMIZE=2.
    described = f"{module.__doc__.strip()}\n\n" if module.__doc__ else ""
    standard_output.show(invocation.as_typed(f"{described}flags:\n{listed}\n"))
    sys.exit(0)


def _owner(command: Callable[[], None]) -> str:
    """The name under which absl has the flags of the command."""
    # absl has the flags of the main module under the name that Python was started with.
    return sys.argv[0] if command.__module__ == "__main__" else command.__module__


def _unknown_flag(name: str, command: Callable[[], None]) -> str:
    """The message for a flag that the command does not have.

    absl suggests all flags that start alike: for "prt" it suggests two flags, but not "port".
    """
    known = [flag.name for flag in flags.FLAGS.get_key_flags_for_module(_owner(command))]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f". Did you mean: {near[0]} ?" if near else ""
    return f"Unknown command line flag {name!r}{hint}"


def _unknown_field(error: AttributeError | KeyError, arguments: Sequence[str]) -> str:
    """The message for a field that the configuration does not have.

    ml_collections raises these two errors for nothing else: errors of the configuration file
    arrive as `ConfigurationFileError`.
    """
    words = error.args[0]
    if isinstance(words, Exception):
        # Below the top level, one of them has the other as its argument.
        words = words.args[0]
    # Its own hint, on a second line, is for fields of the same group.
    field = _whole(str(words).strip('"').splitlines()[0], arguments)
    hint = _hint(field.strip("'"))
    return f"the configuration has no field {field}{hint}"


def _hint(field: str) -> str:
    """The question whether a field of the recipe with the same name is meant, or a near one."""
    # The flag does not have the recipe yet.
    parser: Any = flags.FLAGS["config"].parser
    fields_by_name: dict[str, list[str]] = {}
    for one, _ in flatten(parser.read.to_dict()):
        fields_by_name.setdefault(one.rpartition(".")[2], []).append(f"config.{one}")
    near = difflib.get_close_matches(field.rpartition(".")[2], fields_by_name, n=1, cutoff=0.75)
    found = [one for name in near for one in fields_by_name[name]]
    # If several groups have the field, the group whose name is near, too.
    found = difflib.get_close_matches(field, found, n=1, cutoff=0.85) or found
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def _whole(field: str, arguments: Sequence[str]) -> str:
    """The full name of a field on the command line; the error has its last part only."""
    name = field.strip("'")
    given = (argument.partition("=")[0].removeprefix("--") for argument in arguments)
    return next((repr(flag) for flag in given if name in flag.split(".")), field)


def _guarded(command: Callable[[], None]) -> None:
    # The libraries log much that is not for users, at lower levels.
    absl_logging.set_verbosity(absl_logging.WARNING)
    absl_logging.get_absl_handler().setFormatter(_Warning("warning: %(message)s"))
    environment.check_cache()
    try:
        with interruption.unwinding():
            _allow_transfers()
            command()
            sys.stdout.flush()
    except InterruptedRunError as error:
        if not error.alone and (several := _several_processes()):
            # All stop after the same step. The first to exit would abort the others.
            with interruption.allow_time():
                several.wait_for_others("stopped")
        _end(str(error), interruption.SIGNAL + error.number)
    except KeyboardInterrupt:
        _end(interruption.message(), interruption.code())
    except Exception as error:
        if interruption.raised():
            # C++ makes another error of a KeyboardInterrupt that it passes on.
            _end(interruption.message(), interruption.code())
        _explain(error)


def _allow_transfers() -> None:
    """Has JAX send arrays of the host to the devices, if JAX_TRANSFER_GUARD forbids it.

    The guard finds transfers that a program makes by mistake. Here every one is intended: scores,
    thresholds and counts are on the host, and each call of a function of JAX sends them.
    """
    guards = (name for name in os.environ if name.startswith("JAX_TRANSFER_GUARD"))
    # Only if transfers are forbidden: importing JAX takes long.
    if any(os.environ[name].startswith("disallow") for name in guards):
        import jax

        jax.config.update("jax_transfer_guard", "allow")


class _Warning(logging.Formatter):
    """On one line, without what a terminal obeys."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))


def _explain(error: Exception) -> NoReturn:
    """Ends with the line of an error that has one; raises it again if it is a bug of ours."""
    match error:
        case UserError():
            _fail(str(error), _USER_ERROR, error.usually)
        case OSError() if standard_output.failed(error):
            standard_output.discard()
            _leave(*standard_output.end_of(error))
        case OSError():
            named = error.filename is not None and error.strerror is not None
            code = _USER_ERROR if error.errno in NO_PATH else _SYSTEM_ERROR
            _fail(f"{error.strerror}: {error.filename}" if named else str(error), code)
        case RuntimeError() if str(error) == _NO_HOME:
            _fail("a path starts with ~ and the name of an unknown user", _USER_ERROR)
        case LimitError():
            _fail(str(error), _SYSTEM_ERROR)
        case ImportError() if ".so" in str(error):
            # A file that is there and cannot be loaded; a module that is missing has another type.
            _fail(f"a library cannot be loaded: {first_line(error)}", _SYSTEM_ERROR)
        case MemoryError():
            _fail(f"not enough memory: {first_line(error)}", _SYSTEM_ERROR)
        case RuntimeError() if str(error).startswith("RESOURCE_EXHAUSTED"):
            # JAX has no type of its own for it.
            usually = _LARGE_BATCH if "config" in flags.FLAGS else ""
            _fail(f"not enough memory: {first_line(error)}", _SYSTEM_ERROR, usually)
        case Exception() if (several := _several_processes()) and several.is_of_lost_peer(error):
            lost = "another process ended, whose own message says why, or cannot be reached"
            _fail(f"{lost}: {first_line(error)}", _SYSTEM_ERROR)
        case RuntimeError() | AssertionError() if (reason := _why_no_devices(error)) is not None:
            platforms = os.environ.get("JAX_PLATFORMS", "")
            _fail(f"JAX finds no devices with JAX_PLATFORMS={platforms!r}: {reason}", _USER_ERROR)
        case ValueError() if _JAX_SETTING.search(str(error)) is not None:
            _fail(f"JAX refuses a setting of the environment: {error}", _USER_ERROR)
    raise error


def _why_no_devices(error: Exception) -> str | None:
    """Why JAX lacks devices of the platforms that it was asked for; None if it has some."""
    import jax

    if str(error).startswith(_NO_PLATFORM):
        # JAX raises it once, and then continues with the platforms that it has.
        return str(error)
    try:
        jax.devices()
    except RuntimeError as again:
        return str(again)
    except AssertionError:
        return "this machine has none"
    return None


def _several_processes() -> ModuleType | None:
    """The module `processes` if there are several processes, else None."""
    processes = sys.modules.get("train.devices.processes")
    return processes if processes is not None and processes.are_several() else None


def _fail(message: str, code: int, usually: str = "") -> NoReturn:
    _end(f"error: {message}", code, f"{USUALLY} {usually}" if usually else "")


def _end(message: str, code: int, hint: str = "") -> NoReturn:
    lines = [printable(" ".join(one.split())) for one in (message, hint) if one]
    if len(lines[0]) > _LONGEST:
        # A value of a flag or a file can have any length.
        lines[0] = f"{lines[0][: _LONGEST // 2]} ... {lines[0][-_LONGEST // 2 :]}"
    _leave("".join(f"{invocation.as_typed(line)}\n" for line in lines), code)


def _leave(text: str, code: int) -> NoReturn:
    # If standard error fails, the exit code has to be enough.
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
    interruption.keep(code)
    if several := _several_processes():
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        # The line is there. The wait may be longer than what is left of the time of a signal.
        with interruption.allow_time():
            several.leave(code)
    sys.exit(code)
