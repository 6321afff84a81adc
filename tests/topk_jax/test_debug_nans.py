"""No public function makes a NaN on its way to numbers, which JAX_DEBUG_NANS=1 would stop at."""

import jax
import numpy as np
import pytest

from tests.topk_jax import sharding_cases
from tests.topk_jax.sharding_cases import CASES, NUM_CLASSES

# A search, a selection, a loss with padding, a mean.
SOME = (
    "operators.p_norm_top_k",
    "sets.top_k_set",
    "losses.noised_top_k_hinge-keys",
    "metrics.macro_accuracy",
)
# NaN is the mean of a group without classes.
NAN = ("metrics.shot_accuracy",)
NUM_EXAMPLES = 5


def arrays(*, masked):
    """Those of the cases; some classes that are no label may be masked with -inf."""
    drawn = sharding_cases.draw((NUM_EXAMPLES,))
    if masked:
        rows = np.arange(NUM_EXAMPLES)
        for name in ("logits", "others"):
            for step in (1, 2):
                drawn[name][rows, (drawn["labels"] + step) % NUM_CLASSES] = -np.inf
        exponentials = np.exp(drawn["logits"])
        drawn["probabilities"] = exponentials / exponentials.sum(axis=-1, keepdims=True)
        drawn["targets"][drawn["logits"] == -np.inf] = 0
    return drawn


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in SOME else pytest.mark.long)
        for case in CASES
        if case.public not in NAN
    ],
)
def test_numbers_are_made_without_nan(case, masked):
    # Without jit, so that each operation is looked at.
    with jax.debug_nans(True):
        case.results(case.call, arrays(masked=masked))
