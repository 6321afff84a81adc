"""No public function makes a NaN on its way to numbers, which JAX_DEBUG_NANS=1 would stop at."""

import jax
import numpy as np
import pytest

from tests.cases import CASES
from tests.cases.case import draw, softmax
from tests.rows import some_cases

# A search, a selection, a loss with padding, a mean.
SOME = (
    "operators.p_norm_top_k",
    "sets.top_k_set",
    "losses.noised_top_k_hinge-keys",
    "metrics.tally_by_class",
)
NUM_EXAMPLES, NUM_CLASSES = 5, 24
NUM_FEW_CLASSES = 8


def arrays(*, masked):
    """The arrays of the cases; some classes that are not labels may be masked with -inf."""
    drawn = draw((NUM_EXAMPLES,), NUM_CLASSES)
    if masked:
        rows = np.arange(NUM_EXAMPLES)
        for name in ("logits", "others"):
            for step in (1, 2):
                drawn[name][rows, (drawn["labels"] + step) % NUM_CLASSES] = -np.inf
        drawn["probabilities"] = softmax(drawn["logits"])
        drawn["targets"][drawn["logits"] == -np.inf] = 0
    return drawn


def few(num_examples, kind):
    """A few examples, whose probabilities are 0 and 1 or all equal."""
    drawn = draw((num_examples,), NUM_FEW_CLASSES)
    places = np.arange(NUM_FEW_CLASSES)
    of_labels = {"sure": drawn["labels"], "wrong": (drawn["labels"] + 1) % NUM_FEW_CLASSES}
    if kind == "equal":
        found = np.full((num_examples, NUM_FEW_CLASSES), 1 / NUM_FEW_CLASSES)
    else:
        found = of_labels[kind][:, None] == places
    with np.errstate(divide="ignore"):
        logarithms = np.log(found.astype(np.float32))
    return drawn | {
        "probabilities": found.astype(np.float32),
        "log_probabilities": logarithms,
        "logits": logarithms,
    }


# Some need two examples; quantiles of six are infinite.
@pytest.mark.parametrize("num_examples", [2, 6])
@pytest.mark.parametrize("kind", ["sure", "wrong", "equal"])
@some_cases([case for case in CASES if case.public.startswith("sets.")], SOME)
def test_sets_of_few_examples_are_made_without_nan(case, kind, num_examples):
    arrays = few(num_examples, kind)
    parameters = case.resolved(NUM_FEW_CLASSES)
    try:
        with jax.debug_nans(True):
            case.results(arrays, **parameters)
    except FloatingPointError:
        # It may be the result.
        leaves = map(np.asarray, jax.tree.leaves(case.results(arrays, **parameters)))
        assert any(leaf.dtype.kind == "f" and np.isnan(leaf).any() for leaf in leaves)


@pytest.mark.parametrize("masked", [False, True])
@some_cases(CASES, SOME)
def test_numbers_are_made_without_nan(case, masked):
    # Without jit, so that each operation is looked at.
    with jax.debug_nans(True):
        case.results(arrays(masked=masked), **case.resolved(NUM_CLASSES))
