"""What a run has sealed: it goes on with that alone, and a user can remove a seal."""

import json

import pytest
from absl import logging

from tests.parts.program.workdir.test_damaged_run import CONTENTS, READERS
from train.data.classes import Classes
from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.workdir import run_files
from train.workdir.facts import Facts
from train.workdir.metrics_file import MetricsFile

CLASSES = Classes(("daisy", "dandelion"), (3, 200))
RESULTS = {"test": {"loss": 0.5, "top_1_accuracy": 0.75}}
LINES = [{"step": 5 * i, "epoch": 1, "split": "train", "loss": 1.5 / i} for i in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("config.json", b'"seed": 1', b'"seed": 2'), ("data.json", b"[0.5]", b"[0.6]")],
)
def test_a_change_is_told_until_the_user_removes_the_seal(tmp_path, name, before, after):
    path, value = tmp_path / name, CONTENTS[name]
    changed = json_files.sealed(value).replace(before, after)
    path.write_bytes(changed)
    with pytest.raises(json_files.ChangedError, match=rf"{name} .* sha256$"):
        READERS[name](tmp_path)
    changed = json.loads(changed)
    del changed["sha256"]
    assert changed != value
    path.write_text(json.dumps(changed))
    READERS[name](tmp_path)


@pytest.fixture
def finished(tmp_path):
    """A finished run, with only the files that contain no checksum."""
    (tmp_path / "classes.json").write_bytes(files.to_json(CLASSES.to_plain(), indent=1))
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 0, None)
    for line in LINES:
        metrics.append(line)
    run_files.write_results(tmp_path, RESULTS, {"metrics.jsonl": metrics.digest()})
    return tmp_path


def test_a_finished_run_without_the_data_that_it_kept_is_refused(finished):
    shape = (8, 8, 3)
    facts = Facts(CLASSES, shape, mean=(0.25,) * 3, std=(0.5,) * 3)
    assert run_files.read_facts(finished, CLASSES, shape) == Facts(CLASSES, shape)
    (finished / "data.json").write_bytes(json_files.sealed(facts.to_plain()))
    run_files.write_results(finished, RESULTS)
    assert run_files.read_facts(finished, CLASSES, shape).mean == facts.mean
    # A copy that is not complete would be read with the normalization of the data set.
    (finished / "data.json").unlink()
    with pytest.raises(UserError, match=r"data\.json is missing: it describes the data that"):
        run_files.read_facts(finished, CLASSES, shape)
    (finished / "classes.json").unlink()
    with pytest.raises(UserError, match=r"classes\.json is missing: it has the classes of the run"):
        run_files.read_classes(finished)


def lines_until(step):
    return b"".join(files.to_json(line) for line in LINES if line["step"] <= step)


def test_a_run_goes_on_with_the_lines_that_it_has_saved_and_no_others(tmp_path, monkeypatch):
    warned = []
    monkeypatch.setattr(logging, "warning", lambda *words: warned.append(words[0] % words[1:]))
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path, 0, None)
    for line in LINES[:2]:
        metrics.append(line)
    digest = metrics.digest()
    metrics.append(LINES[2])
    whole = path.read_bytes()
    # What came after the save may be anything.
    for end in (b"", whole[len(lines_until(10)) :], b"torn", b"null\n"):
        path.write_bytes(lines_until(10) + end)
        assert MetricsFile(path, 10, digest).digest() == digest
        assert path.read_bytes() == lines_until(10)
    damaged = [
        lines_until(10).replace(b"1.5", b"2.5"),
        lines_until(10).replace(b'"step": 10', b'"step": 90'),
        lines_until(5),
        lines_until(10)[:-3],
        b"",
    ]
    for content in damaged:
        path.write_bytes(content)
        message = (
            rf"{path} is not what the run wrote up to step 10: .*; delete it to continue without"
        )
        with pytest.raises(UserError, match=message):
            MetricsFile(path, 10, digest)
        assert path.read_bytes() == content
    assert warned == []
    path.unlink()
    MetricsFile(path, 10, digest).append(LINES[2])
    assert warned == [f"{path} is missing: the metrics of 10 steps are lost"]
    assert path.read_bytes() == files.to_json(LINES[2])
