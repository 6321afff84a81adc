"""Sets for inputs of another distribution keep their coverage; those without weights do not."""

import numpy as np

from tests.parts.program.forked import check_mistakes, start
from train.evaluation import covariate_shift, predictions, set_rules, summaries, thresholds
from train.evaluation.covariate_shift import LogWeights
from train.evaluation.predictions import Predictions

NUM_CLASSES = 5
# The shares of hard inputs.
BEFORE, NOW = 0.1, 0.6


def draw(rng, number, share):
    """Examples with hard inputs, whose probabilities say less, and the logarithms of weights."""
    hard = rng.random(number) < share
    sharp = np.where(hard, 0.5, 6.0)[:, None]
    logits = sharp * rng.normal(size=(number, NUM_CLASSES))
    scores = np.exp(logits - logits.max(-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    labels = np.array([rng.choice(NUM_CLASSES, p=p) for p in scores], np.int32)
    weights = np.where(hard, NOW / BEFORE, (1 - NOW) / (1 - BEFORE))
    found = Predictions(np.zeros(number), scores.astype(np.float32), labels, np.zeros(number, int))
    return found, np.log(weights).astype(np.float32)


def test_the_coverage_holds_in_a_shift(rng, monkeypatch):
    """Calibrations on 100 examples, each with 100 of the other distribution."""
    monkeypatch.setattr(predictions, "CHUNK", 64)
    error, coverages, unweighted = 0.1, [], []
    for _ in range(200):
        old, old_weights = draw(rng, 100, BEFORE)
        new, new_weights = draw(rng, 100, NOW)
        weights = LogWeights(new_weights, old_weights)
        coverages.append(covariate_shift.find_sets(new, old, weights, error).hits.mean())
        threshold = thresholds.conformal_threshold(old, 1 - error)
        found = summaries.find_sets(new, set_rules.at_threshold(threshold))
        unweighted.append(found.hits.mean())
    assert np.mean(coverages) >= 1 - error - 2 * np.std(coverages) / np.sqrt(200)
    assert np.mean(unweighted) < 1 - error - 5 * np.std(unweighted) / np.sqrt(200)


def test_the_weights_are_in_the_files_of_scores(rng, tmp_path):
    arguments = []
    for flag, share in (("logits", NOW), ("calibration_logits", BEFORE)):
        found, weights = draw(rng, 300, share)
        given = {"probabilities": found.scores, "labels": found.labels}
        np.savez(tmp_path / f"{flag}.npz", **given, log_weights=weights)
        np.savez(tmp_path / f"without_{flag}.npz", **given)
        np.savez(tmp_path / f"other_{flag}.npz", **given, log_weights=weights[1:])
        arguments.append(f"--{flag}={tmp_path}/{flag}.npz")
    done = start("train.evaluate", *arguments, "--coverages=0.9")
    assert done.returncode == 0, done.stderr
    assert "covariate shift" in done.stdout
    mistakes = [
        (["--logits={}/without_logits.npz", arguments[1]], "must both have log_weights"),
        (["--logits={}/other_logits.npz", arguments[1]], "log_weights must be a finite floating"),
    ]
    check_mistakes(
        "train.evaluate", [([one.format(tmp_path) for one in a], m) for a, m in mistakes]
    )
