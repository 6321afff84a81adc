"""The cases of `promises/test_every_case.py` deeper: several axes of examples, edges, float64."""

import jax
import numpy as np
import pytest

from tests.cases import CASES as WITHOUT_HEADS
from tests.cases.calls import (
    NUM_CLASSES,
    NUM_EXAMPLES,
    Arrays,
    arguments,
    assert_equal,
    referred,
    tied,
    variations,
)
from tests.cases.case import AXES, Case, draw
from tests.promises.test_every_case import CASES
from tests.rows import some_cases

AXES_OF_EXAMPLES = (2, 2, 3)
ROUNDING = 1e-12
# Searches end at a root of the rounding of what they minimize, and quadratures at their own error.
ROUNDINGS = {
    "losses.conformal_training": 1e-8,
    "operators.expected_top_k_value": 1e-7,
    "sets.group_weights": 1e-5,
    "sets.temperature": 1e-6,
}
# Where every number minimizes, infinity is no score, or a matrix has no inverse.
WITHOUT_EDGES = {
    "heads.in_blocks",
    "sets.temperature",
    "sets.group_weights",
    "metrics.label_margins",
}
OF_MORE_EXAMPLES = {"sets.temperature", "sets.class_gaussian"}
OF_MORE_CLASSES = {
    "sets.temperature",
    "sets.class_gaussian",
    "sets.node_set",
    "sets.set_utilities",
    "metrics.label_margins",
}
# Of utilities that are equal but for the rounding of float32, float64 chooses the larger.
NOT_IN_FLOAT64 = {"sets.utility_set"}


def of_rooms(*rooms: str, without: set[str]) -> pytest.MarkDecorator:
    chosen = [
        case
        for case in CASES
        if case.public.partition(".")[0] in rooms and case.public not in without
    ]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


def axis_of(name: str) -> int | None:
    """The axis of the examples in the array of a name."""
    axes = AXES.get(name, ("batch",))
    return axes.index("batch") if "batch" in axes else None


def check(case: Case, arrays: Arrays, parameters: Arrays, tolerance: float = 1e-5) -> None:
    given = arguments(case, arrays)
    with np.errstate(all="ignore"):
        theirs = referred(case, parameters)(**given)
    assert_equal(case.function(**given, **parameters), theirs, tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_several_axes_of_examples(case):
    def in_axes(name, array):
        axis = axis_of(name)
        if axis is None:
            return array
        return array.reshape(*array.shape[:axis], *AXES_OF_EXAMPLES, *array.shape[axis + 1 :])

    def in_one(leaf):
        has_axes = leaf.shape[:3] == AXES_OF_EXAMPLES
        return leaf.reshape(NUM_EXAMPLES, *leaf.shape[3:]) if has_axes else leaf

    for variation in variations(case):
        arrays = variation(case)
        with np.errstate(all="ignore"):
            theirs = referred(case)(**arguments(case, arrays))
        apart = {name: in_axes(name, array) for name, array in arrays.items()}
        ours = case.function(**arguments(case, apart), **case.resolved(NUM_CLASSES))
        assert_equal(jax.tree.map(in_one, ours), theirs)


def edged(case: Case) -> Arrays:
    """Zeros of both signs, infinities, and classes that are sure."""
    rng, arrays = np.random.default_rng(7), tied(case)

    def of(*values, shape):
        return rng.choice(np.array(values, np.float32), size=shape)

    sure = np.eye(NUM_CLASSES, dtype=np.float32)[rng.integers(NUM_CLASSES, size=NUM_EXAMPLES)]
    zeros = of(-0.0, 0.0, shape=sure.shape)
    logits = of(-np.inf, -0.0, 0.0, 1.0, shape=(2, *sure.shape))
    if "logits" not in case.arrays:
        # A logit of infinity is an example that is broken, and other scores are not.
        logits[:, 4, 2] = np.inf
    return arrays | {
        "logits": logits[0],
        "others": logits[1],
        "probabilities": np.where(sure > 0, sure, zeros),
        "log_probabilities": np.where(sure > 0, zeros, np.float32(-np.inf)),
        "outliers": of(-np.inf, -0.0, 0.0, 1.0, np.inf, shape=NUM_EXAMPLES),
    }


@of_rooms("sets", "metrics", "heads", without=WITHOUT_EDGES)
def test_edges(case):
    check(case, edged(case), case.resolved(NUM_CLASSES))


@of_rooms("sets", "metrics", without=OF_MORE_EXAMPLES)
def test_one_example(case):
    arrays = tied(case)
    for name, axis in ((name, axis_of(name)) for name in arrays):
        if axis is not None:
            arrays[name] = arrays[name][(*[slice(None)] * axis, slice(1))]
    check(case, arrays, case.resolved(NUM_CLASSES))


@of_rooms("sets", "metrics", without=OF_MORE_CLASSES)
def test_one_class(case):
    parameters = case.resolved(1)
    parameters |= {name: 1 for name in ("k", "depth") if name in parameters}
    check(case, draw((NUM_EXAMPLES,), 1), parameters)


def widened(value):
    """The array, or the parameter, in 64 bits."""
    wide = {"i": np.int64, "f": np.float64}
    if not isinstance(value, np.ndarray):
        return value
    return value.astype(wide.get(value.dtype.kind, value.dtype))


@pytest.mark.parametrize(
    "case",
    # Of a key, float64 has other random numbers than float32.
    [
        case
        for case in CASES
        if case.public not in NOT_IN_FLOAT64 and not {"key", "keys"} & {*case.arrays.values()}
    ],
    ids=lambda case: case.name,
)
def test_float64(case):
    parameters = jax.tree.map(widened, case.resolved(NUM_CLASSES))
    with jax.enable_x64():
        for variation in variations(case):
            arrays = {name: widened(array) for name, array in variation(case).items()}
            check(case, arrays, parameters, ROUNDINGS.get(case.name, ROUNDING))


# Scatters of indices, of sums by class, and of counts.
WIDE = ("sets.fewest_names", "metrics.tally_by_class", "sets.new_class_p_values")
MANY_CLASSES = 24


# JAX warns of a conversion that it will refuse, such as that of int64 in a scatter into int32.
# Warnings are errors in all tests, and no type of arrays is promoted without a cast.
@pytest.mark.parametrize("is_wide", [False, True])
@some_cases(WITHOUT_HEADS, WIDE)
def test_types_are_not_mixed_in_64_bit_mode(case, is_wide):
    drawn = draw((NUM_EXAMPLES,), MANY_CLASSES)
    arrays = {name: drawn[name] for name in case.arrays.values()}
    if is_wide:
        arrays = jax.tree.map(widened, arrays)
    with jax.enable_x64():
        jax.eval_shape(lambda arrays: case.results(arrays, **case.resolved(MANY_CLASSES)), arrays)
