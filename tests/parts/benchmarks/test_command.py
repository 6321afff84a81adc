"""The flags of the benchmarks: what they become, and what is refused before a measurement."""

import json

import jax
import pytest

from benchmarks import command


def parser():
    made = command.parser("First line.\n\nMore.", repetitions=3, least=2)
    command.add_device(made)
    return made


def test_flags_become_a_device_a_number_and_a_file(tmp_path):
    made = parser()
    assert made.description == "First line."
    arguments = made.parse_args([])
    assert (arguments.repetitions, arguments.output) == (3, None)
    assert arguments.device == jax.devices()[0]
    path = tmp_path / "results.json"
    arguments = made.parse_args(["--repetitions=2", "--device=cpu", f"--output={path}"])
    assert (arguments.repetitions, arguments.device.platform) == (2, "cpu")
    command.write({"a": 1}, arguments.output)
    assert json.loads(path.read_text()) == {"a": 1}


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (
            "--repetitions=1",
            "--repetitions: must be an integer of at least 2; got '1'",
        ),
        ("--repetitions=-3", "must be an integer of at least 2; got '-3'"),
        ("--repetitions=two", "must be an integer of at least 2; got 'two'"),
        ("--device=abacus", "argument --device: must be cpu on this machine; got 'abacus'"),
        (
            "--output=/proc/nowhere/results.json",
            "argument --output: must be a file in a folder that",
        ),
        ("--output=.", "argument --output: must be a file in a folder that exists; got '.'"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(flag, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([flag])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
