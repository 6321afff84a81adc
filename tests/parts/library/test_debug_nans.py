"""No public function makes a NaN on its way to numbers, which JAX_DEBUG_NANS=1 would stop at."""

import jax
import numpy as np
import pytest

from tests.cases import CASES
from tests.cases.case import draw, softmax
from tests.rows import rows

# A search, a selection, a loss with padding, a mean.
SOME = (
    "operators.p_norm_top_k",
    "sets.top_k_set",
    "losses.noised_top_k_hinge-keys",
    "metrics.macro_accuracy",
)
# NaN is the mean of a group without classes.
NAN = ("metrics.shot_accuracy",)
NUM_EXAMPLES, NUM_CLASSES = 5, 24
WITHOUT_NAN = [case for case in CASES if case.public not in NAN]


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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "case",
    rows(
        [case for case in WITHOUT_NAN if case.name in SOME],
        [case for case in WITHOUT_NAN if case.name not in SOME],
    ),
    ids=lambda case: case.name,
)
def test_numbers_are_made_without_nan(case, masked):
    # Without jit, so that each operation is looked at.
    with jax.debug_nans(True):
        case.results(arrays(masked=masked), **case.resolved(NUM_CLASSES))
