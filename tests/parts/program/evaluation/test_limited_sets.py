"""The estimates of top-K sets, against all scores at once, and on a known law."""

import numpy as np
import pytest

from tests import reference
from topk_jax import sets
from train.evaluation import limited_sets, predictions
from train.evaluation.predictions import Predictions

NUM_CLASSES = 9
KS = (1, 3, 8, 9)


def draw(rng, number, evenness=0.5):
    scores = rng.dirichlet(np.full(NUM_CLASSES, evenness), size=number).astype(np.float32)
    labels = np.array([rng.choice(NUM_CLASSES, p=p / p.sum()) for p in scores.astype(float)])
    return Predictions(
        np.zeros(number), scores, labels.astype(np.int32), reference.label_ranks(scores, labels)
    )


def test_the_bound_is_that_of_all_scores(rng, monkeypatch):
    monkeypatch.setattr(predictions, "CHUNK", 16)
    examples = draw(rng, 50)
    found = limited_sets.estimate(examples, KS)
    for k in KS:
        levels = sets.left_out_top_k_levels(-np.log(examples.scores), examples.labels, k=k)
        expected = 1 - min(float(levels.mean()), 1)
        # Levels are of float32.
        assert found[k]["backward_coverage"] == pytest.approx(expected, abs=1e-5)
        assert found[k]["coverage"] == (examples.ranks < k).mean()
        low, high = found[k]["interval"]
        assert low <= found[k]["coverage"] <= high
    assert found[NUM_CLASSES]["coverage_at_least"] == 1


@pytest.mark.parametrize("evenness", [0.5, 0.02])
def test_the_bound_is_below_the_coverage_of_new_examples(rng, evenness):
    """The law is known: many new examples stand for it."""
    new = draw(rng, 20_000, evenness)
    bounds = [limited_sets.estimate(draw(rng, 100, evenness), KS) for _ in range(50)]
    if evenness == 0.02:
        # Most levels are nearly 0, and a few are large: then the approximation promises too much.
        too_much = np.mean([bound[1]["backward_coverage"] for bound in bounds])
        assert too_much > (new.ranks < 1).mean()
    for k in KS:
        mean = np.mean([bound[k]["coverage_at_least"] for bound in bounds])
        assert mean <= (new.ranks < k).mean()
        held = [
            low <= (new.ranks < k).mean() <= high
            for low, high in (bound[k]["interval"] for bound in bounds)
        ]
        # Three standard errors below 0.95.
        assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 50)


def test_a_label_of_no_probability_and_other_scores_have_no_bound(rng):
    examples = draw(rng, 20)
    examples.scores[0] = np.eye(NUM_CLASSES)[(examples.labels[0] + 1) % NUM_CLASSES]
    examples.ranks[0] = reference.label_ranks(examples.scores[:1], examples.labels[:1])[0]
    assert limited_sets.estimate(examples, (3,))[3]["coverage_at_least"] == 0
    examples.scores[0] -= 1
    assert "coverage_at_least" not in limited_sets.estimate(examples, (3,))[3]
