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
from tests.rows import some_cases

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
# Functions that take no symbolic number of examples.
OF_A_KNOWN_SIZE = {
    # The number of candidates, floor((K - 1) n), is the size of a selection.
    *("losses.average_k", "losses.average_k_candidates"),
    # The ranks of quantiles are computed from the number of examples, without rounding.
    *("losses.conformal_training", "losses.efficiency_gap", "sets.average_k_threshold"),
    *("sets.class_conditional_quantiles", "sets.clustered_quantiles", "sets.conformal_quantile"),
    *("sets.conformal_threshold", "sets.interpolated_quantiles", "sets.label_shift_quantiles"),
    *("sets.rank_calibrated_quantiles", "sets.risk_controlled_index", "sets.vote_quantile"),
    # Sums are a tree of blocks, which depends on the number of examples.
    *("metrics.auroc", "metrics.mean_average_precision", "metrics.oscr_area", "metrics.oscr_curve"),
    *("sets.average_error_threshold", "sets.group_weights", "sets.temperature"),
    # A search among the sums of examples; the errors of each number are counted on the host.
    *("sets.hierarchical_quantile", "sets.selective_threshold"),
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


def lower(case, num_examples):
    return lowered.lowered(functools.partial(results, case), shapes_of(case, num_examples))


# That every public function has a case is held by `test_cases.py`.
@some_cases(CASES, SOME)
def test_a_function_and_its_gradient_are_lowered(case):
    takes_any = case.public not in OF_A_KNOWN_SIZE
    program = lower(case, any_number() if takes_any else NUM_EXAMPLES)
    assert lowered.faults(program) == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.public in OF_A_KNOWN_SIZE], ids=lambda case: case.name
)
def test_functions_that_need_a_known_size_are_listed(case):
    with pytest.raises(REFUSALS):
        lower(case, any_number())


# A size that may be 0, and one that is never even.
@pytest.mark.parametrize("expression", ["n - 1", "2*n + 1"])
@some_cases([case for case in CASES if case.public not in OF_A_KNOWN_SIZE], SOME)
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
