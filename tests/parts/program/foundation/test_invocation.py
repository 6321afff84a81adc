"""Commands are named, and started, in the way that the program itself was started."""

import sys

import pytest

from train.foundation import invocation

TRAINING = ["-m", "train.main", "--config=digits"]
MESSAGE = "type python -m\ntrain.main, then python -m train.evaluate --workdir=a/train.main"


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["topk-jax tables", "--run"])


@pytest.mark.parametrize("started_as", ["/checkout/train/tables.py", "train.tables", "/bin/pytest"])
def test_in_a_checkout_they_are_modules(monkeypatch, started_as):
    monkeypatch.setattr(sys, "argv", [started_as])
    assert invocation.as_typed(MESSAGE) == MESSAGE
    assert invocation.as_process(TRAINING) == [sys.executable, *TRAINING]


@pytest.mark.usefixtures("installed")
def test_of_the_console_command_they_are_its_words():
    typed = "type topk-jax train, then topk-jax evaluate --workdir=a/train.main"
    assert invocation.as_typed(MESSAGE) == typed


@pytest.mark.usefixtures("installed")
def test_of_the_console_command_processes_are_started_by_its_file():
    python, file, *words = invocation.as_process(TRAINING)
    assert python == sys.executable
    assert file.endswith("/topk_jax/_console.py")
    assert words == ["train", "--config=digits"]
    # A module that is not a command of the program is left as it is.
    assert invocation.as_process(["-c", "pass"]) == [sys.executable, "-c", "pass"]
