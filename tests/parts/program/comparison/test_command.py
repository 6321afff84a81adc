"""`python -m train.compare` in a process of its own, on made-up runs and on a real sweep."""

import csv
import json

import pytest

from tests.parts.program.comparison import made_up_study
from tests.parts.program.comparison.compared import make
from tests.parts.program.forked import start

# A run that takes a few seconds.
SWEEP = """
config = "configs/digits.py:cross_entropy"
seeds = [0, 1]

[fields]
num_epochs = 1
optimizer.learning_rate = [0.05]
"""


def compare(*arguments, **options):
    return start("train.compare", *map(str, arguments), **options)


def test_runs_are_compared_and_written(tmp_path):
    make(tmp_path / "a", (0, 0.5), (1, 0.75))
    make(tmp_path / "b", (0, 0.25), (1, 0.5), loss="focal")
    files = {name: tmp_path / f"out.{name}" for name in ("csv", "json", "markdown")}
    done = compare(
        f"--runs={tmp_path / 'a'},{tmp_path / 'b'}",
        "--metrics=top_1_accuracy",
        "--baseline=loss=cross_entropy",
        *(f"--{name}={path}" for name, path in files.items()),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "-25.00 ± 0.00" in done.stdout
    assert json.loads(files["json"].read_text())["data_sets"][0]["groups"][1]["label"] == (
        "loss=focal"
    )
    lines = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [line["top_1_accuracy"] for line in lines] == ["0.625", "0.375"]
    assert "| focal | 2 | 37.50 ± 158.83 | -25.00 ± 0.00 |" in files["markdown"].read_text()


@pytest.fixture
def sweep_file(tmp_path):
    path = tmp_path / "my sweep.toml"
    path.write_text(SWEEP)
    return path


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--metrics=top_7_accuracy", "no run of the sweep has top_7_accuracy; config.eval.ks has"),
        ("--baseline=loss=focal", "--baseline: no run has 'loss=focal'; the groups are"),
    ],
)
def test_what_no_run_will_have_is_refused_before_one_is_made(
    tmp_path, sweep_file, argument, message
):
    done = compare(f"--sweep={sweep_file}", f"--runs={tmp_path / 'runs'}", argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_study_that_is_finished_is_printed_and_written(tmp_path):
    study, folder = made_up_study.read(tmp_path), tmp_path / "runs"
    planned = compare(f"--study={tmp_path / 'study.toml'}", f"--runs={folder}", "--plan")
    assert (planned.returncode, len(planned.stdout.splitlines())) == (0, 6 + 6 + 3)
    assert "about 10 more runs follow when these are finished" in planned.stderr
    assert not folder.exists()
    made_up_study.make(study, folder, lambda run: 0.5 if run.seed else 0.75)
    done = compare(
        f"--study={tmp_path / 'study.toml'}", f"--runs={folder}", f"--json={tmp_path / 'out.json'}"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "contrasts, in points" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["runs_to_go"] == 0


# Runs that take a few seconds each.
STUDY = """
select_by = "top_1_accuracy"
split = "test"
candidates = 2
finalists = 1
tuning_seeds = [0, 1]
seeds = [2, 3]
search_seed = 0

[fields]
num_epochs = 1

[[arms]]
name = "tuned"
config = "digits:cross_entropy"
[arms.space]
loss.gamma = {values = [1.0, 2.0]}

[[arms]]
name = "linear"
config = "digits:cross_entropy"
fields = {"optimizer.learning_rate" = 1e30}

[[contrasts]]
name = "contrast"
first = "tuned"
second = "linear"
metric = "macro_top_1_accuracy"
primary = true
"""
