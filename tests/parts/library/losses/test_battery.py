"""The battery that every loss goes through: the cases are in `cases/losses.py`."""

import itertools
import zlib

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.cases.losses import BATTERY as CASES
from tests.cases.losses import NUM_CLASSES, NUM_EXAMPLES
from tests.rows import rows

# float32 has a unit roundoff of 6e-8. A loss makes a dozen roundings in a row, sums over classes
# included, and each is relative to a difference of scores, to 1 (a margin), or to a logarithm of
# the number of classes; so its error is relative to its value, or to 1 if the value is smaller.
ROUNDING = 2e-6


def over(cases, *, dear=False, **conditions):
    """Parametrises a test over the cases with the given attributes.

    A `dear` test compiles a program of its own: nightly for the losses that others are compared
    with.
    """
    found = [
        case
        for case in cases
        if all(getattr(case, name) == value for name, value in conditions.items())
    ]
    usual = [case for case in found if not (dear and case.collection)]
    others = [case for case in found if dear and case.collection]
    return pytest.mark.parametrize("case", rows(usual, others), ids=lambda case: case.name)


every_case = over(CASES)
every_case_dearly = over(CASES, dear=True)


def assert_close(ours, expected, tolerance=ROUNDING, size=1.0):
    ours, expected = np.asarray(ours).astype(np.float64), np.asarray(expected)
    chex.assert_equal_shape([ours, expected])
    chex.assert_trees_all_close(ours, expected, rtol=tolerance, atol=tolerance * size)


def assert_matches_reference(case, values, gradient, arrays, tolerance=ROUNDING):
    """Values and gradients against the reference, both to the rounding of scores."""
    assert_close(values, case.expected(*arrays), tolerance)
    assert_close(gradient, case.expected_gradient(*arrays), 10 * tolerance)


@pytest.fixture(autouse=True)
def no_traces():
    # chex counts them by the place of a function, which the cases share.
    chex.clear_trace_counter()


def named(*names):
    found = [case for case in CASES if case.name in names]
    assert len(found) == len(names)
    return found


# One of each kind: labels, targets, noise, and two heads of a coupled batch.
OF_EACH_KIND = named(
    "losses.top_k_hinge",
    "losses.sparse_top_loss",
    "losses.noised_top_k_hinge-imbalanced",
    "losses.average_k",
)
# One for each way to go through many classes: a softmax, a selection, polynomials, samples, nodes,
# a threshold, a batch; a search, a sum of tails, and a network.
OF_MANY_CLASSES = named(
    "losses.cross_entropy",
    "losses.top_k_hinge",
    "losses.smooth_top_k_hinge-5",
    "losses.noised_top_k_hinge-imbalanced",
    "losses.expected_top_k_hinge-imbalanced",
    "losses.sparse_top_loss",
    "losses.average_k",
    "losses.entmax_loss",
    "losses.lapsum_top_k_loss",
    "losses.relaxed_top_k_cross_entropy-odd_even",
)


@over(OF_EACH_KIND)
def test_without_jit(case):
    arrays = case.draw(num_classes=6)
    assert_matches_reference(case, *case.call_with_gradient(*arrays), arrays)


