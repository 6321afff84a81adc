"""The door of the commands: what ends one is a line, an exit code, or a traceback."""

import signal
import subprocess
import sys

import pytest

from tests.parts.program.forked import ROOT, TIME_LIMIT, start
from train.foundation.errors import Stopped, UserError, exit_code

FIELD = {"field": "--out", "must_be": "a file"}
ENDS = {
    "mistake": (UserError(**FIELD, got="a"), 2, "error: --out must be a file; got 'a'"),
    "reason": (
        UserError(**FIELD, but="it is c"),
        *(2, "error: --out must be a file; it is c"),
    ),
    "disk": (OSError(28, "No space\n left", "a\x1b"), 1, r"error: No space left: a\x1b"),
    "memory": (MemoryError(), 1, "error: not enough memory: MemoryError"),
    "device": (
        RuntimeError("RESOURCE_EXHAUSTED: Out\nmore"),
        *(1, "error: not enough memory on the device: RESOURCE_EXHAUSTED: Out"),
    ),
    "platform": (
        RuntimeError("Unable to initialize backend 'tpu'"),
        *(2, "error: Unable to initialize backend 'tpu'"),
    ),
    "saved": (Stopped(signal.SIGTERM, "saved"), 143, "stopped by SIGTERM: saved"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "stopped by SIGINT"),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_end_is_a_line_and_an_exit_code(end, capsys):
    error, code, line = ENDS[end]

    def command():
        raise error

    assert exit_code(command) == code
    assert capsys.readouterr().err == f"{line}\n"


def test_a_bug_is_raised():
    with pytest.raises(ZeroDivisionError):
        exit_code(lambda: 1 // 0)


# What a command does, in a process of its own that starts in a tenth of a second.
COMMAND = """
import os, sys, threading
from train.foundation.errors import explained, guarded

def interrupt():
    os.kill(os.getpid(), {number})

def main():
    {command}

guarded(main)
"""


def run(command, number=signal.SIGINT, started_by=()):
    program = COMMAND.format(command=command.replace("\n", "\n    "), number=int(number))
    done = subprocess.run(
        [*started_by, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_one_line(number):
    line = f"stopped by {number.name}"
    assert run("interrupt()", number) == (128 + number, "", f"{line}\n")
    explained = 'with explained("the same command continues"): interrupt()'
    expected = f"{line}: the same command continues\n"
    assert run(explained, number) == (128 + number, "", expected)


def test_a_signal_in_an_import_ends_a_command_at_once(tmp_path):
    (tmp_path / "interrupting.py").write_text("import os\nos.kill(os.getpid(), 2)\n")
    imports = f"""
sys.path.insert(0, {str(tmp_path)!r})
try:
    import interrupting
except KeyboardInterrupt:
    print("went on")
"""
    assert run(imports) == (130, "", "stopped by SIGINT\n")


def test_a_signal_after_the_end_of_a_command_changes_nothing():
    assert run("import atexit\natexit.register(interrupt)") == (0, "", "")


def test_a_signal_that_becomes_another_error_is_one_line():
    becomes = """
try:
    interrupt()
except KeyboardInterrupt:
    raise RuntimeError("INTERNAL: an error in a callback") from None
"""
    assert run(becomes) == (130, "", "stopped by SIGINT\n")


def test_a_process_that_ignores_a_signal_goes_on_to_do_so():
    ignoring = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    assert run("interrupt()", started_by=ignoring) == (0, "", "")


def test_threads_that_never_end_do_not_hold_a_command_that_failed():
    waits = "threading.Thread(target=threading.Event().wait).start()\nprint('read')\nreturn 3"
    assert run(waits) == (3, "read\n", "")


def test_a_bug_is_a_traceback():
    code, _, errors = run("1 / 0")
    assert (code, errors.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


def test_a_warning_is_a_line():
    warns = """
from absl import flags, logging
flags.FLAGS(["a command"])
logging.warning("skipped %s", "a" + chr(27))
"""
    assert run(warns) == (0, "", "warning: skipped a\\x1b\n")


def test_a_reader_that_has_gone_ends_a_command_without_a_line():
    goes = "read, write = os.pipe(); os.dup2(write, 1); os.close(read)\nwhile True: print('line')"
    assert run(goes) == (128 + signal.SIGPIPE, "", "")


@pytest.mark.parametrize("command", ["embed", "evaluate", "main", "predict", "export", "serve"])
def test_help_does_not_wait_for_jax(command):
    slow = "{'jax', 'flax', 'matplotlib', 'orbax', 'tensorflow_datasets'}"
    code = f"import sys, train.{command}; assert not {slow} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_help_has_the_flags_of_the_command():
    helped = start("train.evaluate", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--scores:" in helped.stdout
    assert "python -m train.evaluate --workdir=DIR" in helped.stdout
