"""`train.compare` with the room of studies, in a process of its own, on made-up runs."""

import csv
import json

import numpy as np
import pytest

from tests.parts.program.forked import start
from tests.parts.program.study.finished_runs import finish, write_outcomes
from train.study import folder, papers, plan

STUDY = """
select_by = "top_1_accuracy"
candidates = 2
tuning_seeds = [0]
seeds = [2, 3]
fields.num_epochs = 1

[[arms]]
name = "tuned"
config = "digits:focal"
space.loss.gamma.values = [1.0, 2.0]

[[arms]]
name = "linear"
config = "digits:cross_entropy"

[[contrasts]]
name = "of losses"
first = "tuned"
second = "linear"
metric = "top_1_accuracy"
primary = true
equivalence = 5
"""
LABELS = np.repeat(np.arange(10), 4)


def compare(*arguments):
    return start("train.compare", *map(str, arguments))


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_runs_are_compared_and_written(tmp_path, study):
    arms = {arm.name: arm for arm in plan.read(study).arms}
    for name, values in (("linear", (0.5, 0.75)), ("tuned", (0.25, 0.5))):
        for seed, value in enumerate(values):
            config = arms[name].run({}, seed).config
            finish(tmp_path / name, f"{seed}", config, test={"top_1_accuracy": value})
    given = f"--runs={tmp_path / 'linear'},{tmp_path / 'tuned'}", "--metrics=top_1_accuracy"
    file = f"--csv={tmp_path / 'out.csv'}"
    done = compare(*given, "--baseline=loss=cross_entropy", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "37.50 ± 158.83" in done.stdout
    assert "-25.00" in done.stdout
    lines = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [line["top_1_accuracy"] for line in lines] == ["0.5", "0.75", "0.25", "0.5"]
    (tmp_path / "tuned" / "1" / "results.json").unlink()
    done = compare(*given)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"left out: {tmp_path / 'tuned' / '1'} (not finished)" in done.stdout


def make_runs(study, runs, diverges=()):
    """Leaves what the runs of a study leave; some of them diverge."""
    while missing := folder.missing(plan.read(study), runs):
        for run in missing:
            if (run.config["loss"]["name"], run.seed) in diverges:
                (runs / run.name).mkdir(parents=True)
                (runs / run.name / "config.json").write_text(json.dumps(run.config))
                (runs / f"{run.name}.log").write_text("error: training diverged: at step 3\n")
                continue
            hits = {"focal": 0.75, "cross_entropy": 0.5}[run.config["loss"]["name"]]
            metrics = {"top_1_accuracy": hits + run.config["loss"]["gamma"] / 100}
            workdir = finish(runs, run.name, run.config, validation=metrics, test=metrics)
            ranks = np.random.default_rng(run.seed).uniform(size=len(LABELS)) > hits
            write_outcomes(workdir, LABELS, ranks=ranks)


def test_a_study_is_planned_and_then_contrasted(tmp_path, study):
    runs = tmp_path / "runs"
    planned = compare(f"--study={study}", f"--runs={runs}", "--plan")
    assert planned.stdout.count("python -m train.main --config=digits:") == 2 + 2
    assert not runs.exists()
    make_runs(study, runs)
    done = compare(f"--study={study}", f"--runs={runs}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tuned: loss.gamma=2.0 selected" in done.stdout
    (line,) = (line.split() for line in done.stdout.splitlines() if "of losses" in line)
    # One primary contrast: nothing to adjust for.
    assert line[:3] == ["of", "losses", "top-1"]
    assert line[6] == line[7]
    assert line[9] == "(±5)"
    # A study needs the same examples in all runs.
    for config in runs.glob("digits-focal-*/config.json"):
        write_outcomes(config.parent, LABELS[1:])
    done = compare(f"--study={study}", f"--runs={runs}")
    assert done.returncode == 2
    assert "need the same examples" in done.stderr


def test_what_diverged_is_told_and_counts_as_nothing(tmp_path, study):
    runs = tmp_path / "runs"
    make_runs(study, runs, diverges={("cross_entropy", 2), ("cross_entropy", 3)})
    done = compare(f"--study={study}", f"--runs={runs}", "--metrics=top_1_accuracy")
    assert (done.returncode, done.stderr) == (0, "")
    assert "linear: training diverged with seeds 2, 3" in done.stdout
    hits = [np.random.default_rng(seed).uniform(size=len(LABELS)) <= 0.75 for seed in (2, 3)]
    assert f"{100 * np.mean(hits):+.2f} ± " in done.stdout


def test_a_table_of_the_thesis_is_planned_and_shown_as_far_as_it_is(tmp_path):
    runs, given = tmp_path / "runs", ("--rows=cross_entropy", "--columns=p=0", "--seeds=0,1")
    planned = compare("--table=4.4", f"--runs={runs}", "--plan", "--override=num_epochs=1", *given)
    assert planned.stdout.count("--config=cifar100:cross_entropy") == 2
    assert planned.stdout.count("--config.num_epochs=1") == 2
    study = papers.find("4.4", rows=["cross_entropy"], columns=["p=0"], seeds=[0, 1]).study()
    first, _ = folder.missing(study, runs)
    finish(runs, first.name, first.config, test={"top_5_accuracy": 0.5})
    # What is there is shown, and nothing made.
    done = compare("--table=4.4", f"--runs={runs}", "--jobs=0", *given)
    assert (done.returncode, done.stderr) == (1, "")
    assert "(1 of 2 seeds)" in done.stdout
    assert done.stdout.splitlines()[-1] == "runs to go: 1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics=top_7_accuracy"], "no run has top_7_accuracy; config.eval.ks has [1, 3, 5]"),
        (["--csv={study}"], "--csv must not be the file of --study"),
        (["--runs={study}"], "--runs must be folders of runs; there is no folder"),
        (["--runs=a,b"], "--runs must be one folder with --study or --table"),
        (["--figure=field", "--out=f.png"], "--figure=field needs --over"),
        (
            ["--figure=field", "--out=f.png", "--over=los.gamma"],
            "--over must be a field of the runs",
        ),
    ],
)
def test_a_mistake_is_told_before_a_run_is_made(tmp_path, study, arguments, message):
    runs = tmp_path / "runs"
    given = [one.format(study=study) for one in arguments]
    done = compare(f"--study={study}", f"--runs={runs}", *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert message.format(study=study) in done.stderr
    assert not runs.exists()
