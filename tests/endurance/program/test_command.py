"""Rows of the same name in tests/parts that take long."""

import json

import pytest

from tests.parts.program.comparison.compared import make
from tests.parts.program.comparison.test_command import (
    STUDY,
    SWEEP,
    compare,
    sweep_file,  # noqa: F401 (a fixture)
)
from tests.parts.program.papers.finished_runs import finish
from train.comparison import sweep
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder


def test_a_study_is_made_and_contrasted(tmp_path):
    file, folder = tmp_path / "study.toml", tmp_path / "runs"
    file.write_text(STUDY)
    done = compare(
        f"--study={file}",
        f"--runs={folder}",
        "--jobs=2",
        f"--json={tmp_path / 'out.json'}",
    )
    # What diverged is an answer, not a failure.
    assert (done.returncode, done.stderr) == (0, "")
    assert "linear: training diverged with seeds 2, 3, which count as 0 %" in done.stdout
    plain = json.loads((tmp_path / "out.json").read_text())
    (contrast,) = plain["contrasts"]
    values = [run["metrics"]["macro_top_1_accuracy"] for run in plain["arms"][0]["runs"]]
    assert contrast["numbers"]["estimate"] == pytest.approx(sum(values) / 2)


def test_a_sweep_is_made_and_compared_and_what_failed_is_named(tmp_path, sweep_file):  # noqa: F811
    folder = tmp_path / "runs"
    sweep_file.write_text(SWEEP.replace("[0, 1]", "[0, 1, 2]"))
    planned = sweep.read(sweep_file)
    earlier, made, failed = Planner(RunsFolder(folder), planned.arms, planned.seeds).runs
    # Made before, and not made again: training would have other results.
    finish(folder, "earlier", earlier.config, test={"top_1_accuracy": 0.125})
    # Another run has its folder; it does not belong to the sweep.
    make(folder, (5, 0.5))
    (folder / "run-5").rename(folder / failed.name)
    done = compare(
        f"--sweep={sweep_file}",
        f"--runs={folder}",
        "--jobs=2",
        "--metrics=top_1_accuracy",
    )
    assert (done.returncode, done.stderr) == (1, "")
    results = json.loads((folder / made.name / "results.json").read_text())
    assert results["config"] == made.config
    mean = 50 * (0.125 + results["test"]["top_1_accuracy"])
    (row,) = (line.split() for line in done.stdout.splitlines() if " cross_entropy " in line)
    assert row[:3] == ["cross_entropy", "2", f"{mean:.2f}"]
    lines = done.stdout.splitlines()
    assert f"left out: {folder / failed.name} (not started)" in lines
    assert lines[-2] == "1 failed:"
    assert lines[-1].startswith(f"  {failed.name}: error: --workdir {folder / failed.name} holds a")
