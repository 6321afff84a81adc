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


def run(command="pass", before="", started_by=(), number=signal.SIGINT, **options):
    indented = command.replace("\n", "\n    ")
    program = COMMAND.format(command=indented, before=before, number=int(number))
    done = subprocess.run(
        [*started_by, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


ENDS = {
    "in the command": {"command": "interrupt()"},
    "before the command": {"before": "print('read', end=''); interrupt()"},
    "after the command": {"before": "atexit.register(interrupt)"},
    "in an import": {
        "command": """
sys.path.insert(0, os.environ["MODULES"])
import made_of_cpp
""",
    },
    "where it becomes another error": {
        "command": """
try:
    interrupt()
except KeyboardInterrupt:
    raise RuntimeError("INTERNAL: an error has occurred in a callback") from None
""",
    },
    "where it is lost": {
        "command": """
gc.callbacks.append(lambda *_: interrupt())
gc.collect()
never_returns()
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
    "at the exit, where a thread never ends": {
        "command": """
def wait():
    while threading.main_thread().is_alive():
        pass
    interrupt()
    never_returns()
threading.Thread(target=wait).start()
""",
    },
}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", ENDS)
def test_a_signal_ends_a_command_with_one_line_at_any_moment(tmp_path, moment, number):
    # As an extension module that is initialized by half.
    (tmp_path / "made_of_cpp.py").write_text(
        "import os\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "except BaseException:\n"
        "    os.abort()\n"
    )
    environment = {**os.environ, "MODULES": str(tmp_path)}
    code, printed, errors = run(**ENDS[moment], number=number, env=environment)
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


def test_a_signal_after_the_line_prints_none():
    command = """
atexit.register(interrupt)
raise UserError("there is no such file")
"""
    assert run(command) == (2, "", "error: there is no such file\n")


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


def test_two_signals_of_one_moment_are_one_request():
    command = """
before = {}

def ask(number, frame):
    print("asked")
    for one, handler in before.items():
        signal.signal(one, handler)

both = (signal.SIGINT, signal.SIGTERM)
with interruption.ended_by_sigterm(), interruption.handled_elsewhere():
    before.update({one: signal.signal(one, ask) for one in both})
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    for one in both:
        # To this thread: the one that watches would be given the first before the second is there.
        signal.pthread_kill(threading.get_ident(), one)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
"""
    assert run(command) == (0, "asked\n", "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_the_last_moments_is_ignored(number):
    # Modules are taken apart by then.
    command = f"""
class Last:
    def __del__(self, write=os.write, kill=os.kill, process=os.getpid()):
        write(1, b"taken apart")
        kill(process, {int(number)})
sys.modules["__main__"].last = Last()
"""
    assert run(command) == (0, "taken apart", "")


# As a shell starts what is in the background.
IGNORING = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")


def test_a_process_that_ignores_one_goes_on_to_do_so():
    assert run("interrupt()", started_by=IGNORING) == (0, "", "")
    ended = run("interrupt()", started_by=IGNORING, number=signal.SIGTERM)
    assert ended == (143, "", "stopped by SIGTERM\n")


@pytest.mark.parametrize("started_by", [(), IGNORING])
@pytest.mark.parametrize(
    ("error", "code", "last"),
    [
        ("UserError('no such field')", 2, "error: no such field"),
        ("OSError(28, 'No space left on device', '/data')", 1, "No space left on device: /data"),
        ("KeyError('a mistake of ours')", 1, "KeyError: 'a mistake of ours'"),
    ],
)
def test_an_error_ends_a_command_with_threads_that_never_end(error, code, last, started_by):
    command = f"threading.Thread(target=never_returns).start()\nraise {error}"
    returned, printed, errors = run(command, started_by=started_by)
    assert (returned, printed) == (code, "")
    assert errors.splitlines()[-1].endswith(last)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("end", "code"), [("pass", 0), ("raise UserError('no')", 2), ("raise KeyError('ours')", 1)]
)
def test_a_command_ends_with_closed_streams(closed, end, code):
    command = f"""
sys.stdout.write("printed")
sys.stderr.write("logged")
with open(os.devnull) as file:
    assert file.fileno() > 2
subprocess.run(["sh", "-c", "true <&0 >&1 2>&1 && true >&2"], check=True)
{end}
"""
    shell = ("sh", "-c", f'exec "$@" {closed}', "sh")
    returned, printed, errors = run(command, before="import subprocess", started_by=shell)
    assert (returned, printed) == (code, "")
    assert errors.startswith("logged") == ("2>&-" not in closed)


def test_an_error_at_the_end_does_not_wait_for_itself():
    assert run("sys.stdout = None\nraise UserError('no')") == (2, "", "error: no\n")


@pytest.mark.parametrize("module", ["train.main", "train.evaluate", "topk_jax._console"])
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