@every_case_dearly
def test_batches_of_any_size(case):
    """A random size, under vmap; without a batch axis if the loss does not couple a batch."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    batch_shape, num_classes = (int(rng.integers(1, 4)),), int(rng.integers(6, 40))
    batch_shape *= case.scalar
    heads, *rest = case.draw(batch_shape=(3, *batch_shape), num_classes=num_classes, seed=1)
    heads = jnp.moveaxis(heads, 1, 0)
    values, gradients = jax.jit(jax.vmap(case.call_with_gradient))(heads, *rest)
    chex.assert_shape(values, (3,))
    for i, arrays in enumerate(zip(heads, *rest, strict=True)):
        assert_matches_reference(case, values[i], gradients[i], arrays)


@every_case_dearly
def test_several_labels_of_the_same_scores(case):
    """Under vmap the labels have an axis that the scores lack, in a function compiled before."""
    heads, *rest = case.draw(batch_shape=(2,), num_classes=6, seed=23)
    _, *others = case.draw(batch_shape=(2,), num_classes=6, seed=24)
    both = [jnp.stack(pair) for pair in zip(rest, others, strict=True)]

    @jax.jit
    def total(heads):
        return jax.vmap(lambda *arrays: case.call(heads, *arrays))(*both).sum()

    expected = case.expected_gradient(heads, *rest) + case.expected_gradient(heads, *others)
    # As in other tests, for each of the two.
    assert_close(jax.grad(total)(heads), expected, 20 * ROUNDING)


@over(OF_MANY_CLASSES, dear=True)
def test_value_and_gradient_at_1081_classes(case):
    arrays = case.draw(batch_shape=(2,), num_classes=1081, seed=3)
    # Sums over 1,081 classes: 32 times the roundoff of a sum of random roundings.
    values, gradient = case.compiled_with_gradient(*arrays)
    assert_matches_reference(case, values, gradient, arrays, tolerance=10 * ROUNDING)


def draw_float64(case, seed):
    """With two axes of examples, unless the loss couples a batch."""
    batch_shape = (2,) if case.scalar else (2, 2)
    heads, *rest = case.draw(batch_shape=batch_shape, num_classes=7, scale=2.0, seed=seed)
    return heads.astype(jnp.float64), *rest


@every_case_dearly
def test_float64_stays(case):
    with jax.enable_x64(True):
        arrays = draw_float64(case, 4)
        values, gradient = case.compiled_quickly_with_gradient(*arrays)
        chex.assert_type([values, gradient], jnp.float64)
        # A dozen roundings of 1e-16.
        assert_close(values, case.expected(*arrays), 1e-12)
        assert_close(gradient, case.expected_gradient(*arrays), 1e-10)


@over(CASES, exact_slope=True, dear=True)
def test_gradient_against_differences(case):
    with jax.enable_x64(True):
        heads, *rest = draw_float64(case, 4)
        gradient = case.compiled_quickly_with_gradient(heads, *rest)[1]

        def values_at(heads):
            return np.asarray(case.compiled_quickly_with_gradient(jnp.asarray(heads), *rest)[0])

        # Not `chex.assert_numerical_grads`, which puts ones in place of what `stop_gradient` gives
        # and compiles five times as long.
        differences = reference.finite_difference_gradient(values_at, heads, 1e-5)
        # The square of the step times a third derivative, and 1e-15 over the step. The smallest
        # temperature, 0.05, makes third derivatives of 1 / 0.05^2.
        assert_close(gradient, differences, 1e-6)


@over(CASES, forward_mode=True, dear=True)
def test_jvp_and_hessian(case):
    with jax.enable_x64(True):
        heads, *rest = draw_float64(case, 5)
        direction = jnp.asarray(np.random.default_rng(5).normal(size=heads.shape))

        def total(heads):
            return case.call(heads, *rest).sum()

        @jax.jit
        def derivatives(heads):
            slope = jax.jvp(total, (heads,), (direction,))[1]
            return slope, jax.grad(total)(heads), jax.hessian(total)(heads)

        slope, gradient, hessian = derivatives(heads)
        # Sums of at most 28 products of float64 each.
        assert_close(slope, (gradient * direction).sum(), 1e-12)

        def gradient_at(heads):
            return np.asarray(case.compiled_quickly_with_gradient(jnp.asarray(heads), *rest)[1])

        differences = reference.finite_difference_jacobian(gradient_at, heads, 1e-5)
        # As for the gradient, one derivative and a factor 1 / 0.05 further.
        assert_close(hessian, differences, 1e-4)


@every_case_dearly
def test_half_precision(case):
    # Both data types go the same way: each for half of the cases, and one of them as for users.
    is_brain = CASES.index(case) % 2 == 0
    dtype = jnp.bfloat16 if is_brain else jnp.float16
    compiled = case.compiled_with_gradient if is_brain else case.compiled_quickly_with_gradient
    heads, *rest = case.draw(seed=7)
    heads = heads.astype(dtype)
    values, gradient = compiled(heads, *rest)
    chex.assert_type([values, gradient], [jnp.float32, dtype])
    # Computed in float32 from the rounded logits: only the gradient is rounded at the end.
    assert_close(values, case.expected(heads, *rest))
    assert_close(gradient, case.expected_gradient(heads, *rest), float(jnp.finfo(dtype).eps))


@over(CASES, own_slope=True, dear=True)
def test_value_is_the_same_under_value_and_grad(case):
    heads, *rest = case.draw(seed=8)
    for scores in (heads, jnp.full_like(heads, -jnp.inf)):
        # The same operations in the same order; XLA may contract a product and a sum in one of the
        # two.
        values = case.compiled_with_gradient(scores, *rest)[0]
        assert_close(values, case.compiled(scores, *rest), 3e-7)


@every_case
def test_scales(case):
    for scale in (1e-6, 1e-3, 1e2, 1e4):
        arrays = case.draw(scale=scale, seed=9)
        values, gradient = case.compiled_with_gradient(*arrays)
        chex.assert_tree_all_finite(gradient)
        # Relaxed sorts mix scores of all sizes: their error is relative to the largest.
        size = max(1, scale) if case.public == "losses.relaxed_top_k_cross_entropy" else 1
        assert_close(values, case.expected(*arrays), ROUNDING, size)


@over(CASES, shift_invariant=True)
def test_common_shift_of_1e4_keeps_the_digits(case):
    heads, *rest = case.draw(seed=11)
    # Multiples of 1/256, so that the shifted scores are exact.
    heads = jnp.round(256 * heads) / 256
    values, gradient = case.compiled_with_gradient(heads, *rest)
    shifted_values, shifted_gradient = case.compiled_with_gradient(heads + 1e4, *rest)
    assert_close(shifted_values, values)
    assert_close(shifted_gradient, gradient, 10 * ROUNDING)


@over(CASES, zero_when_right=True)
def test_zero_when_confidently_right(case):
    heads, labels, *extra = case.draw(seed=12)
    right = case.is_right(labels, NUM_CLASSES)
    heads = jnp.where(right, heads + 100.0, heads)
    values, gradient = case.compiled_with_gradient(heads, labels, *extra)
    assert_close(values, np.zeros(values.shape))
    assert_close(gradient, np.zeros(gradient.shape))


@every_case
def test_all_wrong_classes_may_be_masked(case):
    heads, labels, *extra = case.draw(seed=13)
    masked = ~case.is_right(labels, NUM_CLASSES)
    arrays = (jnp.where(masked, -jnp.inf, heads), labels, *extra)
    values, gradient = case.compiled_with_gradient(*arrays)
    chex.assert_tree_all_finite((values, gradient))
    assert (np.asarray(gradient)[:, masked] == 0).all()
    assert_close(values, case.expected(*arrays))
    values, _ = case.compiled_with_gradient(jnp.full_like(heads, -jnp.inf), labels, *extra)
    assert not np.isnan(values).any()


@every_case
def test_nan_and_infinity_are_contagious_for_their_own_example_alone(case):
    """At any class, and with either sign, as the order of floats by their bits has them."""
    heads, *rest = case.draw(seed=15)
    clean_values, clean_gradient = case.compiled_with_gradient(heads, *rest)
    for head, class_index in itertools.product(range(case.heads), range(NUM_CLASSES)):
        value = (jnp.nan, -jnp.nan, jnp.inf)[class_index % 3]
        broken = class_index % NUM_EXAMPLES
        hurt = heads.at[head, broken, class_index].set(value)
        values, gradient = case.compiled_with_gradient(hurt, *rest)
        if case.scalar:
            assert np.isnan(values)
            assert np.isnan(gradient).all()
            continue
        np.testing.assert_array_equal(values, clean_values.at[broken].set(jnp.nan))
        wanted = clean_gradient.at[:, broken].set(jnp.nan if case.has_slope else 0)
        np.testing.assert_array_equal(gradient, wanted)


@over(CASES, multilabel=True)
@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.int8, jnp.bfloat16, jnp.float32], ids=str)
def test_targets_of_any_dtype(case, dtype):
    heads, targets, *extra = case.draw(seed=17)
    values = case.compiled(heads, targets.astype(dtype), *extra)
    np.testing.assert_array_equal(values, case.compiled(heads, targets, *extra))


@over([case for case in CASES if case.parameters.keys() - case.static], dear=True)
def test_slope_in_hyperparameters(case):
    with jax.enable_x64(True):
        heads, *rest = case.draw(batch_shape=(4,), num_classes=7, scale=2.0, seed=18)
        heads = heads.astype(jnp.float64)
        traced = {
            name: jnp.asarray(value, jnp.float64)
            for name, value in case.resolved(7).items()
            if name in case.ranges
        }

        # Another value does not need another program.
        @jax.jit
        @chex.assert_max_traces(n=1)
        def total(traced):
            return case.call(heads, *rest, **traced).sum()

        slopes = jax.jit(jax.grad(total))(traced)
        step = 1e-6
        for name, value in traced.items():
            above = total(traced | {name: value + step})
            below = total(traced | {name: value - step})
            # The square of the step times a third derivative (up to 1 / 0.05^3), and 1e-14 / step.
            assert_close(slopes[name].sum(), (above - below) / (2 * step), 1e-6)
