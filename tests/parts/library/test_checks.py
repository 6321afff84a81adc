"""The checks of arguments: what each returns, and what it refuses, by the name of the argument."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import _checks

FLOAT = jnp.dtype("float32")
KEY = jax.random.key(0)
LOGITS = jnp.ones((2, 3))


def scalar(**bounds):
    return lambda value, name: _checks.scalar(value, name, FLOAT, **bounds)


# A check as a function of the argument's value and name, and what it refuses.
REFUSALS = {
    "floating_array": (
        _checks.floating_array,
        [object(), np.array([1, 2]), np.float32(1), jnp.ones((2, 0))],
    ),
    "floating_array along an axis": (
        lambda value, name: _checks.floating_array(value, name, 0),
        [jnp.ones((0, 2))],
    ),
    "integer_array": (
        lambda value, name: _checks.integer_array(value, name, (2,)),
        [jnp.ones(2), jnp.ones((2, 1), jnp.int32)],
    ),
    "labels": (
        lambda value, _: _checks.logits_and_labels(LOGITS, value),
        [jnp.ones(3, jnp.int32), np.eye(3, dtype=np.float32)[:2]],
    ),
    "boolean_array": (
        lambda value, name: _checks.boolean_array(value, name, (2,)),
        [jnp.ones(2), jnp.ones(3, bool)],
    ),
    "targets": (
        lambda value, _: _checks.logits_and_targets(LOGITS, value),
        ["y", jnp.ones(3), jnp.ones(3, complex)],
    ),
    "two_heads": (
        lambda value, name: _checks.two_heads(("a", LOGITS), (name, value), jnp.array([0, 1])),
        [jnp.ones((2, 4))],
    ),
    "some_examples": (_checks.some_examples, [jnp.ones((0, 3))]),
    "axis_name": (lambda value, _: _checks.axis_size(value), ["batch"]),
    "k": (
        lambda value, _: _checks.mean_set_size(value, 4),
        [0.5, 4.5, np.nan, True, "2"],
    ),
    "error": (lambda value, _: _checks.static_error(value), [-0.1, 1.0]),
    "random_keys": (
        lambda value, name: _checks.random_keys(value, name, (2,)),
        [0, np.zeros(2, np.float32), jax.random.split(KEY, 3)],
    ),
    "axis": (lambda value, _: _checks.axis_index(value, 2), [2, -3, None]),
    "static_integer": (
        lambda value, name: _checks.static_integer(value, name, minimum=1, maximum=3, reason="L"),
        [0, 4, np.True_, 1.0],
    ),
    "static_integer that is none": (
        lambda value, name: _checks.static_integer(value, name, minimum=1, maximum=0, reason="L"),
        [1],
    ),
    "k of all": (lambda value, _: _checks.rank(value, 3), [0, 4]),
    "k of each": (
        lambda value, _: _checks.ranks(value, 3, (2,)),
        [0, np.array([0, 4]), jnp.array([1])],
    ),
    "set_sizes": (lambda value, name: _checks.set_sizes(value, name, 3), [2, (), (1, 4)]),
    "real_array": (
        lambda value, name: _checks.real_array(value, name, (2,), FLOAT),
        [jnp.ones(3), "abc"],
    ),
    "scalar": (scalar(above=0, at_most=1), [0.0, 2, np.nan, np.ones(1), "1", True]),
    # In float32 they are 1, infinity, and 0.
    "scalar that float32 rounds": (scalar(above=1), [1 + 1e-9, 1e39, np.inf]),
    "scalar that float32 takes for 0": (scalar(above=0), [1e-50, 1e-40]),
    "scalar from below": (scalar(at_least=0, below=1), [-0.5, 1.0]),
    "scalar without bounds": (scalar(), [np.nan]),
    "limits": (lambda value, name: _checks.limits(value, name, None, FLOAT), [np.ones(2), True]),
    "per_class": (
        lambda value, name: _checks.numbers(value, name, FLOAT, ((), (3,)), at_least=0),
        [np.ones(2), [1, -0.5, 2], np.nan, np.inf, [1, 1e39, 2]],
    ),
    "class_counts": (
        lambda value, name: _checks.numbers(value, name, FLOAT, ((2,),), above=0),
        [1, [3, 0], [3, np.inf], [1, 1e39], [1e-40, 1e-40]],
    ),
    "training_counts": (_checks.training_counts, [[[3]], [3, -1]]),
}


def assert_refuses(name, call):
    argument = name.partition(" ")[0]
    with pytest.raises((TypeError, ValueError), match=rf"^{argument} (must|is)") as raised:
        call(argument)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_told_by_its_name(name):
    check, refused = REFUSALS[name]
    for value in refused:
        assert_refuses(name, lambda argument, value=value: check(value, argument))


@pytest.mark.parametrize("name", ["k of each", "scalar", "scalar from below", "class_counts"])
def test_constants_are_checked_under_jit_too(name):
    """Converting an array under jit makes a traced value even of a constant."""
    check, refused = REFUSALS[name]
    for value in refused:
        assert_refuses(
            name, lambda argument, value=value: jax.jit(lambda: check(value, argument))()
        )


def test_traced_values_are_not_looked_at():
    @jax.jit
    def check(number, counts):
        _checks.scalar(number, "tau", FLOAT, above=0)
        _checks.numbers([counts[0], counts[1]], "counts", FLOAT, ((2,),), above=0)
        return _checks.ranks(counts, 3, (2,))

    np.testing.assert_array_equal(check(-1.0, jnp.array([-1, 9])), [-1, 9])


@pytest.mark.parametrize(
    "check", [_checks.mean_set_size, _checks.static_error, lambda k: _checks.rank(k, 3)]
)
def test_traced_numbers_that_must_be_static(check):
    with pytest.raises(TypeError, match=r"must be a static \w+, got a traced value"):
        jax.jit(check)(jnp.ones((), jnp.int32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_computed_in_float32_at_least(dtype):
    with jax.enable_x64(dtype == "float64"):
        computed = _checks.floating_array(jnp.ones(2, dtype), "logits").dtype
    assert computed == ("float64" if dtype == "float64" else "float32")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_narrow_integers_are_widened(dtype):
    labels = _checks.integer_array(jnp.ones(2, dtype), "labels", (2,))
    assert labels.dtype == (dtype if "32" in dtype else "int32")


def test_numbers_mean_their_decimals():
    assert _checks.mean_set_size(1.15, 4) == Fraction(23, 20)
    assert _checks.mean_set_size(7) == 7
    assert _checks.static_error(0.1) == Fraction(1, 10)


def test_what_is_allowed_comes_back():
    assert _checks.static_integer(np.int64(3), "k", minimum=1) == 3
    assert _checks.axis_index(-2, 3) == 1
    np.testing.assert_array_equal(_checks.ranks(2, 3, (2,)), [2, 2])
    np.testing.assert_array_equal(_checks.ranks(np.array([0, 3]), 3, (2,)), [0, 3])
    assert _checks.scalar(1, "tau", FLOAT, above=0).dtype == FLOAT
    smallest = float(np.finfo(FLOAT).tiny)
    assert _checks.scalar(smallest, "tau", FLOAT, above=0) == smallest
    assert _checks.scalar(1e-40, "tau", FLOAT, at_least=0).dtype == FLOAT
    assert _checks.scalar(1 - 1e-9, "error", FLOAT, below=1) == 1
    assert _checks.limits(np.inf, "threshold", None, FLOAT) == np.inf
    assert _checks.numbers([1, 2, 3], "margins", FLOAT, ((3,),)).dtype == FLOAT
    assert _checks.axis_size(None) == 1
    sizes = jax.vmap(lambda _: _checks.axis_size("batch"), axis_name="batch")(jnp.ones(3))
    np.testing.assert_array_equal(sizes, 3)


def test_keys_of_every_kind_are_typed_keys():
    keys = jax.random.split(KEY, 2)
    for given in (KEY, keys, jax.random.key_data(KEY), np.asarray(jax.random.key_data(keys))):
        typed = _checks.random_keys(given, "key", (2,))
        assert jnp.issubdtype(typed.dtype, jax.dtypes.prng_key)
        expected = keys if typed.shape else KEY
        np.testing.assert_array_equal(jax.random.key_data(typed), jax.random.key_data(expected))
    assert _checks.random_keys(jax.random.key(0, impl="rbg"), "key", ()).shape == ()
