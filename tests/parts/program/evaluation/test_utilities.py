"""Utilities by name, and what sets are worth by them."""

import numpy as np
import pytest

from topk_jax import sets
from train.evaluation import utilities, utility_sets
from train.evaluation.summaries import Sets
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
        ("u70", "one of precision, f1, u65, u80, f_beta=BETA, reject=ALPHA,BETA, or numbers"),
        ("f_beta", "one of precision"),
        ("f_beta=0", "f_beta with BETA a finite number greater than 0"),
        ("reject=1", "reject=ALPHA,BETA, with numbers for these"),
        ("reject=2,1", "reject with ALPHA a finite number at least 0 and at most 1"),
        ("1,-1", "one of precision"),
        ("0,0", "one of precision"),
        ("nan", "one of precision"),
        ("1,", "one of precision"),
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


def test_the_mean_utility_is_of_the_sets_with_the_label():
    found = Sets(np.array([True, True, False, False]), np.array([1, 3, 2, 0]))
    assert utility_sets.mean(found, utility_sets.of_sizes("precision", 3)) == pytest.approx(
        (1 + 1 / 3) / 4
    )
