"""Every public function is lowered for GPUs and TPUs, for any number of examples if possible."""

import functools

import jax
import jax.errors
import jax.export
import numpy as np
import pytest

from tests.cases import CASES
from tests.cases.case import AXES, draw
from tests.parts import lowered
from tests.rows import rows

NUM_EXAMPLES, NUM_CLASSES = 16, 24
# What is lowered in every run of the tests: what chooses its method by the platform, a loop of
# samples, sums over nodes, a network, a coupled batch.
SOME = (
    "losses.cross_entropy",
    "losses.noised_top_k_hinge-keys",
    "losses.expected_top_k_hinge-balanced",
    "losses.average_k",
    "sets.conformal_set-aps",
    "sets.conformal_scores-aps",
    "sets.fewest_names",
    "metrics.tally_by_class",
    "operators.top_k_sum",
    "operators.perturbed_top_k_value",
)
_CANDIDATES = "the number of candidates, floor((K - 1) n), is the size of a selection"
_RANKS = "the ranks of the quantiles are computed from the number of examples, without rounding"
_BLOCKS = "sums are a tree of blocks, which depends on the number of examples"
# Functions that take no symbolic number of examples, and why.
OF_A_KNOWN_SIZE = {
    "metrics.auroc": _BLOCKS,
    "metrics.mean_average_precision": _BLOCKS,
    "metrics.oscr_area": _BLOCKS,
    "metrics.oscr_curve": _BLOCKS,
    "losses.average_k": _CANDIDATES,
    "losses.average_k_candidates": _CANDIDATES,
    "losses.conformal_training": _RANKS,
    "losses.efficiency_gap": _RANKS,
    "sets.average_error_threshold": _BLOCKS,
    "sets.average_k_threshold": _RANKS,
    "sets.class_conditional_quantiles": _RANKS,
    "sets.clustered_quantiles": _RANKS,
    "sets.conformal_quantile": _RANKS,
    "sets.conformal_threshold": _RANKS,
    "sets.group_weights": _BLOCKS,
    "sets.hierarchical_quantile": "a search among the sums of examples needs their number",
    "sets.interpolated_quantiles": _RANKS,
    "sets.label_shift_quantiles": _RANKS,
    "sets.rank_calibrated_quantiles": _RANKS,
    "sets.risk_controlled_index": _RANKS,
    "sets.selective_threshold": "the errors of each number of answers are counted on the host",
    "sets.temperature": _BLOCKS,
    "sets.vote_quantile": _RANKS,
}
# Functions that refuse an empty batch, so that the number must be known to be at least 1.
OF_SOME_EXAMPLES = (
    "losses.p_value_uniformity",
    "losses.size_at_average_error",
)
# What JAX raises if it needs a number and gets a symbol.
REFUSALS = (TypeError, NotImplementedError, jax.errors.InconclusiveDimensionOperation)


def shapes_of(case, num_examples, num_classes=NUM_CLASSES):
    """The arrays of the case as shapes; `num_examples` may be a symbol."""
    arrays = draw((1,), num_classes)

    def shape_of(name):
        sizes = zip(AXES[name], arrays[name].shape, strict=True)
        return tuple(num_examples if axis == "batch" else size for axis, size in sizes)

    return {
        name: jax.ShapeDtypeStruct(shape_of(name), arrays[name].dtype)
        for name in case.arrays.values()
    }


def results(case, arrays):
    return case.results(arrays, **case.resolved(NUM_CLASSES))


def any_number(expression="n", constraints=()):
    (number,) = jax.export.symbolic_shape(expression, constraints=constraints)
    return number


def sampled(cases):
    return rows(
        [case for case in cases if case.name in SOME],
        [case for case in cases if case.name not in SOME],
    )


def lower(case, num_examples):
    return lowered.lowered(functools.partial(results, case), shapes_of(case, num_examples))


# That every public function has a case is held by `test_cases.py`.
@pytest.mark.parametrize("case", sampled(CASES), ids=lambda case: case.name)
def test_a_function_and_its_gradient_are_lowered(case):
    takes_any = case.public not in OF_A_KNOWN_SIZE
    program = lower(case, any_number() if takes_any else NUM_EXAMPLES)
    assert lowered.faults(program) == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.public in OF_A_KNOWN_SIZE], ids=lambda case: case.name
)
def test_functions_that_need_a_known_size_are_listed_with_the_reason(case):
    with pytest.raises(REFUSALS):
        lower(case, any_number())


# A size that may be 0, and one that is never even.
@pytest.mark.parametrize("expression", ["n - 1", "2*n + 1"])
@pytest.mark.parametrize(
    "case",
    sampled([case for case in CASES if case.public not in OF_A_KNOWN_SIZE]),
    ids=lambda case: case.name,
)
def test_a_number_of_examples_may_be_an_expression(case, expression):
    constraints = ["n >= 2"] if case.public in OF_SOME_EXAMPLES else []
    shapes = shapes_of(case, any_number(expression, constraints))
    on = ("cpu", *lowered.PLATFORMS)
    program = lowered.lowered(functools.partial(results, case), shapes, platforms=on)
    assert lowered.faults(program) == []


PLAIN = ("operators.top_k_sum", "losses.cross_entropy", "sets.conformal_scores-aps")
# Without groups of rows, and without all nodes at once.
ANOTHER_WAY = (
    "losses.noised_top_k_hinge-keys",
    "losses.expected_top_k_hinge-balanced",
    "sets.conformal_set-rank",
)


@pytest.mark.parametrize(
    ("names", "expression", "num_classes", "tolerance"),
    # Of a thousand classes, another way is taken on the CPU.
    [(PLAIN, "n - 1", 24, 1e-5), (PLAIN, "n - 1", 1000, 1e-5), (ANOTHER_WAY, "n", NUM_CLASSES, 0)],
)
def test_programs_for_any_number_have_the_values_of_one(names, expression, num_classes, tolerance):
    cases = [case for case in CASES if case.name in names]
    assert len(cases) == len(names)

    def every(arrays):
        return [case.results(arrays, **case.resolved(num_classes)) for case in cases]

    number, shapes = any_number(expression), {}
    for case in cases:
        shapes |= shapes_of(case, number, num_classes)
    program = lowered.lowered(every, shapes, platforms=["cpu"])
    for num_examples in (0, 1, 5) if tolerance else (5,):
        drawn = draw((num_examples,), num_classes)
        arrays = {name: drawn[name] for name in shapes}
        for case, *both in zip(cases, program.call(arrays), jax.jit(every)(arrays), strict=True):
            for leaf, wanted in zip(*map(jax.tree.leaves, both), strict=True):
                # Sums over the nodes are in another order.
                largest = np.abs(np.asarray(wanted, np.float32)).max(initial=0)
                rounding = case.rounding * np.finfo(np.float32).eps * largest
                atol = tolerance / 10 or rounding
                np.testing.assert_allclose(
                    leaf, wanted, rtol=tolerance, atol=atol, err_msg=case.name
                )
