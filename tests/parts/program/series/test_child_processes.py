"""The processes of commands get the signals that come to the command that started them."""

import signal
import subprocess
import sys

import pytest

from train.foundation.errors import InterruptedRunError
from train.series import child_processes
from train.series.child_processes import ChildProcesses

# It ends by the signal, or at the limit for a hang.
SLEEPER = [sys.executable, "-c", "import time; time.sleep(100)"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_a_process_starts_reaches_it(tmp_path, monkeypatch, number):
    started = []
    # Whoever runs the tests may have them ignore SIGHUP, as nohup does.
    before = signal.signal(number, signal.default_int_handler)

    def start(*arguments, **options):
        process = subprocess.Popen(*arguments, **options)
        started.append(process)
        signal.raise_signal(number)
        return process

    class Module:
        DEVNULL, STDOUT, Popen = subprocess.DEVNULL, subprocess.STDOUT, start

    monkeypatch.setattr(child_processes, "subprocess", Module)
    try:
        with ChildProcesses() as processes, pytest.raises(InterruptedRunError) as error:
            processes.run(SLEEPER, tmp_path / "log")
    finally:
        signal.signal(number, before)
    assert error.value.number == number
    # A run saves before it ends by SIGTERM, and not by SIGHUP. Python ends by itself after an
    # interruption that comes when it has started.
    passed_on = signal.SIGTERM if number == signal.SIGHUP else number
    assert started[0].returncode in (-passed_on, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with ChildProcesses():
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
