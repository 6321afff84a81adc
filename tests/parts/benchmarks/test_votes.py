"""The benchmark of votes measures sets of a law that is known."""

import json
import sys
import types

import numpy as np
import pytest

from benchmarks import votes
from train.data.truths import VOTES, Truths


def a_run(truths_of, num_names=400, num_classes=6):
    """What `trained.load` returns, with right probabilities of names that have two classes each."""
    rng = np.random.default_rng(0)

    def predict(split):
        first, second = rng.permuted(np.tile(np.arange(num_classes), (num_names, 1)), axis=1).T[:2]
        part = rng.uniform(0.55, 0.95, num_names)
        # A tenth of the names has one class alone, and does not count.
        part[: num_names // 10] = 1
        shares = np.stack([part, 1 - part], axis=1).astype(np.float32)
        classes = np.stack([first, second], axis=1).astype(np.int32)
        scores = np.full((num_names, num_classes), 0.01)
        np.put_along_axis(scores, classes, shares, axis=1)
        scores = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
        return types.SimpleNamespace(scores=scores, truths=truths_of(classes, shares))

    return types.SimpleNamespace(predict=predict)


def test_the_command_measures_what_each_calibration_covers(tmp_path, monkeypatch):
    run = a_run(lambda classes, shares: Truths(classes, shares, VOTES))
    monkeypatch.setattr(votes.trained, "load", lambda workdir: run)
    output = tmp_path / "results.json"
    arguments = [str(tmp_path), "--repetitions=20", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["votes", *arguments])
    votes.main()
    results = json.loads(output.read_text())
    assert results["names"] == 2 * 360
    found = results["calibrated_on"]
    for kind in ("one_draw", "five_draws", "shares"):
        # 20 halves have the mean of all 720 names; one draw of each deviates by 0.3 / sqrt(360).
        assert abs(found[kind]["share"] - 0.9) < 0.03
    # The more of the truth is calibrated on, the less the share differs between the halves.
    assert found["shares"]["deviation"] < found["one_draw"]["deviation"]
    # The most common class is 0.75 of the truth, and its sets have nothing else.
    assert found["most_common"]["share"] < 0.85
    assert votes.tables(results).count("\n| ") == 1 + len(found)


def test_a_run_without_votes_is_refused(monkeypatch):
    monkeypatch.setattr(votes.trained, "load", lambda workdir: a_run(lambda *truth: None))
    with pytest.raises(SystemExit, match=r"must be a run with config\.dataset\.labels=votes"):
        votes._scores_and_votes("somewhere")
