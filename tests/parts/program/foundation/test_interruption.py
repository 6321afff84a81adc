"""Signals at the moments at which Python itself does not end, or ends without our line."""

import os
import signal
import subprocess
import sys

import pytest

from tests.parts.program.forked import ROOT, TIME_LIMIT

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What a command does, in a process of its own that starts in a tenth of a second.
COMMAND = """
import atexit, contextlib, ctypes, gc, os, signal, sys, threading
from train.foundation import command_line, interruption
from train.foundation.errors import UserError

def interrupt():
    os.kill(os.getpid(), {number})

def never_returns():
    # As a long call of C++: no signal ends it, and it holds no lock of Python.
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)

def main():
    {command}

interruption.begin()
{before}
command_line.run(main)
"""


def run(command="pass", before="", started_by=(), number=signal.SIGINT):
    indented = command.replace("\n", "\n    ")
    program = COMMAND.format(command=indented, before=before, number=int(number))
    done = subprocess.run(
        [*started_by, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


ENDS = {
    "in the command": {"command": "interrupt()"},
    "before the command": {"before": "print('read', end=''); interrupt()"},
    "where it becomes another error": {
        "command": """
try:
    interrupt()
except KeyboardInterrupt:
    raise RuntimeError("INTERNAL: an error has occurred in a callback") from None
""",
    },
    "in a long call": {
        "command": """
threading.Timer(0.01, interrupt).start()
never_returns()
""",
        "before": "interruption._SECONDS = 0.1",
    },
    "a second time, in a long call": {
        "command": """
with interruption.allow_time(), contextlib.suppress(KeyboardInterrupt):
    interrupt()
with interruption.allow_time():
    threading.Timer(0.01, interrupt).start()
    never_returns()
""",
    },
}


@pytest.mark.parametrize(
    ("moment", "number"),
    [*((moment, signal.SIGINT) for moment in ENDS), ("in the command", signal.SIGTERM)],
)
def test_a_signal_ends_a_command_with_one_line_at_any_moment(moment, number):
    code, printed, errors = run(**ENDS[moment], number=number)
    assert (code, errors) == (128 + number, f"stopped by {number.name}\n")
    assert printed == ("read" if moment == "before the command" else "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_can_say_what_the_same_command_does(number):
    command = """
with interruption.explained("the same command continues"):
    interrupt()
"""
    line = f"stopped by {number.name}: the same command continues\n"
    assert run(command, number=number) == (128 + number, "", line)


def test_another_signal_interrupts_nothing_that_is_put_in_order():
    command = """
with interruption.explained("the same command continues"):
    try:
        interrupt()
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        print("in order")
        raise
"""
    line = "stopped by SIGINT: the same command continues\n"
    assert run(command) == (128 + signal.SIGINT, "in order\n", line)


def test_what_takes_time_is_waited_for():
    # The thread has looked at the clock three times, and each time it was too late.
    command = """
looks = threading.Semaphore(0)
select = interruption.select.select
interruption.select = type(sys)("select")
interruption.select.select = lambda *given: (looks.release(), select(*given))[1]
with interruption.allow_time():
    try:
        interrupt()
    except KeyboardInterrupt:
        for _ in range(3):
            looks.acquire()
        print("saved")
"""
    before = "interruption._SECONDS = interruption._PAUSE = 0.01"
    assert run(command, before) == (0, "saved\n", "")


# As a shell starts what is in the background.
IGNORING = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")


def test_a_process_that_ignores_one_goes_on_to_do_so():
    assert run("interrupt()", started_by=IGNORING) == (0, "", "")
    ended = run("interrupt()", started_by=IGNORING, number=signal.SIGTERM)
    assert ended == (143, "", "stopped by SIGTERM\n")


@pytest.mark.parametrize("module", ["train.main", "topk_jax._console"])
def test_the_program_handles_it_before_it_imports_a_library(tmp_path, module):
    library = tmp_path / "absl"
    library.mkdir()
    (library / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", module, "train"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by SIGINT\n")


def test_other_programs_handle_it_themselves():
    program = "import signal, train; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "default_int_handler\n"
