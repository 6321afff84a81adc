"""Each primitive of the table computes in ONNX Runtime what it computes in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.parts.program.package.onnx import in_onnx
from train.foundation.errors import UserError

GENERATOR = np.random.default_rng(0)
SMALL = GENERATOR.normal(size=(3, 8)).astype(np.float32)
# With equal numbers, and a large float.
ROWS = GENERATOR.normal(size=(3, 8)).astype(np.float32)
ROWS[1, 2:5] = ROWS[1, 2]
ROWS[2, 7] = np.finfo(np.float32).max / 4
IMAGES = GENERATOR.normal(size=(2, 7, 6, 4)).astype(np.float32)
INTEGERS = GENERATOR.integers(-40, 40, (3, 8)).astype(np.int32)
KERNEL = GENERATOR.normal(size=(3, 2, 4, 6)).astype(np.float32)
DEPTHWISE = GENERATOR.normal(size=(3, 3, 1, 4)).astype(np.float32)
MATRIX = GENERATOR.normal(size=(8, 5)).astype(np.float32)
NUMBERS = jnp.asarray(GENERATOR.normal(size=8), jnp.float32)


def arithmetic(x):
    folded = (x - NUMBERS[None]) * (2 / jnp.sqrt(NUMBERS**2 + 1))[None]
    limits = jax.nn.relu6(4 * x), jnp.maximum(x, 0.5), jnp.minimum(x, NUMBERS[None])
    return (x + 1) - x * NUMBERS[None], x / (jnp.abs(x) + 1), folded, *limits


def functions(x):
    some = jnp.exp(x), jnp.tanh(x), lax.logistic(x), lax.erf(x), lax.erfc(x), lax.sign(x), -x
    powers = x**3, lax.square(x), lax.integer_pow(x, -1)
    roots = jnp.sqrt(abs(x)), lax.rsqrt(abs(x)), jnp.log(abs(x))
    return *some, *powers, *roots, jnp.round(4 * x), jnp.floor(x), jnp.ceil(x)


def integers(x):
    converted = x.astype(jnp.float32), (x > 0).astype(jnp.int32), x.astype(jnp.float32) > 0
    return lax.div(x, 7), lax.rem(x, 7), x - 1, x**2, lax.sort(x), *converted


def choices(x):
    compared = x == x[:, :1], x != 0.5, x < 0, x <= x[:, 2:3], x > 0, x >= x[:, 2:3]
    chosen = jnp.where(x > 0, x, -x), jnp.where(x > 0, x > 1, x < -1)
    finite = jnp.isfinite(jnp.where(x > 0, jnp.inf, x) * 0)
    return *compared, *chosen, finite, (x > 0) & (x < 1) | ~(x > -1)


def shapes(x):
    reshaped = x.reshape(-1, 2).reshape(-1, 8), x.reshape(-1, 2, 4).transpose(0, 2, 1), x[:, None]
    wide = jnp.broadcast_to(x[:, :1], x.shape)
    stretched = jnp.broadcast_to(x[:, :, None], (*x.shape, 3)), wide, wide.sum(axis=1)
    joined = jnp.concatenate([x, x[:, 2:], jnp.zeros_like(x)], 1), jnp.stack([x, -x], 1)
    parts = lax.slice_in_dim(x, 1, 7, 2, axis=1), x[:, ::-1], x[:, 5:1:-2]
    padded = jnp.pad(x, ((0, 0), (2, 1))), lax.pad(x, -jnp.inf, ((0, 0, 0), (-1, 3, 0)))
    same = lax.squeeze(x[:, :, None], (2,)), lax.optimization_barrier(jnp.copy(x))
    counted = x + jnp.arange(8, dtype=jnp.float32)[None]
    split = jnp.split(x, [2, 5], axis=1)
    return *reshaped, *stretched, *joined, *parts, *padded, *same, *split, counted


def reductions(x):
    sums = x.sum(1), x.max(1), x.min(1), x.mean(1, keepdims=True), (x > 0.5).any(1)
    running = jnp.cumsum(x, axis=1), lax.cumsum(x, 1, reverse=True)
    return *sums, *running, lax.cummax(x, 1), lax.cummin(x, 1, reverse=True)


def orders(x):
    places = x.argmax(1), x.argmin(1), jnp.argmax(x, axis=1, keepdims=True)
    reordered = jnp.take_along_axis(x, lax.top_k(x, 8)[1][:, ::-1], axis=1)
    return *places, *lax.top_k(x, 3), reordered


def reads(x):
    table = jnp.asarray(MATRIX)
    rows = table[x.argmax(axis=1)], table[x.argmax(axis=1), jnp.minimum(x.argmin(1), 4)]
    clipped = jnp.take(NUMBERS, jnp.int32(x * 3), mode="clip")
    filled = jnp.take(NUMBERS, jnp.int32(x * 3), mode="fill", fill_value=5.0)
    known = jnp.take(x, np.array([1, 0, 9]), axis=1, mode="fill"), x[:, np.array([3, 1, 1])]
    return *rows, clipped, filled, *known, x[:, 2], x[:, 1::3]


def writes(x):
    at = np.array([0, 1, 2, 2, 1, 0, 2, 2])
    added = jnp.zeros((x.shape[0], 3)).at[:, at].add(x, mode="drop")
    wide = jnp.zeros((x.shape[0], 9)).at[:, :8].set(x)
    return x.at[:, np.array([1, 4])].set(x[:, :2]), x.at[:, 2:5].set(0.0), wide, added


def products(x):
    pairs, cube = x.reshape(-1, 4, 2), jnp.asarray(MATRIX).reshape(4, 2, 5)
    heads = jnp.einsum("nqd,dhk->nqhk", x.reshape(-1, 2, 4), cube)
    sums = jnp.einsum("nhk,hkd->nd", x.reshape(-1, 2, 4), cube.reshape(2, 4, 5))
    of_examples = jnp.einsum("nab,ncb->nac", pairs, pairs[:, :3])
    single = jnp.einsum("na,na->n", x, x), jnp.einsum("na,nb->nab", x, x[:, :3])
    return x @ MATRIX, jnp.einsum("...c,c->...c", x, NUMBERS), heads, sums, of_examples, *single


def convolve(images, kernel=KERNEL, groups=1, **options):
    return lax.conv_general_dilated(
        images,
        jnp.asarray(kernel),
        padding=((1, 2), (0, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
        **{"window_strides": (2, 1), **options},
    )


def windows(images, initial, combine, size=3):
    return lax.reduce_window(
        images, initial, combine, (1, size, size, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (0, 1), (0, 0))
    )


def images(x):
    normed = jnp.maximum(convolve(x) * NUMBERS[None, None, None, :6] + 1, 0).mean(axis=(1, 2))
    padded = convolve(jnp.pad(x, ((0, 0), (1, 0), (0, 2), (0, 0))))
    pooled = windows(x, -jnp.inf, lax.max), windows(x, 0.0, lax.add, 2) / 4
    apart = convolve(x, DEPTHWISE, 4), convolve(x, rhs_dilation=(2, 1))
    return convolve(x), *apart, normed, padded, *pooled, x[:, ::2, 1::2]


def calls(x):
    """A derivative of its own, a form for the CPU with an operation that ONNX lacks, steps."""
    by_platform = lax.platform_dependent(
        x, cpu=lambda x: x * 2 + jnp.sinh(0 * x), default=lambda x: x * 2
    )
    steps = lax.scan(lambda total, row: (total * 0.5 + row, None), x, NUMBERS[:3])[0]
    return jax.nn.relu(x), by_platform, steps


CASES = {
    arithmetic: ROWS,
    functions: SMALL,
    integers: INTEGERS,
    choices: ROWS,
    shapes: ROWS,
    reductions: SMALL,
    orders: ROWS,
    reads: SMALL,
    writes: SMALL,
    products: SMALL,
    images: IMAGES,
    calls: SMALL,
}


@pytest.mark.parametrize("function", CASES, ids=lambda one: one.__name__)
def test_onnx_runtime_computes_the_same(function):
    in_onnx.check(function, CASES[function])


def test_bytes():
    in_onnx.check(lambda x: x.astype(jnp.float32) / 255, INTEGERS.astype(np.uint8))


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (jnp.sinh, "the operation sinh of JAX"),
        (lambda x: x[1:], "a part of the examples"),
        (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 0, 1))), "padding between numbers"),
        (lambda x: x.astype(jnp.bfloat16), "numbers of the type bfloat16"),
        (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), "a condition that is computed"),
        (lambda x: jnp.arange(x.shape[0]), "numbers of examples"),
        (lambda x: x.at[:, np.array([9])].set(0.0), "numbers that are written outside an array"),
        (
            lambda x: lax.scan(lambda y, row: (y + row, None), x[:, 0], x.T)[0],
            "steps over examples",
        ),
    ],
)
def test_what_has_no_form_is_named(function, what):
    with pytest.raises(UserError, match=f"--format=onnx has no form of {what}"):
        in_onnx.lowered(function, ROWS)
