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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_a_process_starts_reaches_it(tmp_path, monkeypatch, number):
    started = []

    def start(*arguments, **options):
        process = subprocess.Popen(*arguments, **options)
        started.append(process)
        signal.raise_signal(number)
        return process

    class Module:
        DEVNULL, STDOUT, Popen = subprocess.DEVNULL, subprocess.STDOUT, start

    monkeypatch.setattr(child_processes, "subprocess", Module)
    with ChildProcesses() as processes, pytest.raises(InterruptedRunError) as error:
        processes.run(SLEEPER, tmp_path / "log")
    assert error.value.number == number
    # Python ends by itself after an interruption that comes when it has started.
    assert started[0].returncode in (-number, 1)
