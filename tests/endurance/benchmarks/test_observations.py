"""Rows of the same name in tests/parts that take long."""

import json
import sys

import numpy as np

from benchmarks import observations


def test_the_command_measures_every_way(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=600)
    logits = rng.normal(size=(600, 5)) + 2 * np.eye(5)[labels]
    scores = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.savez(tmp_path / "scores.npz", scores=scores.astype(np.float32), labels=labels)
    output = tmp_path / "results.json"
    arguments = [f"known={tmp_path}/scores.npz", "--repetitions=4", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["observations", *arguments])
    observations.main()
    results = json.loads(output.read_text())
    found = results["data"]["known"]["any"]
    # 108 observations: a deviation of 0.04 of each of four coverages.
    for way in ("log_probabilities", "probabilities", "maximum", "trained", "sum"):
        assert abs(found[way]["coverage"][0] - 0.9) < 0.08
    # Photographs are independent given their class, and their sum is best.
    assert found["sum"]["cross_entropy"] < found["log_probabilities"]["cross_entropy"]
    assert found["union"]["coverage"][0] > found["intersection"]["coverage"][0]
    lines = observations.tables(results).splitlines()
    assert sum(line.startswith("| ") for line in lines) == 2 + 7
    # Only these sets do not have the coverage that was asked.
    assert [line for line in lines if "%" in line] == lines[-2:]
