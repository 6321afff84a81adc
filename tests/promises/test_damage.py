"""A file of a run that is damaged is told by its name, and nothing is computed of it."""

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


def evaluating(_digits, workdir):
    return commands.line("evaluate", workdir=workdir)


def drawing(_digits, workdir):
    out = workdir.parent / "figure.svg"
    return commands.line("compare", figure="curves", runs=workdir, out=out)


def training(digits, workdir):
    return commands.line("main", workdir=workdir, **digits.flags)


# The commands that read a file, and those that make it again if it is missing.
READERS = {
    "config.json": ((training, evaluating, predicting, drawing), ()),
    "results.json": ((evaluating, predicting, drawing, training), (training,)),
    "classes.json": ((evaluating, predicting), ()),
    "data.json": ((evaluating, predicting), ()),
    "sets.json": ((predicting,), (predicting,)),
    "metrics.jsonl": ((drawing,), ()),
}


def another_digit(content, rng):
    """A text in which a digit is another one, before the checksum at its end."""
    seal = content.find(b'"sha256"')
    places = np.flatnonzero([chr(byte).isdigit() for byte in content[:seal]])
    place = rng.choice(places)
    other = b"0123456789"[(content[place] - ord("0") + rng.integers(1, 10)) % 10]
    return content[:place] + bytes([other]) + content[place + 1 :]


def check_told(ended, name):
    assert ended.code in (1, 2), ended
    assert str(name) in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_cut_or_missing_is_told_and_never_used(digits, copy, name):
    file, (readers, making) = copy / name, READERS[name]
    content = file.read_bytes()
    for reader in readers:
        file.write_bytes(content[: len(content) // 2] + b"\n")
        line = reader(digits, copy)
        check_told(commands.run(line), file)
        file.unlink()
        if reader in making:
            commands.ok(line)
            assert name != "results.json" or file.read_bytes() == content
        else:
            check_told(commands.run(line), copy)
            file.write_bytes(content)


def test_a_changed_limit_is_told_and_never_used(digits, copy, rng):
    file, line = copy / "sets.json", predicting(digits, copy)
    content = file.read_bytes()
    for _ in range(3):
        file.write_bytes(another_digit(content, rng))
        check_told(commands.run(line), file)
    file.unlink()
    commands.ok(line)


def test_a_changed_byte_of_a_checkpoint_is_told_and_never_used(digits, copy, rng):
    line = predicting(digits, copy)
    step = digits.results()["best_epoch"] * 19
    # A classifier is read from this part; the rest is read when the run goes on.
    found = (copy / "checkpoints" / str(step) / "evaluated").rglob("*")
    files = sorted(file for file in found if file.is_file() and file.stat().st_size)
    for file in rng.choice(files, size=3, replace=False):
        content = bytearray(file.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        kept = file.read_bytes()
        file.write_bytes(content)
        check_told(commands.run(line), file.name)
        file.write_bytes(kept)
    commands.ok(line)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(digits, copy):
    (copy / "results.json").unlink()
    latest, line = copy / "checkpoints" / "38", commands.line("main", workdir=copy, **digits.flags)
    largest = max(latest.rglob("*"), key=lambda file: file.stat().st_size * file.is_file())
    largest.write_bytes(largest.read_bytes()[:-1])
    check_told(commands.run(line), f"{latest} is damaged")
    shutil.rmtree(latest)
    commands.ok(line)
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
        check_told(commands.run(line), folder)
        file.write_bytes(content)
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_damaged_program_is_told_and_never_used(digits, tmp_path, rng):
    file, described = tmp_path / "program", tmp_path / "program.json"
    commands.ok(commands.line("export", workdir=digits.workdir, top_k=3, out=file))
    evaluated = commands.line("evaluate", weights=file, images=digits.photographs)
    whole = described.read_bytes()
    described.write_bytes(another_digit(whole, rng))
    check_told(commands.run(evaluated), described)
    described.write_bytes(whole)
    content = bytearray(file.read_bytes())
    content[rng.integers(len(content))] ^= 1
    file.write_bytes(content)
    check_told(commands.run(evaluated), file)
    check_told(commands.run(commands.line("serve", program=file)), file)
