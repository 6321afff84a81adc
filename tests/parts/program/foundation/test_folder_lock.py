"""The lock of a folder: one at a time, and free when its holder ends, however it ends."""

import fcntl
import signal
import subprocess
import sys

import pytest

from train.foundation import folder_lock
from train.foundation.errors import UserError

HOLDER = """
import signal, sys
from pathlib import Path
from train.foundation import files, folder_lock
with folder_lock.held(Path(sys.argv[1]), "another test"):
    print("held", flush=True)
    signal.pause()
"""


def hold(folder):
    return folder_lock.held(folder, "another test")


def test_the_second_is_told_in_one_line_and_the_next_finds_nothing(tmp_path):
    folder = tmp_path / "new" / "run"
    with hold(folder):
        with pytest.raises(UserError) as raised, hold(folder):
            pass
        assert str(raised.value) == f"another test is using {folder}; wait until it ends, or " + (
            "stop it"
        )
    assert list(folder.iterdir()) == []
    with hold(folder):
        pass


def test_a_killed_holder_loses_it(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="another test is using"), hold(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / folder_lock.LOCK).exists()
    with hold(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("removes_folder", [False, True])
def test_a_lock_that_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch, removes_folder):
    lock, folder = fcntl.flock, tmp_path / "parts"
    calls = []

    def after_another(file, operation):
        if not calls:
            # The holder before ended after this one had opened its file.
            (folder / folder_lock.LOCK).unlink()
            if removes_folder:
                folder.rmdir()
        calls.append(file)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", after_another)
    with hold(folder):
        assert len(calls) == 2
        with pytest.raises(UserError), hold(folder):
            pass
