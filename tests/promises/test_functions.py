"""What every loss and operator promises, each in one compiled program: the values and slopes of the
reference, also of equal scores, masked classes and scores of 1e4; a NaN for broken examples alone;
nothing for examples that do not count; one line for a wrong argument.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases.losses import BATTERY as LOSSES
from tests.cases.losses import NUM_CLASSES, NUM_EXAMPLES
from tests.cases.operators import BATTERY as OPERATORS
from tests.cases.refusals import assert_refuses

# A dozen roundings of 6e-8 in a row, relative to the value or to 1.
ROUNDING = 2e-6
BROKEN = 2
OTHERS = np.arange(NUM_EXAMPLES) != BROKEN
every_loss = pytest.mark.parametrize("case", LOSSES, ids=lambda case: case.name)
every_operator = pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)


def drawn(case):
    """Heads, labels and what follows; targets are floats, which may also be wrong."""
    heads, labels, *extra = case.draw(seed=1)
    return heads, labels.astype(jnp.float32) if case.multilabel else labels, *extra


@functools.cache
def program(case):
    """The values and the gradient of their sum, of the examples that count."""

    def computed(heads, labels, *extra, where):
        counted = {"where": where} if case.takes("where") else {}

        def total(heads):
            values = case.call(heads, labels, *extra, **counted)
            return values.sum(), values

        (_, values), gradient = jax.value_and_grad(total, has_aux=True)(heads)
        return values, gradient

    compiled, all_of_them = jax.jit(computed), np.ones(NUM_EXAMPLES, bool)

    def results(*arrays, where=all_of_them):
        values, gradient = compiled(*arrays, where=where)
        return np.asarray(values), np.asarray(gradient)

    return results


def assert_close(ours, expected, tolerance=ROUNDING):
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance)


def assert_broken_alone(case, kept, broken):
    """Only that example is NaN, in all of its gradient; in a coupled batch all are."""
    values, gradient = broken
    if case.scalar:
        assert np.isnan(values)
        assert np.isnan(gradient).all()
        return
    assert np.isnan(values[BROKEN])
    assert not case.has_slope or np.isnan(gradient[:, BROKEN]).all()
    np.testing.assert_array_equal(values[OTHERS], kept[0][OTHERS])
    np.testing.assert_array_equal(gradient[:, OTHERS], kept[1][:, OTHERS])


@every_loss
def test_a_loss(case):
    compute, (heads, labels, *extra) = program(case), drawn(case)
    usual = compute(heads, labels, *extra)
    assert usual[0].shape == (() if case.scalar else (NUM_EXAMPLES,))
    assert usual[0].dtype == usual[1].dtype == jnp.float32
    right = case.is_right(labels, NUM_CLASSES)
    last_wrong = (~right)[..., ::-1].cumsum(axis=-1)[..., ::-1]
    masked = ~right & (last_wrong <= 1)
    alike = jnp.full_like(heads, 1e4), jnp.round(heads) + 0.0
    for scores in (heads, *alike, jnp.where(masked, -jnp.inf, heads)):
        values, gradient = compute(scores, labels, *extra)
        assert np.isfinite(gradient).all()
        assert_close(values, case.expected(scores, labels, *extra))
        assert_close(gradient, case.expected_gradient(scores, labels, *extra), 10 * ROUNDING)
    assert (gradient[:, masked] == 0).all()
    # A label that is masked has a price, and is never NaN.
    values, gradient = compute(jnp.where(right, -jnp.inf, heads), labels, *extra)
    assert not np.isnan(values).any()
    assert not np.isnan(gradient).any()
    values, gradient = compute(1e4 * heads, labels, *extra)
    assert np.isfinite(gradient).all()
    # Relaxed sorts mix scores of all sizes.
    size = 1e4 if case.public == "losses.relaxed_top_k_cross_entropy" else 1
    expected = case.expected(1e4 * heads, labels, *extra)
    np.testing.assert_allclose(values, expected, rtol=ROUNDING, atol=ROUNDING * size)


@every_loss
def test_a_broken_example_is_nan_alone(case):
    compute, (heads, labels, *extra) = program(case), drawn(case)
    usual = compute(heads, labels, *extra)
    for number in (jnp.nan, jnp.inf):
        for head in range(case.heads):
            hurt = heads.at[head, BROKEN, 1].set(number)
            assert_broken_alone(case, usual, compute(hurt, labels, *extra))
    for label in (2.0, -1.0, np.nan) if case.multilabel else (-1, NUM_CLASSES, 2**31 - 1):
        hurt = labels.at[BROKEN, 1].set(label) if case.multilabel else labels.at[BROKEN].set(label)
        assert_broken_alone(case, usual, compute(heads, hurt, *extra))


@pytest.mark.parametrize(
    "case", [case for case in LOSSES if not case.scalar], ids=lambda case: case.name
)
def test_an_example_that_does_not_count_has_no_part(case):
    compute, (heads, labels, *extra) = program(case), drawn(case)
    counts = np.arange(NUM_EXAMPLES) % 3 != 1
    # Padding, and what a broken network gives for it.
    hurt = heads.at[:, 1].set(jnp.nan).at[:, 4].set(jnp.inf)
    values, gradient = compute(
        hurt, labels.at[1].set(7 if case.multilabel else -100), *extra, where=counts
    )
    kept, slopes = compute(heads, labels, *extra)
    np.testing.assert_array_equal(values, np.where(counts, kept, 0))
    np.testing.assert_array_equal(gradient, np.where(counts[:, None], slopes, 0))


@every_loss
def test_a_loss_refuses_wrong_arguments_in_one_line(case):
    heads, labels, *extra = case.draw()
    given = dict(zip(case.arrays, (*heads, labels, *extra), strict=True))
    if "noise" in given:
        given["noise"] = np.moveaxis(given["noise"], -2, 0)
    assert_refuses(case, given | case.resolved(NUM_CLASSES), NUM_CLASSES)


SHAPE, K = (8, 5), 2
WHOLE = np.arange(SHAPE[0]) != BROKEN


@functools.cache
def operation(case):
    """The value, and what it makes of weights of the value's shape."""

    @jax.jit
    def computed(scores, weights):
        value, pull = jax.vjp(lambda scores: case(scores, K), scores)
        return value, pull(weights)[0]

    return computed


