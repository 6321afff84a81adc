"""Runs are made in order, by commands that take no time; signals reach them."""

import json
import os
import signal
import subprocess

import pytest

from tests.parts.program.series.made_up_arms import BASE, look
from train.foundation import files
from train.foundation.errors import Stopped, UserError
from train.series import child_processes, execution
from train.series.planned_runs import PlannedRun
from train.series.planner import Arm

# Its files are there whole or not at all, as those of a run: others are planned meanwhile.
LEAVES_RESULTS = """
import json, os, pathlib, sys
workdir, config = pathlib.Path(sys.argv[1]), sys.argv[2]
def write(name, text):
    (workdir / "part").write_text(text)
    os.replace(workdir / "part", workdir / name)
workdir.mkdir(parents=True, exist_ok=True)
write("config.json", config)
print("trained")
metrics = {"top_1_accuracy": 0.5, "top_3_accuracy": json.loads(config)["loss"].get("gamma", 0)}
results = {"config": json.loads(config), "num_classes": 10, "best_epoch": 1, "best_step": 1}
results |= {"validation": metrics, "test": metrics}
write("results.json", json.dumps(results))
"""
FAILS = "print('error: no room'); raise SystemExit(3)"
LEAVES_NOTHING = "print('done')"
IS_KILLED = "import os; print('epoch 2', flush=True); os.kill(os.getpid(), 9)"
DIVERGES = """
import pathlib, sys
workdir = pathlib.Path(sys.argv[1])
workdir.mkdir()
(workdir / "config.json").write_text(sys.argv[2])
print("error: training diverged: at step 3")
sys.exit(2)
"""
STOPS_ALL = """
import os, signal, sys
def stop(number, frame):
    print("saved")
    sys.exit(128 + number)
number = int(sys.argv[3])
signal.signal(number, stop)
os.kill(os.getppid(), number)
signal.pause()
"""

# Ends by itself, so that a lost signal does not hang the tests.
WAITS = ("sleep", "60")
POPEN = subprocess.Popen


@pytest.fixture
def made(monkeypatch):
    """The runs made in order, each by the script that `scripts` has for it or by the default."""
    order, scripts = [], {}

    def training(run, workdir):
        order.append((run.recipe.choice, run.config["loss"].get("gamma"), run.seed))
        script, *rest = scripts.get(order[-1], (LEAVES_RESULTS,))
        return ["-c", script, str(workdir), json.dumps(run.config), *rest]

    monkeypatch.setattr(PlannedRun, "training", training)
    return order, scripts


def test_a_second_command_on_the_folder_is_told_of_the_first(tmp_path, made):
    order, _ = made
    with (
        files.lock(tmp_path, "a test"),
        pytest.raises(UserError, match=f"^another command that makes runs is using {tmp_path};"),
    ):
        execution.execute(lambda: look(tmp_path))
    assert order == []
    assert list(tmp_path.iterdir()) == []


def test_runs_are_made_once_in_order_and_the_search_decides(tmp_path, made):
    order, _ = made
    result = execution.execute(lambda: look(tmp_path))
    assert not result.failed
    searched = [("focal", gamma, 0) for gamma in (0.5, 1.0, 2.0)]
    finals = [("cross_entropy", 1.0, 0), ("focal", 2.0, 2), ("cross_entropy", 1.0, 2)]
    assert order == searched + finals
    assert "trained" in (tmp_path / "digits-focal-gamma=2.0-seed=2.log").read_text()
    order.clear()
    assert not execution.execute(lambda: look(tmp_path)).ended
    assert order == []
    # What was lost is made again, and nothing else.
    (tmp_path / "digits-focal-gamma=2.0-seed=2" / "results.json").unlink()
    execution.execute(lambda: look(tmp_path))
    assert order == [("focal", 2.0, 2)]


