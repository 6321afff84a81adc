"""Checks of arguments beside the refusals of every case: rounding, constants under jit, keys."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import _checks, losses

FLOAT = jnp.dtype("float32")
KEY = jax.random.key(0)
LOGITS, LABELS = jnp.ones((2, 3)), np.array([0, 1])


def numbers(shape=(), **bounds):
    return lambda value, name: _checks.numbers(value, name, FLOAT, (shape,), **bounds)


# A check as a function of the argument's value and name, and what it refuses.
REFUSALS = {
    "axis_name": (lambda value, _: _checks.axis_size(value), ["batch", ["batch"]]),
    "number of none": (
        lambda value, name: _checks.static_integer(value, name, minimum=1, maximum=0),
        [1, np.True_, 1.0],
    ),
    "k of each": (
        lambda value, _: _checks.ranks(value, 3, (2,)),
        [0, np.array([0, 4]), jnp.array([1])],
    ),
    "scalar": (numbers(above=0, at_most=1), [0.0, 2, np.nan, np.ones(1), "1", True]),
    # In float32 they are 1, infinity, and 0.
    "scalar that float32 rounds": (numbers(above=1), [1 + 1e-9, 1e39, np.inf]),
    "scalar that float32 takes for 0": (numbers(above=0), [1e-50, 1e-40]),
    "scalar from below": (numbers(at_least=0, below=1), [-0.5, 1.0]),
    "class_counts": (
        numbers((2,), above=0),
        [1, [3, 0], [3, np.inf], [1, 1e39], [1e-40, 1e-40]],
    ),
    "random_keys": (
        lambda value, name: _checks.random_keys(value, name, (2,)),
        [0, np.zeros(2, np.float32), jax.random.split(KEY, 3)],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_told_by_its_name(name):
    check, refused = REFUSALS[name]
    argument = name.partition(" ")[0]
    for value in refused:
        # Converting an array under jit makes a traced value even of a constant.
        for call in (check, lambda *given: jax.jit(lambda: check(*given))()):
            with pytest.raises((TypeError, ValueError), match=rf"^{argument} must") as raised:
                call(value, argument)
            assert "\n" not in str(raised.value)


def test_traced_values_are_not_looked_at():
    check = jax.jit(lambda counts: _checks.ranks(counts, 3, (2,)))
    np.testing.assert_array_equal(check(jnp.array([-1, 9])), [-1, 9])


@pytest.mark.parametrize(
    "check", [_checks.mean_set_size, _checks.static_error, lambda k: _checks.rank(k, 3)]
)
def test_traced_numbers_that_must_be_static(check):
    with pytest.raises(TypeError, match=r"must be a static \w+, got a traced value"):
        jax.jit(check)(jnp.ones((), jnp.int32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_computed_in_float32_at_least(dtype):
    with jax.enable_x64(dtype == "float64"):
        computed = losses.cross_entropy(jnp.ones((2, 3), dtype), LABELS).dtype
    assert computed == ("float64" if dtype == "float64" else "float32")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
def test_narrow_labels_are_those_of_32_bits(dtype):
    logits = jnp.arange(600.0).reshape(2, 300)
    found = losses.cross_entropy(logits, jnp.array([3, 100], dtype))
    np.testing.assert_array_equal(found, losses.cross_entropy(logits, jnp.array([3, 100])))


def test_what_is_allowed_comes_back():
    assert _checks.mean_set_size(1.15, 4) == Fraction(23, 20)
    assert _checks.static_integer(np.int64(3), "k", minimum=1) == 3
    np.testing.assert_array_equal(_checks.ranks(np.array([0, 3]), 3, (2,)), [0, 3])
    smallest = float(np.finfo(FLOAT).tiny)
    assert _checks.scalar(smallest, "tau", FLOAT, above=0) == smallest
    assert _checks.scalar(1e-40, "tau", FLOAT, at_least=0).dtype == FLOAT
    assert _checks.scalar(1 - 1e-9, "error", FLOAT, below=1) == 1
    assert _checks.real_array(np.inf, "threshold", FLOAT, ()) == np.inf


def test_keys_of_every_kind_are_typed_keys():
    keys = jax.random.split(KEY, 2)
    for given in (KEY, keys, jax.random.key_data(KEY), np.asarray(jax.random.key_data(keys))):
        typed = _checks.random_keys(given, "key", (2,))
        expected = keys if typed.shape else KEY
        np.testing.assert_array_equal(jax.random.key_data(typed), jax.random.key_data(expected))
    assert _checks.random_keys(jax.random.key(0, impl="rbg"), "key", ()).shape == ()
