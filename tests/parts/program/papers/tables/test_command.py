"""`python -m train.tables` in a process of its own, on made-up runs and on a real one."""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.compilation import QUICK_FLAGS
from tests.parts.program import forked
from tests.parts.program.papers.finished_runs import finish, write_outcomes

ROOT = Path(__file__).parents[5]
# The command, called for every line of arguments that comes: a start of it takes three seconds.
SERVER = """
import contextlib, io, json, sys
from absl import flags
from train.foundation import command
from train.foundation.errors import exit_code
from train import tables as program
# What makes a run fails here, and takes no time.
sys.executable = "false"
for line in sys.stdin:
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["train.tables", *json.loads(line)]
    streams = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = exit_code(lambda: command.start(program.main, sys.argv))
    print(json.dumps([code, *(stream.getvalue() for stream in streams)]), flush=True)
"""
ENVIRONMENT = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": QUICK_FLAGS,
    "FORCE_COLOR": "1",
}


@pytest.fixture(scope="module")
def tables():
    """Calls the command, and returns its exit code and what it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def call(*arguments):
            process.stdin.write(json.dumps(list(map(str, arguments))) + "\n")
            process.stdin.flush()
            code, out, err = json.loads(process.stdout.readline())
            return SimpleNamespace(returncode=code, stdout=out, stderr=err)

        yield call


def config_and_workdir(command):
    """The configuration and the workdir of a planned command, made without its parser."""
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "train.main"]
    values = dict(word.removeprefix("--").split("=", 1) for word in words[3:])
    recipe, loss = values.pop("config").split(":")
    workdir = Path(values.pop("workdir"))
    module = importlib.import_module(f"configs.{recipe}")
    config = module.get_config(loss)
    for name, text in values.items():
        field = name.removeprefix("config.")
        kept = text if field == "select_by" else ast.literal_eval(text)
        config.update_from_flattened_dict({field: kept})
    return json.loads(config.to_json()), workdir


def planned(tables, *arguments):
    """The planned commands as (configuration, workdir)."""
    done = tables(*arguments, "--plan")
    assert done.returncode == 0, done.stderr
    return [config_and_workdir(line) for line in done.stdout.splitlines()]


def table_lines(printed):
    """The printed lines, without what is blank."""
    return [line.rstrip() for line in printed.splitlines() if line.strip()]


# Plans


@pytest.mark.parametrize("number", ["4.3", "4.5", "5.2"])
def test_no_run_is_planned_twice(tables, number):
    runs = planned(tables, f"--table={number}")
    assert len({json.dumps(config, sort_keys=True) for config, _ in runs}) == len(runs)
    assert len({workdir for _, workdir in runs}) == len(runs)


def test_the_grid_is_planned_first_and_then_what_it_selects(tables, tmp_path):
    arguments = (
        "--table=4.5",
        "--on=synthetic_species",
        f"--runs={tmp_path}",
        "--rows=focal",
        "--columns=K=3",
        "--seeds=0,1",
    )
    done = tables(*arguments, "--plan")
    assert "about 2 more runs follow" in done.stderr
    runs = planned(tables, *arguments)
    assert [config["loss"]["gamma"] for config, _ in runs] == [0.5, 1.0, 2.0, 5.0]
    assert {config["select_by"] for config, _ in runs} == {"macro_top_5_accuracy"}
    printed = tables(*arguments).stdout
    assert "to be tuned" in printed
    assert "6 runs to go" in printed
    for score, (config, workdir) in zip((0.5, 0.6, 0.8, 0.7), runs, strict=True):
        finish(tmp_path, workdir.name, config, validation={"macro_top_5_accuracy": score})
    runs = planned(tables, *arguments)
    assert [config["loss"]["gamma"] for config, _ in runs[4:]] == [2.0, 2.0]
    assert [config["select_by"] for config, _ in runs[4:]] == ["macro_top_3_accuracy"] * 2
    lines = table_lines(tables(*arguments).stdout)
    assert [re.split(r"\s{2,}", line.strip()) for line in lines if "gamma = " in line] == [
        ["gamma = 0.5", "50.00"],
        ["gamma = 1.0", "60.00"],
        ["gamma = 2.0", "80.00", "selected"],
        ["gamma = 5.0", "70.00"],
    ]
    assert "2 runs to go" in lines[-1]


# Collections


def test_ours_stand_above_the_published(tables, tmp_path):
    runs = planned(tables, "--table=4.4", "--seeds=0,1,2")
    # Half an interval is 4.3027 · 0.1 / √3 = 0.25 per cent if the values are 0.1 apart.
    of_row = {"cross_entropy": 0.942, "smooth_top_k_hinge": 0.95, "noised_balanced": 0.5}
    for config, workdir in runs:
        if config["dataset"]["label_noise"] == 0:
            value = of_row[config["loss"]["name"]] + 0.001 * (config["seed"] - 1)
            finish(tmp_path, workdir.name, config, test={"top_5_accuracy": value})
    numbers = tmp_path / "numbers.json"
    done = tables("--table=4.4", f"--runs={tmp_path}", "--seeds=0,1,2", f"--json={numbers}")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = table_lines(done.stdout)
    assert max(map(len, lines)) <= 100
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert ["cross-entropy", "94.20 ± 0.25", *["3 runs to go"] * 4] in rows
    assert ["smooth top-K hinge", "95.00 ± 0.25 ▲", *["3 runs to go"] * 4] in rows
    assert ["noised balanced", "50.00 ± 0.25 ▼", *["3 runs to go"] * 4] in rows
    assert rows[rows.index(["p = 0", "p = 0.1", "p = 0.2", "p = 0.3", "p = 0.4"]) + 3] == [
        "published", "94.2 ± 0.1", "90.3 ± 0.2", "87.6 ± 0.1", "85.7 ± 0.4", "83.6 ± 0.2",
    ]  # fmt: skip
    assert "2 of 3" in done.stdout
    assert "Each run: its epoch with the best top-5 accuracy on validation." in lines
    assert lines[-1] == "36 runs to go; --run makes them, --plan prints how"
    cells = {
        (cell["row"], cell["column"]): cell for cell in json.loads(numbers.read_text())["cells"]
    }
    assert len(cells) == 15
    cell = cells["smooth_top_k_hinge", "p=0"]
    # Rounding of float64.
    assert cell["values"] == pytest.approx({"0": 94.9, "1": 95.0, "2": 95.1}, rel=1e-12)
    assert cell["mean"] == pytest.approx(95.0, rel=1e-12)
    # A quantile from a table of four decimals.
    assert cell["half_width"] == pytest.approx(0.2484, abs=1e-4)
    assert cell["published"] == {"value": 93.3, "half_width": 0.0, "shots": []}
    assert cell["differs"] == "above"
    assert cells["smooth_top_k_hinge", "p=0.1"]["mean"] is None
    assert cells["smooth_top_k_hinge", "p=0.1"]["runs_to_go"] == 3
    # The same runs serve the table of the top-1 accuracy, but do not have its metric.
    done = tables("--table=4.7", f"--runs={tmp_path}", "--seeds=0,1,2")
    assert done.returncode == 2
    assert "have no top_1_accuracy on test" in done.stderr


def shots(rule, *values):
    return {
        f"{shot}_{rule}": value
        for shot, value in zip(("few", "medium", "many"), values, strict=True)
    }


def test_shots_and_the_best_possible_stand_below(tables, tmp_path):
    arguments = ("--table=5.2", "--on=synthetic_species", "--rows=average_k", "--columns=K=5")
    rule = "average_5_accuracy"
    for config, workdir in planned(tables, *arguments, "--seeds=0"):
        finish(
            tmp_path,
            workdir.name,
            config,
            test={rule: 0.9, **shots(rule, 0.1, 0.2, 0.3)},
            bayes={rule: 0.95, **shots(rule, 0.5, None, 0.7)},
        )
    lines = table_lines(tables(*arguments, f"--runs={tmp_path}", "--seeds=0,1").stdout)
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert rows[3:7] == [
        ["average-K", "90.00 (one seed)"],
        ["few/medium/many", "(10.0/20.0/30.0)"],
        ["best possible", "95.00"],
        ["(50.0/-/70.0)"],
    ]
    assert "1 run to go" in lines[-1]


def test_accuracies_by_training_images_are_read(tables, tmp_path):
    arguments = ("--table=3.1", "--rows=resnet18,resnet50")
    (_, (config, workdir)) = planned_training(tables, *arguments)
    written = finish(tmp_path, workdir.name, config)
    # Ten images of a class in each bin, of which one, two, … are right; the last bin has no class.
    counts = [0, 10, 11, 50, 500, 501]
    classes = [{"name": f"c{i}", "training_images": count} for i, count in enumerate(counts)]
    (written / "classes.json").write_text(json.dumps(classes))
    right = [1, 1, 2, 2, 3, 4]
    ranks = [int(place >= one) for one in right for place in range(10)]
    write_outcomes(written, np.repeat(np.arange(6), 10), ranks=ranks)
    lines = table_lines(tables(*arguments, f"--runs={tmp_path}").stdout)
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert rows[1] == ["0-10", "10-50", "50-500", "500-2,000", "> 2,000"]
    assert rows[3:6] == [
        ["resnet18", *["1 run to go"] * 5],
        ["resnet50", "10.00", "20.00", "30.00", "40.00", "-"],
        ["published", "9", "35", "59", "79", "93"],
    ]
    (written / "outcomes_test.npz").unlink()
    done = tables(*arguments, f"--runs={tmp_path}")
    assert done.returncode == 2
    assert "outcomes_test.npz" in done.stderr


def planned_training(tables, *arguments):
    lines = tables(*arguments, "--plan").stdout.splitlines()
    return [config_and_workdir(line) for line in lines if " train.main " in line]


def test_a_run_with_another_parameter_is_named_and_not_taken(tables, tmp_path):
    arguments = ("--table=4.9", "--rows=cross_entropy", "--columns=K=5", "--seeds=0")
    ((config, workdir),) = planned(tables, *arguments)
    finish(tmp_path, workdir.name, {**config, "num_epochs": 7}, test={"top_5_accuracy": 0.5})
    printed = tables(*arguments, f"--runs={tmp_path}").stdout
    assert "50.00" not in printed
    assert f"configuration differs: {tmp_path / workdir.name} (num_epochs: 120 -> 7)" in printed
    # With the changed value it is that run, and the program reports it.
    printed = tables(*arguments, f"--runs={tmp_path}", "--override=num_epochs=7").stdout
    assert "50.00" in printed
    assert "all runs have num_epochs=7" in printed


# Refusals


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("--rows=cross_entropi", "--rows"),
        ("--plan --runs=README.md", "--runs"),
        ("--plan --override=num_epochs=0", "config.num_epochs"),
        ("--plan --override=seed=1", "--seeds"),
        ("--plan --override=dataset.label_noise=0.5", "dataset.label_noise"),
        (
            "--runs=tests --override=model.pretrained=README.md --json=README.md",
            "config.model.pretrained",
        ),
    ],
)
def test_what_is_not_of_the_table_is_refused(tables, arguments, name):
    done = tables("--table=4.4", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert name in done.stderr


def test_the_numbers_do_not_replace_a_file_of_a_run(tables, tmp_path):
    ((config, workdir),) = planned_training(tables, "--table=3.1", "--rows=resnet50")
    finish(tmp_path, workdir.name, config)
    results = tmp_path / workdir.name / "results.json"
    before = results.read_bytes()
    done = tables("--table=3.1", f"--runs={tmp_path}", f"--json={results}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --json must not be a file of a run; got ")
    assert results.read_bytes() == before


# In processes as a user starts them


RUN = ("--table=4.4", "--on=digits", "--rows=cross_entropy", "--seeds=0", "--run")


def test_failed_runs_are_told_at_the_end(tables, tmp_path):
    done = tables(*RUN, "--seeds=0,1", f"--runs={tmp_path / 'runs'}")
    assert (done.returncode, done.stderr) == (1, "")
    assert "run 2 of 2: digits-cross_entropy-seed=1\n" in done.stdout
    assert "2 runs to go" in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "2 failed:",
        "  digits-cross_entropy-seed=0: exit code 1",
        "  digits-cross_entropy-seed=1: exit code 1",
    ]


def test_a_real_run_is_made_and_collected(tmp_path):
    folder = tmp_path / "runs"
    done = forked.start("train.tables", *RUN, f"--runs={folder}", "--override=num_epochs=1")
    assert done.returncode == 0, done.stderr
    assert "run 1 of 1: digits-cross_entropy-num_epochs=1-seed=0\n" in done.stdout
    run = folder / "digits-cross_entropy-num_epochs=1-seed=0"
    results = json.loads((run / "results.json").read_text())
    assert f"{100 * results['test']['top_3_accuracy']:.2f}" in done.stdout
    assert "epoch 1/1" in (folder / "digits-cross_entropy-num_epochs=1-seed=0.log").read_text()
