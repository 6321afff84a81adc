"""A file of a run that is damaged is told by its name, and nothing is computed of it."""

import logging
import shutil

import numpy as np
import pytest

from tests.promises import commands, recomputed, shades
from train import data


@pytest.fixture(scope="module")
def whole(digits):
    """The run with all that commands add to it: limits and an evaluation."""
    commands.ok(commands.line("evaluate", workdir=digits.workdir))
    commands.ok(predicting(digits, digits.workdir))
    return digits.workdir


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def predicting(digits, workdir):
    """The sets of one image."""
    image = next((digits.photographs / "3").iterdir())
    return commands.line("predict", workdir=workdir, images=image, coverage=0.9)


def drawing(figure):
    def draw(_digits, workdir):
        out = workdir.parent / "figure.svg"
        return commands.line("figures", figure=figure, workdirs=workdir, out=out)

    return draw


# A command that reads the file.
READERS = {
    "config.json": predicting,
    "results.json": predicting,
    "classes.json": predicting,
    "sets.json": predicting,
    "metrics.jsonl": drawing("learning_curves"),
}


def another_digit(content, rng):
    """A text in which a digit is another one, before the checksum at its end."""
    seal = content.find(b'"sha256"')
    places = np.flatnonzero([chr(byte).isdigit() for byte in content[:seal]])
    place = rng.choice(places)
    other = b"0123456789"[(content[place] - ord("0") + rng.integers(1, 10)) % 10]
    return content[:place] + bytes([other]) + content[place + 1 :]


def check_told(ended, name):
    assert ended.code == 2, ended
    assert name in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_told_and_never_used(digits, copy, rng, name):
    file, line = copy / name, READERS[name](digits, copy)
    content = file.read_bytes()
    commands.ok(line)
    for damaged in (another_digit(content, rng), another_digit(content, rng), content[:-20], b""):
        file.write_bytes(damaged)
        check_told(commands.run(line), name)
    file.write_bytes(content)
    commands.ok(line)


def test_a_changed_byte_of_a_checkpoint_is_told_and_never_used(digits, copy, rng):
    line = predicting(digits, copy)
    step = digits.results()["best_epoch"] * 19
    parts = [copy / "checkpoints" / str(step) / part for part in ("state", "progress")]
    files = sorted(file for part in parts for file in part.rglob("*") if file.stat().st_size)
    files = [file for file in files if file.is_file()]
    for file in rng.choice(files, size=5, replace=False):
        content = bytearray(file.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        kept = file.read_bytes()
        file.write_bytes(content)
        check_told(commands.run(line), file.name)
        file.write_bytes(kept)
    commands.ok(line)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(digits, copy, caplog):
    (copy / "results.json").unlink()
    latest = copy / "checkpoints" / "38"
    largest = max(latest.rglob("*"), key=lambda file: file.stat().st_size * file.is_file())
    largest.write_bytes(largest.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        commands.ok(commands.line("main", workdir=copy, **digits.flags))
    assert str(latest) in caplog.text
    recomputed.check_ended_alike(digits, copy)


def test_a_damaged_data_set_is_told_and_never_used(tmp_path, rng):
    folder, name = tmp_path / "data", shades.NAME
    commands.ok(commands.line("prepare", dataset=name, data_dir=folder))
    assert len(data.read({"name": name, "batch_size": 1}).load(str(folder)).train) == 70
    line = commands.line(
        "main",
        config="configs/digits.py",
        workdir=tmp_path / "run",
        fields={"dataset.name": name, "dataset.data_dir": folder},
    )
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files:
        content = file.read_bytes()
        # The records have checksums.
        is_record = "array_record" in file.name
        file.write_bytes(another_digit(content, rng) if is_record else content[: len(content) // 2])
        check_told(commands.run(line), str(folder))
        file.write_bytes(content)
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_damaged_program_is_told_and_never_used(digits, tmp_path, rng):
    file = tmp_path / "program"
    commands.ok(commands.line("export", workdir=digits.workdir, top_k=3, out=file))
    content = bytearray(file.read_bytes())
    content[rng.integers(len(content))] ^= 1
    file.write_bytes(content)
    check_told(commands.run(commands.line("serve", program=file)), str(file))
    line = commands.line("evaluate", weights=file, images=digits.photographs)
    check_told(commands.run(line), str(file))
