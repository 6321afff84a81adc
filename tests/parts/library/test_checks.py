"""The checks of arguments: what each returns, what it refuses, and the words it refuses with."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import _checks

FLOAT = jnp.dtype("float32")
KEY = jax.random.key(0)


def counts_of(check, value):
    return check(value, "counts")


# A check as a function of the argument's value, then (value, error, the complete message).
REFUSALS = {
    "floating_array": (
        lambda value: _checks.floating_array(value, "logits"),
        [
            (object(), TypeError, "logits must be a floating-point array, got object."),
            (
                np.array([1, 2]),
                TypeError,
                f"logits must be a floating-point array, got dtype {jnp.array([1]).dtype}.",
            ),
            (
                np.float32(1),
                ValueError,
                "logits must have at least one axis and not be empty along the last, got shape ().",
            ),
        ],
    ),
    "floating_array along an axis": (
        lambda value: _checks.floating_array(value, "scores", 0),
        [
            (
                jnp.ones((0, 2)),
                ValueError,
                "scores must have at least one axis and not be empty along axis 0, "
                "got shape (0, 2).",
            )
        ],
    ),
    "integer_array": (
        lambda value: _checks.integer_array(value, "labels", (2,)),
        [
            (jnp.ones(2), TypeError, "labels must be an integer array, got dtype float32."),
            (
                jnp.ones((2, 1), jnp.int32),
                ValueError,
                "labels must have shape (2,), got shape (2, 1).",
            ),
        ],
    ),
    "integer_array of another": (
        lambda value: _checks.logits_and_labels(jnp.ones((2, 3)), value),
        [
            (
                jnp.ones(3, jnp.int32),
                ValueError,
                "labels must have shape (2,) for logits of shape (2, 3), got shape (3,).",
            ),
            (
                np.eye(3, dtype=np.float32)[:2],
                TypeError,
                "labels must be an integer array, got dtype float32; "
                "losses.expect_over_labels takes one-hot and soft labels.",
            ),
        ],
    ),
    "labels of classes that come second": (
        lambda value: _checks.logits_and_labels(jnp.ones((2, 3, 4)), value),
        [
            (
                np.zeros((2, 4), int),
                ValueError,
                "labels must have shape (2, 3) for logits of shape (2, 3, 4), got shape (2, 4); "
                "the classes are the last axis of logits, see jnp.moveaxis.",
            )
        ],
    ),
    "boolean_array": (
        lambda value: _checks.boolean_array(value, "where", (2,)),
        [
            (jnp.ones(2), TypeError, "where must be a boolean array, got dtype float32."),
            (jnp.ones(3, bool), ValueError, "where must have shape (2,), got shape (3,)."),
        ],
    ),
    "counting_array": (
        lambda value: counts_of(_checks.counting_array, value),
        [(jnp.ones(2), TypeError, "counts must be a boolean or integer array, got dtype float32.")],
    ),
    "logits_and_targets": (
        lambda value: _checks.logits_and_targets(jnp.ones((2, 3)), value),
        [
            ("y", TypeError, "targets must be a boolean or real array, got str."),
            (jnp.ones(3), ValueError, "targets must have shape (2, 3), got shape (3,)."),
            (jnp.ones(3, complex), TypeError, "targets must be real, got dtype complex64."),
        ],
    ),
    "two_heads": (
        lambda value: _checks.two_heads(("a", jnp.ones((2, 3))), ("b", value), jnp.array([0, 1])),
        [(jnp.ones((2, 4)), ValueError, "b must have shape (2, 3), got shape (2, 4).")],
    ),
    "some_examples": (
        lambda value: _checks.some_examples(value, "logits"),
        [
            (
                jnp.ones((0, 3)),
                ValueError,
                "logits must have at least one example, got shape (0, 3).",
            )
        ],
    ),
    "axis_size": (
        _checks.axis_size,
        [
            (
                "batch",
                ValueError,
                "axis_name must be None or the name of an axis that pmap, shard_map or vmap binds "
                "around this call, got 'batch'.",
            )
        ],
    ),
    "mean_set_size": (
        lambda value: _checks.mean_set_size(value, 4),
        [
            (0.5, ValueError, "k must be from 1 to 4 (the number of classes), got 0.5."),
            (4.5, ValueError, "k must be from 1 to 4 (the number of classes), got 4.5."),
            (np.nan, ValueError, "k must be a finite number, got nan."),
            (True, TypeError, "k must be a real number, got True of type bool."),
            ("2", TypeError, "k must be a real number, got '2' of type str."),
        ],
    ),
    "static_error": (
        _checks.static_error,
        [
            (-0.1, ValueError, "error must be at least 0 and less than 1, got -0.1."),
            (1.0, ValueError, "error must be at least 0 and less than 1, got 1.0."),
        ],
    ),
    "random_keys": (
        lambda value: _checks.random_keys(value, "key", (2,)),
        [
            (0, TypeError, "key must be a key made by jax.random.key, got int."),
            (
                np.zeros(2, np.float32),
                TypeError,
                "key must be a key made by jax.random.key, got an array of dtype float32 and "
                "shape (2,).",
            ),
            (
                jax.random.split(KEY, 3),
                ValueError,
                "key must be one key, or an array of keys of the batch's shape (2,), "
                "got shape (3,).",
            ),
        ],
    ),
    "static_integer that is none": (
        lambda value: _checks.static_integer(value, "size", minimum=1, maximum=0, reason="L"),
        [
            (
                1,
                ValueError,
                "size must be at least 1 and at most 0, which is impossible (L), got 1.",
            )
        ],
    ),
    "axis_index": (
        lambda value: _checks.axis_index(value, 2),
        [
            (2, ValueError, "axis must be from -2 to 1, got 2."),
            (-3, ValueError, "axis must be from -2 to 1, got -3."),
            (None, TypeError, "axis must be an integer, got None of type NoneType."),
        ],
    ),
    "static_integer": (
        lambda value: _checks.static_integer(value, "size", minimum=1, maximum=3, reason="L"),
        [
            (0, ValueError, "size must be from 1 to 3 (L), got 0."),
            (4, ValueError, "size must be from 1 to 3 (L), got 4."),
            (np.True_, TypeError, "size must be an integer, got True."),
            (1.0, TypeError, "size must be an integer, got 1.0 of type float."),
        ],
    ),
    "static_integer without a maximum": (
        lambda value: _checks.static_integer(value, "size", minimum=1),
        [(0, ValueError, "size must be at least 1, got 0.")],
    ),
    "rank": (
        lambda value: _checks.rank(value, 3),
        [(4, ValueError, "k must be from 1 to 3 (the number of classes), got 4.")],
    ),
    "ranks": (
        lambda value: _checks.ranks(value, 3, (2,)),
        [
            (0, ValueError, "k must be from 1 to 3 (the number of classes), got 0."),
            (
                np.array([0, 4]),
                ValueError,
                "k must be from 0 to 3 (the number of classes), got 4.",
            ),
            (jnp.array([1]), ValueError, "k must have shape (2,), got shape (1,)."),
        ],
    ),
    "set_sizes": (
        lambda value: _checks.set_sizes(value, "sizes", 3),
        [
            (2, TypeError, "sizes must be a sequence of integers, got 2."),
            ((), ValueError, "sizes must have at least one set size, got ()."),
            ((1, 4), ValueError, "sizes must be from 1 to 3 (the number of classes), got 4."),
        ],
    ),
    "real_array": (
        lambda value: _checks.real_array(value, "costs", (2,), FLOAT),
        [
            (jnp.ones(3), ValueError, "costs must have shape (2,), got shape (3,)."),
            ("abc", TypeError, "costs must be a real number or array, got str."),
        ],
    ),
    "scalar": (
        lambda value: _checks.scalar(value, "tau", FLOAT, above=0, at_most=1),
        [
            (0.0, ValueError, "tau must be greater than 0 and at most 1, got 0."),
            (2, ValueError, "tau must be greater than 0 and at most 1, got 2."),
            (np.nan, ValueError, "tau must be greater than 0 and at most 1, got nan."),
            (
                np.ones(1),
                ValueError,
                "tau must be a scalar, got shape (1,); jax.vmap takes one of each example.",
            ),
            ("1", TypeError, "tau must be a real number or array, got str."),
            (True, TypeError, "tau must be real, got dtype bool."),
        ],
    ),
    "scalar that float32 rounds": (
        lambda value: _checks.scalar(value, "p", FLOAT, above=1),
        [
            (
                1 + 1e-9,
                ValueError,
                "p must be greater than 1, got 1.000000001, which counts as 1 in float32.",
            ),
            (
                1e39,
                ValueError,
                "p must be finite and greater than 1, got 1e+39, which counts as inf in float32.",
            ),
            (np.inf, ValueError, "p must be finite and greater than 1, got inf."),
        ],
    ),
    "scalar that float32 takes for 0": (
        lambda value: _checks.scalar(value, "alpha", FLOAT, above=0),
        [
            (
                tiny,
                ValueError,
                f"alpha must be greater than 0, got {tiny}, which counts as 0 in float32.",
            )
            for tiny in (1e-50, 1e-40)
        ],
    ),
    "scalar from below": (
        lambda value: _checks.scalar(value, "error", FLOAT, at_least=0, below=1),
        [
            (-0.5, ValueError, "error must be at least 0 and less than 1, got -0.5."),
            (1.0, ValueError, "error must be at least 0 and less than 1, got 1."),
        ],
    ),
    "scalar without bounds": (
        lambda value: _checks.scalar(value, "scale", FLOAT),
        [(np.nan, ValueError, "scale must be a finite number, got nan.")],
    ),
    "threshold": (
        lambda value: _checks.threshold(value, FLOAT),
        [
            (
                np.ones(2),
                ValueError,
                "threshold must be a scalar, got shape (2,); jax.vmap takes one of each example.",
            ),
            (True, TypeError, "threshold must be real, got dtype bool."),
        ],
    ),
    "per_class": (
        lambda value: _checks.per_class(value, "margins", 3, FLOAT),
        [
            (
                np.ones(2),
                ValueError,
                "margins must be a scalar or have one value for each of the 3 classes, "
                "got shape (2,).",
            ),
            ([1, -0.5, 2], ValueError, "margins must be at least 0, got -0.5."),
            (np.nan, ValueError, "margins must be at least 0, got nan."),
            (np.inf, ValueError, "margins must be finite in float32, got inf."),
            ([1, 1e39, 2], ValueError, "margins must be finite in float32, got 1e+39."),
        ],
    ),
    "class_counts": (
        lambda value: counts_of(_checks.class_counts, value),
        [
            (1, ValueError, "counts must have one value for each class, got shape ()."),
            (
                [3, 0],
                ValueError,
                "counts must be positive and finite for each class, got 0 for class 1.",
            ),
            (
                [3, np.inf],
                ValueError,
                "counts must be positive and finite for each class, got inf for class 1.",
            ),
            *(
                (
                    counts,
                    ValueError,
                    "counts must have a sum and shares of it that are within float32, "
                    f"got counts from {extremes}.",
                )
                for counts, extremes in (
                    ([1, 1e39], "1 to 1e+39"),
                    ([3e38, 3e38], "3e+38 to 3e+38"),
                    ([1e-5, 1e35], "1e-05 to 1e+35"),
                    ([1e-40, 1e-40], "1e-40 to 1e-40"),
                )
            ),
        ],
    ),
    "training_counts": (
        lambda value: counts_of(_checks.training_counts, value),
        [
            ([[3]], ValueError, "counts must have one value for each class, got shape (1, 1)."),
            ([3, -1], ValueError, "counts must be at least 0 for each class, got -1."),
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_say_what_it_was_and_what_it_may_be(name):
    check, refused = REFUSALS[name]
    for value, error, message in refused:
        with pytest.raises(error) as raised:
            check(value)
        assert str(raised.value) == message


@pytest.mark.parametrize("name", ["ranks", "scalar", "scalar from below", "class_counts"])
def test_constants_are_checked_under_jit_too(name):
    """Converting an array under jit makes a traced value even of a constant."""
    check, refused = REFUSALS[name]
    for value, error, message in refused:
        with pytest.raises(error) as raised:
            jax.jit(lambda value=value: check(value))()
        assert str(raised.value) == message


def test_traced_values_are_not_looked_at():
    @jax.jit
    def check(number, counts):
        _checks.scalar(number, "tau", FLOAT, above=0)
        _checks.class_counts([counts[0], counts[1]], "counts")
        return _checks.ranks(counts, 3, (2,))

    np.testing.assert_array_equal(check(-1.0, jnp.array([-1, 9])), [-1, 9])


@pytest.mark.parametrize("check", [_checks.mean_set_size, _checks.static_error])
def test_traced_numbers_that_must_be_static(check):
    with pytest.raises(TypeError, match="must be a static number, got a traced value"):
        jax.jit(check)(0.5)


def test_traced_integers_that_must_be_static():
    with pytest.raises(TypeError, match="k must be a static integer, got a traced value"):
        jax.jit(lambda k: _checks.rank(k, 3))(2)


@pytest.mark.parametrize(
    ("dtype", "computed"), [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32")]
)
def test_floats_are_computed_in_float32_at_least(dtype, computed):
    assert _checks.floating_array(jnp.ones(2, dtype), "logits").dtype == computed


def test_float64_stays():
    with jax.enable_x64(True):
        assert _checks.floating_array(np.ones(2), "logits").dtype == "float64"


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
    assert _checks.threshold(np.inf, FLOAT) == np.inf
    assert _checks.per_class([1, 2, 3], "margins", 3, FLOAT).dtype == FLOAT
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
