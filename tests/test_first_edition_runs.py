"""The runs of the first edition of the evidence: which they are, and how they are collected."""

import importlib
import json
from pathlib import Path

import pytest

from tests.train.papers.finished_runs import finish
from train.foundation.errors import UserError
from train.papers.tables import collecting, outputs
from train.series.execution import Execution
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"


@pytest.fixture
def first_edition_runs(monkeypatch, tmp_path):
    """The module, with folders of the test."""
    monkeypatch.syspath_prepend(EVIDENCE)
    module = importlib.import_module("first_edition_runs")
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "NUMBERS", tmp_path)
    return module


def planner(table, folder):
    return Planner(RunsFolder(folder), (cell.arm for cell in table.cells.values()), table.seeds)


def described(plain):
    """What the JSON of a table has without its numbers."""
    cells = [
        {name: cell[name] for name in ("row", "column", "config", "overrides", "metric")}
        for cell in plain["cells"]
    ]
    kept = ("table", "on", "title", "unit", "interval", "seeds", "changed_in_all_runs")
    return {name: plain[name] for name in kept} | {"cells": cells}


def test_the_runs_are_those_of_the_numbers(first_edition_runs, tmp_path):
    for table in first_edition_runs.TABLES:
        ours = outputs.to_plain(collecting.collect(table, planner(table, tmp_path)))
        kept = json.loads((EVIDENCE / f"{table.number}.json").read_text())
        assert described(json.loads(json.dumps(ours))) == described(kept)


def test_the_numbers_of_finished_runs_are_written(first_edition_runs, tmp_path):
    table = first_edition_runs.TABLES[1].part(None, ["epsilon=0.1"])
    # The mean of the first epoch weighs its steps alike, and has only the training split.
    lines = [
        {"step": 10, "epoch": 1, "split": "train", "nonzero_gradients": 2.0},
        {"step": 15, "epoch": 1, "split": "train", "nonzero_gradients": 5.0},
        {"step": 15, "epoch": 1, "split": "validation", "nonzero_gradients": 7.0},
        {"step": 25, "epoch": 2, "split": "train", "nonzero_gradients": 9.0},
    ]
    for run in planner(table, tmp_path / "runs").runs:
        finish(tmp_path / "runs", run.name, run.config)
        path = tmp_path / "runs" / run.name / "metrics.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    first_edition_runs.make(table)
    (cell,) = json.loads((tmp_path / "E8.json").read_text())["cells"]
    assert cell["values"] == dict.fromkeys("01234", 3.0)
    path.unlink()
    with pytest.raises(UserError, match=r"there is no .*metrics\.jsonl"):
        first_edition_runs.make(table)


def test_without_a_run_no_numbers_are_written(first_edition_runs, tmp_path, monkeypatch, capsys):
    failed = Execution(failed={"a run": "exit code 1"})
    monkeypatch.setattr(first_edition_runs, "execute", lambda _look: failed)
    with pytest.raises(SystemExit) as end:
        first_edition_runs.make(first_edition_runs.TABLES[0])
    assert end.value.code == 1
    assert "a run: exit code 1" in capsys.readouterr().out
    assert not (tmp_path / "E7.json").exists()
