"""Every public function in JAX's 64-bit mode, with numbers of 32 and of 64 bits."""

import jax
import numpy as np
import pytest

from tests.cases import CASES
from tests.cases.case import draw
from tests.rows import rows

NUM_EXAMPLES, NUM_CLASSES = 4, 24
# Scatters of indices, of sums by class, and of counts.
SOME = ("sets.fewest_names", "metrics.tally_by_class", "sets.new_class_p_values")


def widened(array):
    wide = {"i": np.int64, "f": np.float64}
    return array.astype(wide.get(array.dtype.kind, array.dtype), copy=False)


# JAX warns of a conversion that it will refuse, such as that of int64 in a scatter into int32.
# Warnings are errors in all tests, and no type of arrays is promoted without a cast.
@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize(
    "case",
    rows(
        [case for case in CASES if case.name in SOME],
        [case for case in CASES if case.name not in SOME],
    ),
    ids=lambda case: case.name,
)
def test_types_are_not_mixed_in_64_bit_mode(case, is_wide):
    drawn = draw((NUM_EXAMPLES,), NUM_CLASSES)
    arrays = {name: drawn[name] for name in case.arrays.values()}
    if is_wide:
        arrays = {
            name: widened(array) if isinstance(array, np.ndarray) else array
            for name, array in arrays.items()
        }
    with jax.enable_x64():
        jax.eval_shape(lambda arrays: case.results(arrays, **case.resolved(NUM_CLASSES)), arrays)
