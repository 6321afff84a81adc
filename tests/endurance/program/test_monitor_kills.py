"""A monitor that is killed at any moment goes on where it was."""

import json

import pytest

from tests.parts.program.forked import Started, start
from tests.parts.program.monitoring import made

# For the sake of the run that they need.


@pytest.fixture
def arguments(finished_run, tmp_path, rng):
    """Those of a monitor whose outcomes are read in several parts."""
    made.write(tmp_path / "outcomes.jsonl", made.lines(rng.random(30_000) < 0.1))
    return [f"--workdir={finished_run}", f"--outcomes={tmp_path}/outcomes.jsonl"]


def test_kills_at_any_moment_change_nothing(arguments, tmp_path, rng):
    whole = start("train.monitor", *arguments, f"--state={tmp_path}/whole.json")
    state, ended, counted = tmp_path / "state.json", None, {0}
    while ended is None:
        running = Started("train.monitor", *arguments, f"--state={state}")
        before = state.stat().st_mtime_ns if state.exists() else None
        # Each start keeps a part of the outcomes, and is killed at some moment after that.
        while not running.ends_within(0.0005):
            if state.exists() and state.stat().st_mtime_ns != before:
                break
        # What has nothing more to count may end.
        is_done = state.exists() and json.loads(state.read_bytes())["bytes"] in counted
        if not running.ends_within(0.05 * rng.random()) and not is_done:
            running.kill()
            assert running.end().returncode < 0
            counted.add(json.loads(state.read_bytes())["bytes"])
        else:
            ended = running.end()
    assert len(counted) >= 3
    assert (ended.stdout, ended.stderr) == (whole.stdout, "")
    assert state.read_bytes() == (tmp_path / "whole.json").read_bytes()
    # Kills leave no other files than the state's: the lock, and a file that was not renamed yet.
    names = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert len(names) <= 2, names
