"""Runs are made in order, by workers whose runs take no time; signals reach them."""

import json
import os
import signal
import sys

import pytest

from tests.parts.program.study.finished_runs import finish
from train.foundation import files
from train.foundation.errors import Stopped, UserError
from train.study import folder, plan, worker

STUDY = """
select_by = "top_3_accuracy"
candidates = 3
tuning_seeds = [0]
seeds = [2]

[[arms]]
name = "focal"
config = "digits:focal"
space.loss.gamma.values = [0.5, 1.0, 2.0]

[[arms]]
name = "cross-entropy"
config = "digits:cross_entropy"
"""
TWO_RUNS = 'config = "digits:focal"\nseeds = [0, 1]\n'
SEARCHED = ["focal 0.5 0", "focal 1.0 0", "focal 2.0 0"]
FINALS = ["cross_entropy 1.0 2", "focal 2.0 2"]


class Folder:
    """A folder of runs, whose workers do what the test says."""

    def __init__(self, place):
        self.place, self.runs = place, place / "runs"
        self.does()
        os.mkfifo(place / "meeting")

    def does(self, **words):
        """Has runs do something else than finish; the name of a run has _ for a blank."""
        (self.place / "does.json").write_text(json.dumps(words))

    def study(self, text=STUDY):
        (self.place / "study.toml").write_text(text)
        return plan.read(self.place / "study.toml")

    def make(self, text=STUDY, jobs=1):
        """Returns the reasons of the runs that failed, and all runs in their order."""
        (self.place / "order").write_text("")
        failed = folder.make(self.study(text), self.runs, jobs)
        return [*failed.values()], (self.place / "order").read_text().splitlines()

    def missing(self, text=STUDY):
        return folder.missing(self.study(text), self.runs)

    def logs(self):
        return [log.read_text().splitlines() for log in sorted(self.runs.glob("*.log"))]


@pytest.fixture
def made(tmp_path, monkeypatch):
    module = "tests.parts.program.study.scripted"
    monkeypatch.setattr(worker, "COMMAND", (sys.executable, "-m", module))
    return Folder(tmp_path)


def test_runs_are_made_once_by_one_process_and_the_search_decides(made):
    failed, order = made.make()
    assert (failed, sorted(order)) == ([], sorted([*SEARCHED, *FINALS]))
    assert made.missing() == []
    # Each has its own log.
    (lines,) = {tuple(lines) for lines in made.logs()}
    assert len(lines) == 1
    assert made.make() == ([], [])
    # What was lost is made again, and nothing else.
    (final,) = (
        run
        for run in folder.finished([made.runs]).values()
        if run.fields["seed"] == 2 and run.fields["loss.name"] == "focal"
    )
    (final.workdir / "results.json").unlink()
    assert made.make() == ([], ["focal 2.0 2"])


def test_a_failed_run_does_not_stop_the_others_nor_share_their_process(made):
    made.does(**{"focal 0.5 0": "fails", "focal 1.0 0": "is killed"})
    failed, order = made.make()
    assert sorted(failed) == ["ended by signal 9, Killed", "error: no room"]
    # The last run of focal waits for all of the search.
    assert sorted(order) == sorted([*SEARCHED, FINALS[0]])
    assert len({lines[0] for lines in made.logs()}) == 3
    # A failed run is tried again.
    made.does()
    failed, order = made.make()
    assert (failed, sorted(order)) == ([], sorted([*SEARCHED[:2], FINALS[1]]))


def test_a_run_that_diverges_has_ended(made):
    made.does(**{"focal 2.0 0": "diverges"})
    failed, order = made.make()
    # The search selects without it, and it is not made again.
    assert failed == []
    assert "focal 1.0 2" in order
    ended = folder.ended(made.study(), made.runs)
    assert sorted(map(str, ended.values())) == ["0.5", "1.0", "1.0", "1.0", "None"]
    assert made.missing() == []


def test_finished_runs_are_found_under_any_name_each_once(made):
    first, second = made.missing(TWO_RUNS)
    finish(made.runs, "mine", first.config)
    (made.runs / second.name).mkdir()
    (made.runs / second.name / "config.json").write_text(json.dumps(second.config))
    (made.place / "link").symlink_to(made.runs / "mine")
    places = (made.runs, made.runs / "mine", made.place / "link", made.place / "nothing")
    found = folder.finished(places)
    assert [(key, run.workdir.name) for key, run in found.items()] == [(first.key, "mine")]
    assert made.missing(TWO_RUNS) == [second]
    (made.runs / "mine" / "results.json").write_text("{")
    with pytest.raises(UserError, match="is not the results of a run, or is damaged"):
        made.missing(TWO_RUNS)
    finish(made.runs, "mine", first.config)
    (made.runs / "mine" / "config.json").unlink()
    with pytest.raises(UserError, match=r"has results and no config\.json\): delete it"):
        made.missing(TWO_RUNS)


def test_a_second_command_on_the_folder_is_told_of_the_first(made):
    with (
        files.lock(made.runs, "a test"),
        pytest.raises(UserError, match=f"^another command that makes runs is using {made.runs};"),
    ):
        made.make()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_ends_all_runs(made, number, request):
    made.does(**{"focal 1.0 0": f"first {int(number)}", "focal 1.0 1": "second 0"})
    of_tests = signal.signal(number, signal.SIG_DFL)  # nohup, say, has it ignored
    request.addfinalizer(lambda: signal.signal(number, of_tests))
    with pytest.raises(Stopped, match="the same command continues") as raised:
        made.make(f"{TWO_RUNS}fields.loss.gamma = [1.0, 2.0]", jobs=2)
    assert raised.value.number == number
    # They had time to save, and no other was begun.
    assert [lines[1] for lines in made.logs()] == ["saved"] * 2
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_while_a_run_is_started_reaches_it(made, monkeypatch):
    made.does(**{"focal 1.0 0": "first 0", "focal 1.0 1": "second 0"})
    start = folder.Worker

    def stopped_meanwhile(log):
        os.kill(os.getpid(), signal.SIGTERM)
        return start(log)

    monkeypatch.setattr(folder, "Worker", stopped_meanwhile)
    with pytest.raises(Stopped):
        made.make(TWO_RUNS, jobs=2)


def test_no_run_is_left_behind_by_an_error(made, monkeypatch):
    made.does(**{"focal 1.0 0": "first 0", "focal 1.0 1": "second 0"})

    def fail_when_both_are_made(_):
        if sum(map(len, made.logs())) == 2:
            raise OSError("the disk is full")

    monkeypatch.setattr(folder.time, "sleep", fail_when_both_are_made)
    with pytest.raises(OSError, match="the disk is full"):
        made.make(TWO_RUNS, jobs=2)
    assert all("stopped by SIGTERM" in lines[-1] for lines in made.logs())
