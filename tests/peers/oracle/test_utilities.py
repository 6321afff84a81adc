"""Sets of the largest utility, of a size and of an error equal setvaluedprediction's."""

import importlib
import sys
import types

import numpy as np
import pytest
import sklearn.utils
from sklearn.base import BaseEstimator

from topk_jax import sets

NUM_CLASSES = 12


class Given(BaseEstimator):
    """A classifier whose inputs are its probabilities."""

    def predict_proba(self, probabilities):
        return probabilities


@pytest.fixture(scope="module")
def their_sets():
    """Their sets of probabilities, as booleans."""
    # Their package compiles an extension of PyTorch for its networks when it is imported, and takes
    # a name for its times that scikit-learn has moved since.
    unused = {"svp._utils": ("_C", None), "svp_cpp": ("SVP", object)}
    with pytest.MonkeyPatch.context() as patch:
        for module, (name, value) in unused.items():
            stub = types.ModuleType(module)
            setattr(stub, name, value)
            patch.setitem(sys.modules, module, stub)
        patch.setattr(sklearn.utils, "_message_with_time", None, raising=False)
        classifier = importlib.import_module("svp.multiclass").SVPClassifier(Given())
    classifier.classes_ = np.arange(NUM_CLASSES)

    def chosen(probabilities, **parameters):
        found = classifier.predict_set(probabilities, {"c": NUM_CLASSES, **parameters})
        return np.stack([np.isin(classifier.classes_, members) for members in found])

    return chosen


@pytest.fixture
def probabilities(rng):
    # From sure to unsure examples. Ties have a probability of 0.
    weights = rng.gamma(np.linspace(0.05, 5, 200)[:, None], size=(200, NUM_CLASSES))
    weights += 1e-6 * rng.random(weights.shape)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        ("f_beta", {"beta": 1.0}, {"svptype": "fb", "beta": 1}),
        ("f_beta", {"beta": 3.0}, {"svptype": "fb", "beta": 3}),
        ("u65", {}, {"svptype": "dg", "delta": 1.6, "gamma": 0.6}),
        ("u80", {}, {"svptype": "dg", "delta": 2.2, "gamma": 1.2}),
    ],
)
def test_sets_of_the_largest_utility(probabilities, their_sets, kind, ours, theirs):
    utilities = sets.set_utilities(kind, num_classes=NUM_CLASSES, **ours)
    found = np.asarray(sets.utility_set(probabilities, utilities=utilities))
    assert 1 < found.sum(axis=1).mean() < NUM_CLASSES
    np.testing.assert_array_equal(found, their_sets(probabilities, **theirs))


def test_sets_of_a_size_and_of_an_error(probabilities, their_sets):
    np.testing.assert_array_equal(
        sets.top_k_set(probabilities, k=4), their_sets(probabilities, svptype="sizectrl", size=4)
    )
    np.testing.assert_array_equal(
        sets.adaptive_set(probabilities, error=0.15),
        their_sets(probabilities, svptype="errorctrl", error=0.15),
    )
