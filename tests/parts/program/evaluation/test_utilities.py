"""Utilities by name, and what sets are worth by them."""

import numpy as np
import pytest

from topk_jax import sets
from train.evaluation import utilities, utility_sets
from train.foundation.errors import UserError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("precision", ("precision", {})),
        ("f1", ("f_beta", {"beta": 1})),
        ("f_beta=2", ("f_beta", {"beta": 2})),
        ("u65", ("u65", {})),
        ("u80", ("u80", {})),
        ("reject=0.5,2", ("reject", {"alpha": 0.5, "beta": 2})),
    ],
)
def test_the_named_ones_are_those_of_the_library(name, expected):
    kind, parameters = expected
    found = utility_sets.of_sizes(name, 5)
    np.testing.assert_array_equal(found, sets.set_utilities(kind, num_classes=5, **parameters))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f_beta=0", "f_beta with BETA"),
        ("reject=1", "reject=ALPHA,BETA"),
        ("reject=2,1", "reject with ALPHA"),
        ("0,0", "one of precision"),
        ("nan", "one of precision"),
    ],
)
def test_others_are_refused(name, message):
    assert utilities.wrong(name).startswith(message)


def test_a_free_one_makes_sets_of_its_sizes():
    worth = utility_sets.of_sizes("1,0.9", 4)
    np.testing.assert_array_equal(worth, np.array([1, 0.9, 0, 0], np.float32))
    probabilities = np.array([[0.9, 0.05, 0.03, 0.02], [0.3, 0.3, 0.2, 0.2]], np.float32)
    assert utility_sets.rule(worth)(probabilities).tolist() == [
        [True, False, False, False],
        [True, True, False, False],
    ]
    with pytest.raises(UserError, match="--utility must be of at most 2 numbers"):
        utility_sets.of_sizes("1,1,1", 2)