def test_a_failed_run_does_not_stop_the_others(tmp_path, made):
    order, scripts = made
    scripts["focal", 0.5, 0] = (FAILS,)
    scripts["cross_entropy", 1.0, 0] = (IS_KILLED,)
    scripts["cross_entropy", 1.0, 2] = (LEAVES_NOTHING,)
    result = execution.execute(lambda: look(tmp_path))
    assert result.failed == {
        "digits-focal-gamma=0.5-seed=0": "error: no room",
        "digits-cross_entropy-seed=0": "ended by signal 9, Killed",
        "digits-cross_entropy-seed=2": "the command ended without an error, and without results",
    }
    # The other runs of focal wait for all of the search.
    assert ("focal", 2.0, 2) not in order
    order.clear()
    scripts.clear()
    assert not execution.execute(lambda: look(tmp_path)).failed
    # A failed run is tried again.
    others = [("cross_entropy", 1.0, 0), ("focal", 2.0, 2), ("cross_entropy", 1.0, 2)]
    assert order == [("focal", 0.5, 0), *others]


def test_a_run_that_diverges_is_not_made_again(tmp_path, made):
    order, scripts = made
    scripts["focal", 2.0, 0] = (DIVERGES,)
    result = execution.execute(lambda: look(tmp_path))
    assert list(result.failed) == ["digits-focal-gamma=2.0-seed=0"]
    # The search selects without it.
    assert order[-2] == ("focal", 1.0, 2)
    order.clear()
    execution.execute(lambda: look(tmp_path))
    assert order == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_ends_all(tmp_path, made, number):
    order, scripts = made
    scripts["focal", 1.0, 0] = (STOPS_ALL, str(int(number)))
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="the same command continues") as raised:
        execution.execute(lambda: look(tmp_path))
    assert raised.value.number == number
    assert order == [("focal", 0.5, 0), ("focal", 1.0, 0)]
    # It had time to save.
    assert (tmp_path / "digits-focal-seed=0.log").read_text() == "saved\n"
    assert signal.getsignal(number) is before


def test_a_signal_while_a_run_is_started_reaches_it(tmp_path, monkeypatch):
    number, started = signal.SIGTERM, []

    def interrupted(_command, **options):
        # A Python that is just starting can end by SIGINT with another code.
        started.append(POPEN(WAITS, **options))
        os.kill(os.getpid(), number)
        return started[0]

    monkeypatch.setattr(child_processes.subprocess, "Popen", interrupted)
    with pytest.raises(Stopped, match="the same command continues"):
        execution.execute(lambda: look(tmp_path))
    assert [process.returncode for process in started] == [-number]


# Ends by itself if the other process never comes, so that a mistake does not hang the tests.
MEETS = """
import os, signal, sys
signal.alarm(60)
os.close(os.open(sys.argv[3], os.O_WRONLY if sys.argv[4] == "first" else os.O_RDONLY))
"""
SAVES_AND_STOPS = """
import signal, sys
def stop(number, frame):
    print("saved")
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
"""
STOPS_BOTH = "os.kill(os.getppid(), signal.SIGTERM)\n"
WAITS_FOR_IT = "signal.pause()\n"


@pytest.fixture
def two_runs(tmp_path):
    """A function that makes two runs, and a folder in which their processes wait for each other."""
    os.mkfifo(tmp_path / "meeting")
    return lambda: look(tmp_path / "runs", [Arm(BASE)], (0, 1))


def test_several_runs_are_made_at_a_time(tmp_path, made, two_runs):
    order, scripts = made
    for seed, place in enumerate(("first", "second")):
        script = MEETS + LEAVES_RESULTS
        scripts["focal", 1.0, seed] = (script, str(tmp_path / "meeting"), place)
    result = execution.execute(two_runs, jobs=2)
    assert not result.failed
    assert sorted(order) == [("focal", 1.0, 0), ("focal", 1.0, 1)]
    assert execution.execute(two_runs, jobs=2).ended == set()


def test_a_signal_ends_all_runs_that_are_being_made(tmp_path, made, two_runs):
    _, scripts = made
    for seed, (place, then) in enumerate((("first", STOPS_BOTH), ("second", WAITS_FOR_IT))):
        script = SAVES_AND_STOPS + MEETS + then + WAITS_FOR_IT
        scripts["focal", 1.0, seed] = (script, str(tmp_path / "meeting"), place)
    with pytest.raises(Stopped, match="the same command continues"):
        execution.execute(two_runs, jobs=2)
    logs = sorted((tmp_path / "runs").glob("*.log"))
    assert [log.read_text() for log in logs] == ["saved\n"] * 2
