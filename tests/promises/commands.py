"""The commands in this process: what each prints, and its exit code.

It ends a command as the command line does, and is the one file of the promises that knows how.
"""

import contextlib
import dataclasses
import importlib
import io
import shlex
import sys

import jax
from absl import flags

from train.foundation import command_line
from train.foundation.errors import UserError


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a command left: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def run(line: str) -> Ended:
    """Runs `train.NAME --flags` to its end."""
    # ml_collections reads the arguments of the process, too.
    argv = shlex.split(line)
    sys.modules.pop(argv[0], None)
    # Each start defines the flags.
    for name in [name for name in flags.FLAGS if _is_ours(name)]:
        delattr(flags.FLAGS, name)
    before, sys.argv = sys.argv, argv
    # Commands may write bytes.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.StringIO()
    code = 0
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            jax.numpy_dtype_promotion("standard"),
        ):
            main = importlib.import_module(argv[0]).main
            try:
                command_line._parse(argv, main)
                try:
                    main()
                except UserError as error:
                    command_line._explain(error)
            except SystemExit as end:
                code = int(end.code or 0)
    finally:
        sys.argv = before
    return Ended(code, out.buffer.getvalue().decode(), err.getvalue())


def ok(line: str) -> Ended:
    """The same for a command that is to succeed."""
    ended = run(line)
    assert ended.code == 0, ended.err
    return ended


def _is_ours(flag: str) -> bool:
    module = str(flags.FLAGS.find_module_defining_flag(flag))
    return module.startswith("train.") or flag.startswith("config.")
