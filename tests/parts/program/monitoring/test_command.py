"""The command `train.monitor`: its exit codes, how it goes on, and what it refuses."""

import fcntl
import json
import random
import subprocess
import sys

import numpy as np
import pytest

from tests.parts.program.forked import ROOT, start
from tests.parts.program.monitoring import made


@pytest.fixture
def monitor(finished_run, tmp_path):
    def run(lines, *arguments, code=0, **options):
        path = made.write(tmp_path / "outcomes.jsonl", lines)
        given = (f"--workdir={finished_run}", f"--outcomes={path}")
        state = f"--state={tmp_path}/state.json"
        done = start("train.monitor", *given, state, *arguments, **options)
        assert done.returncode == code, done.stderr
        return done

    return run


def test_it_goes_on_and_ends_with_the_code_of_an_alarm(monitor, tmp_path, rng):
    good, bad = rng.random(400) < 0.1, rng.random(200) < 0.6
    lines = made.lines(np.concatenate([good, bad]))
    first = monitor(lines[:400], f"--figure={tmp_path}/figure.svg")
    assert first.stdout.startswith("400 outcomes")
    assert (tmp_path / "figure.svg").read_text().count("promised") == 1
    kept = (tmp_path / "state.json").read_bytes()
    # Nothing new.
    again = monitor(lines[:400])
    assert again.stdout == first.stdout[: len(again.stdout)]
    assert (tmp_path / "state.json").read_bytes() == kept
    second = monitor(lines, code=3)
    assert second.stdout.startswith("600 outcomes")
    assert "\nthe promise is broken: noticed at outcome 4" in second.stdout
    # Following a file ends at the alarm.
    assert monitor(lines, "--follow", code=3).stdout == second.stdout


def test_scores_that_change_have_a_code_of_their_own(monitor, rng):
    probabilities = np.where(np.arange(900) < 500, 0.9, 0.4) - 0.1 * rng.random(900)
    done = monitor(made.lines(np.zeros(900), probabilities=probabilities), code=4)
    assert "\nthe scores of the labels changed: noticed at outcome 5" in done.stdout
    assert "no alarm that the promise is broken" in done.stdout


def test_new_lines_may_come_on_standard_input(finished_run, tmp_path):
    lines = "".join(f"{line}\n" for line in made.lines([0, 1, 0]))
    for number in (3, 6):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "train.monitor", f"--workdir={finished_run}"),
                *("--outcomes=-", f"--state={tmp_path}/state.json"),
            ],
            input=lines,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(f"{number} outcomes")
    assert json.loads((tmp_path / "state.json").read_bytes())["bytes"] == 0


def test_what_is_not_of_the_state_is_refused_and_changes_nothing(monitor, tmp_path):
    lines = made.lines([0, 1, 0])
    state = tmp_path / "state.json"
    monitor([lines[0].replace('"label"', '"found"')], code=2)
    assert not state.exists()
    monitor(lines)
    kept = state.read_bytes()
    of_another_run = json.loads(kept)
    of_another_run["of"]["run"] = "0"
    mistakes = [
        (kept, made.lines([0, 1, 0, 1], rule="coverage=0.8"), ()),
        (kept, [], ()),
        (kept, lines, ("--delta=0.05",)),
        (kept, [*lines, *made.lines([0], on=50)], ()),
        (json.dumps(of_another_run).encode(), lines, ()),
        (kept[:100], lines, ()),
    ]
    for before, given, arguments in mistakes:
        state.write_bytes(before)
        assert monitor(given, *arguments, code=2).stderr.count("\n") == 1
        assert state.read_bytes() == before
    # Two monitors at once.
    with (tmp_path / ".state.json.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another monitor is using" in monitor(lines, code=2).stderr


def test_the_example_of_the_page_prints_what_the_page_has(finished_run, tmp_path):
    rng, lines = random.Random(0), []
    for number in range(1000):
        missed = rng.random() < (0.1 if number < 600 else 0.3)
        label, other = str(number % 10), str((number + 1) % 10)
        members = [{"class": other if missed else label, "probability": 0.8}]
        on = {"examples": 270, "groups": 270}
        line = {"set": members, "rule": "coverage=0.9", "calibrated_on": on, "label": label}
        lines.append(json.dumps(line) + "\n")
    (tmp_path / "outcomes.jsonl").write_text("".join(lines))
    done = start(
        *("train.monitor", f"--workdir={finished_run}", "--outcomes=outcomes.jsonl"),
        "--state=state.json",
        folder=str(tmp_path),
    )
    assert done.returncode == 3, done.stderr
    page = (ROOT / "docs" / "after_training.md").read_text()
    output = page.partition(" prints\n\n")[2].partition("\n\n")[0]
    assert done.stdout.splitlines() == [line.removeprefix("    ") for line in output.splitlines()]
