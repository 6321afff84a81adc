"""A changed letter in any file of a run ends a command in one line, and is never believed."""

import json
import random
import shutil

import pytest
from absl import logging

from tests.parts.program.workdir.test_damaged_run import CONTENTS, READERS
from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.papers.figures import tested
from train.prediction.calibration import Calibration
from train.workdir import run_files
from train.workdir.classes import Classes
from train.workdir.facts import Facts
from train.workdir.metrics_file import MetricsFile

SEALED = sorted(set(CONTENTS) - {"classes.json"})
CLASSES = Classes(("daisy", "dandelion"), (3, 200))
RESULTS = {"test": {"loss": 0.5, "top_1_accuracy": 0.75}}
LINES = [{"step": 5 * i, "epoch": 1, "split": "train", "loss": 1.5 / i} for i in (1, 2, 3)]


def changed(content, draw):
    """A file in which one letter is another; a digit is another digit half of the time."""
    place = draw.randrange(len(content))
    digits = [index for index, byte in enumerate(content) if chr(byte).isdigit()]
    letter = draw.randrange(256)
    if draw.random() < 0.5:
        place, letter = draw.choice(digits), draw.choice(b"0123456789")
    return content[:place] + bytes([letter]) + content[place + 1 :]


@pytest.mark.parametrize("name", SEALED)
def test_any_letter_that_changed_is_told_or_changes_nothing(tmp_path, name):
    path, draw = tmp_path / name, random.Random(name)
    whole = json_files.sealed(CONTENTS[name], indent=1)
    path.write_bytes(whole)
    expected = as_plain(READERS[name](tmp_path))
    told = []
    for _ in range(150):
        path.write_bytes(changed(whole, draw))
        try:
            found = READERS[name](tmp_path)
        except UserError as error:
            told.append(str(error))
        else:
            # Between the entries, or in the name of the checksum, which is an unknown entry then.
            known = as_plain(found)
            for key in set(known) - set(expected):
                del known[key]
            assert known == expected
    assert len(told) > 100
    for message in told:
        assert message.startswith(f"{path} is not ")
        assert message.isprintable()
    # The text may be formatted differently, and a file that a user changes on purpose is unsealed.
    value = json.loads(whole)
    path.write_text(json.dumps(value))
    assert as_plain(READERS[name](tmp_path)) == expected
    del value["sha256"]
    path.write_text(json.dumps(value))
    assert as_plain(READERS[name](tmp_path)) == expected


def as_plain(found):
    return found if isinstance(found, dict) else found.to_plain()


def test_the_message_says_what_to_do_after_a_change_on_purpose(tmp_path):
    path = tmp_path / "config.json"
    whole = json_files.sealed(CONTENTS["config.json"], indent=2)
    path.write_bytes(whole.replace(b'"seed": 1', b'"seed": 2'))
    message = (
        r"config\.json is not the configuration of a run as it was written: it was changed or "
        r"damaged since; if you changed it on purpose, remove its line sha256$"
    )
    with pytest.raises(json_files.ChangedError, match=message):
        run_files.read_config(tmp_path)


@pytest.fixture
def finished(tmp_path):
    """A finished run, with only the files that contain no checksum."""
    (tmp_path / "classes.json").write_bytes(files.to_json(CLASSES.to_plain(), indent=1))
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 0, None)
    for line in LINES:
        metrics.append(line)
    run_files.write_results(tmp_path, RESULTS, {"metrics.jsonl": metrics.digest()})
    return tmp_path


READ = {"classes.json": run_files.read_classes, "metrics.jsonl": run_files.read_metrics}


@pytest.mark.parametrize("name", READ)
def test_files_without_a_checksum_in_them_have_a_digest_in_the_results(finished, name):
    path, draw = finished / name, random.Random(name)
    whole = path.read_bytes()
    assert run_files.read_results(finished) == RESULTS
    expected = READ[name](finished)
    for content in [whole[:-1], whole[: len(whole) // 2], *(changed(whole, draw) for _ in "1234")]:
        path.write_bytes(content)
        if content != whole:
            with pytest.raises(UserError, match=rf"{path} is not ") as raised:
                READ[name](finished)
            assert "\n" not in str(raised.value)
    path.write_bytes(whole)
    assert READ[name](finished) == expected
    # A run of an earlier version.
    (finished / "results.json").write_text(json.dumps(RESULTS))
    path.write_bytes(whole.replace(b"0", b"1"))
    assert READ[name](finished) != expected


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


def test_changed_thresholds_are_told(tmp_path):
    class NoClassifier:
        workdir = tmp_path

    path = tmp_path / "calibration.json"
    path.write_bytes(json_files.sealed({"average_2.0": 0.125}, indent=1))
    assert Calibration(NoClassifier()).average_k(2) == 0.125
    path.write_bytes(path.read_bytes().replace(b"0.125", b"0.126"))
    with pytest.raises(UserError, match=r"calibration\.json is not thresholds .*; delete it$"):
        Calibration(NoClassifier()).average_k(2)


def test_a_changed_evaluation_is_not_taken_for_another_file(tmp_path):
    config = {"model": {"name": "mlp"}, "dataset": {"name": "digits"}, "loss": {"name": "focal"}}
    report = {"split": "test", "config": config, "metrics": {"loss": 0.5}}
    path = tmp_path / "mlp.json"
    path.write_bytes(json_files.sealed(report, indent=1))
    (tmp_path / "other.json").write_text("[]")
    assert [one.metrics for one in tested.find(str(tmp_path))] == [{"loss": 0.5}]
    shutil.copy(path, tmp_path / "again.json")
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6"))
    with pytest.raises(UserError, match=r"mlp\.json is not an evaluation as it was written"):
        tested.find(str(tmp_path))
