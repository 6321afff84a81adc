"""Halves of examples: one is calibrated on, and the other is evaluated."""

import numpy as np
import pytest

from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction.evaluating import halving, scores
from train.prediction.evaluating.measures import Measures

NUM_EXAMPLES = 90


@pytest.fixture
def groups(rng):
    return np.array([f"plant {plant}" for plant in rng.integers(0, 30, size=NUM_EXAMPLES)], object)


def make_predictions(groups, number=NUM_EXAMPLES):
    labels = np.zeros(number, np.int32)
    return Predictions(np.zeros(number), np.ones((number, 1)), labels, labels, groups=groups)


def test_halves_do_not_divide_groups_and_are_the_same_each_time(groups):
    for of in (None, groups):
        examples = make_predictions(of)
        one, other = halving.halves(examples, flag="recalibrate")
        assert sorted([*one, *other]) == list(range(NUM_EXAMPLES))
        names = np.arange(NUM_EXAMPLES) if of is None else of
        assert not set(names[one]) & set(names[other])
        assert abs(len(set(names[one])) - len(set(names[other]))) <= 1
        for again, before in zip(
            halving.halves(examples, flag="recalibrate"), (one, other), strict=True
        ):
            np.testing.assert_array_equal(again, before)


def test_calibration_on_a_half_does_not_divide_groups(groups, rng, tmp_path):
    """As train.evaluate --scores --calibration=half reads groups from a file."""
    path = tmp_path / "scores.npz"
    np.savez(
        path,
        logits=rng.normal(size=(NUM_EXAMPLES, 3)).astype(np.float32),
        labels=np.unique(groups, return_inverse=True)[1] % 3,
        groups=groups.astype(str),
    )
    measures = Measures(ks=[1], coverages=[0.8])
    found = scores.evaluate(path, measures, calibration=None, is_half=True)
    evaluated, every = found.examples.groups.tolist(), groups.tolist()
    assert found.report["num_calibration_examples"] == NUM_EXAMPLES - len(evaluated)
    assert 0 < len(evaluated) < NUM_EXAMPLES
    assert {name: evaluated.count(name) for name in set(evaluated)} == {
        name: every.count(name) for name in set(evaluated)
    }


def test_one_group_has_no_halves(groups):
    alone = make_predictions(groups[[0, 0]], 2)
    with pytest.raises(UserError, match="at least two groups of known classes; got 1"):
        halving.halves(alone, flag="recalibrate")
