"""The command lines of the promises, and the commands in this process: what each leaves.

It ends a command as the command line does, and is the one file of the promises that knows how. It
also writes the lines, so that a flag that gets another name is renamed here alone.
"""

import contextlib
import dataclasses
import importlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import jax
import pytest
from absl import flags, logging

from train.configuration import parsing
from train.foundation import command, errors
from train.run import plan


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a command left: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def line(command: str, **given: object) -> str:
    """`train.COMMAND --flag=value ...`, for `run`.

    Args:
        command: the name of the command.
        given: the values of its flags. A tuple is joined by commas, a list repeats the flag, True
            is a flag alone, and `fields` has the fields of the configuration that are changed.
    """
    fields: Mapping[str, object] = given.pop("fields", {})  # type: ignore[assignment]
    values = given | {f"config.{name}": value for name, value in fields.items()}
    pairs = [
        (name, one)
        for name, value in values.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    return shlex.join([f"train.{command}", *(_flag(*pair) for pair in pairs)])


def run(line: str) -> Ended:
    """Runs `train.NAME --flags` to its end."""
    return _run(line, lambda module: module.main)


def parsed(line: str) -> Ended:
    """Parses `train.NAME --flags`, and the configuration that they give, and runs nothing."""

    def parse_only(module: ModuleType) -> command.Main:
        def main() -> None:
            if hasattr(module, "_CONFIG"):
                parsing.parse(module._CONFIG())

        return main

    return _run(line, parse_only)


def _run(line: str, main: Callable[[ModuleType], command.Main]) -> Ended:
    # The help of a command is under the name of the program.
    argv = shlex.split(line)
    sys.modules.pop(argv[0], None)
    # Each start defines the flags.
    for name in [name for name in flags.FLAGS if _is_ours(name)]:
        delattr(flags.FLAGS, name)
    before, sys.argv = sys.argv, argv
    verbosity = logging.get_verbosity()
    # Commands may write bytes.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            jax.numpy_dtype_promotion("standard"),
        ):
            found = main(importlib.import_module(argv[0]))
            code = errors.exit_code(lambda: command.start(found, argv))
    finally:
        sys.argv = before
        logging.set_verbosity(verbosity)
    return Ended(code, out.buffer.getvalue().decode(), err.getvalue())


def ok(line: str) -> Ended:
    """The same for a command that is to succeed."""
    ended = run(line)
    assert ended.code == 0, ended.err
    return ended


@contextlib.contextmanager
def served(**given: object) -> Iterator[str]:
    """The address of `train.serve`, a process that ends well when it is asked to."""
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(line("serve", port=0, **given))],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        running = (re.search(r"running on (\S+)", printed) for printed in process.stderr)
        yield next(filter(None, running))[1]
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0


@contextlib.contextmanager
def chips_of_this_machine(number: int, memory: int) -> Iterator[None]:
    """Has `train.plan` compile for devices of this machine, whose compiler is always here."""
    here = plan.Target("here", "cpu", memory, jax.devices()[:number])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "find_target", lambda _: here)
        yield


def _flag(name: str, value: object) -> str:
    if value is True:
        return f"--{name}"
    return f"--{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"


def _is_ours(flag: str) -> bool:
    module = str(flags.FLAGS.find_module_defining_flag(flag))
    return module.startswith("train.") or flag.startswith("config.")