@every_operator
def test_an_operator(case, rng):
    scores = jnp.asarray(rng.normal(size=SHAPE), jnp.float32)
    shape = jax.eval_shape(lambda scores: case(scores, K), scores).shape
    weights = jnp.asarray(rng.normal(size=shape), jnp.float32)
    compute = operation(case)
    # Also of equal scores, and of masked classes.
    for given in (scores, scores.round() + 0.0, scores.at[:, 3].set(-jnp.inf)):
        value, gradient = (np.asarray(one, np.float64) for one in compute(given, weights))
        expected = case.expected(given, K)
        assert (np.abs(value - expected) <= case.tolerance(expected, K, SHAPE[-1])).all()
        for row, weight, slope in zip(given, weights, gradient, strict=True):
            jacobian = case.expected_jacobian(row, K)
            wanted = np.tensordot(np.asarray(weight), jacobian, axes=np.ndim(weight))
            np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-5)
    value, gradient = compute(1e4 * scores, weights)
    expected = case.expected(1e4 * scores, K)
    assert (np.abs(value - expected) <= 1e4 * case.tolerance(expected, K, SHAPE[-1])).all()
    assert np.isfinite(gradient).all()
    usual = compute(scores, weights)
    for number in (jnp.nan, jnp.inf):
        for one, kept in zip(
            compute(scores.at[BROKEN, 1].set(number), weights), usual, strict=True
        ):
            assert np.isnan(one[BROKEN]).all()
            np.testing.assert_array_equal(one[WHOLE], kept[WHOLE])


@every_operator
def test_an_operator_refuses_wrong_arguments_in_one_line(case):
    given = {name: np.ones((2, 4), np.float32) for name in case.arrays}
    assert_refuses(case, given | case.resolved(4), 4)
