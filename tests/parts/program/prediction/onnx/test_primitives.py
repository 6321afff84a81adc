"""Each primitive of the table computes in ONNX Runtime what it computes in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.parts.program.prediction.onnx import in_onnx
from train.foundation.errors import UserError
from train.prediction.onnx import lowering, model, table

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(3, 8)).astype(np.float32)
# With equal numbers, and the largest float.
ROWS[1, 2:5] = ROWS[1, 2]
ROWS[2, 7] = np.finfo(np.float32).max / 4
SMALL = GENERATOR.normal(size=(3, 8)).astype(np.float32)
IMAGES = GENERATOR.normal(size=(2, 7, 6, 4)).astype(np.float32)
INTEGERS = GENERATOR.integers(-40, 40, (3, 8)).astype(np.int32)
KERNEL = GENERATOR.normal(size=(3, 2, 4, 6)).astype(np.float32)
DEPTHWISE = GENERATOR.normal(size=(3, 3, 1, 4)).astype(np.float32)
MATRIX = GENERATOR.normal(size=(8, 5)).astype(np.float32)
NUMBERS = GENERATOR.normal(size=8).astype(np.float32)


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


def hashed(rows):
    """Products of 32 bits, as names are hashed."""
    numbers = (rows.astype(jnp.uint32) ^ jnp.uint32(77)) * jnp.uint32(0x9E3779B1)
    return (numbers ^ (numbers >> jnp.uint32(15))) % jnp.uint32(1000)


def with_slope(rows):
    """A function with a derivative of its own."""
    return jax.nn.relu(rows) + jax.nn.silu(rows)


def by_platform(rows):
    """The CPU's form has an operation that is not in the table."""
    return lax.platform_dependent(
        rows, cpu=lambda x: x * 2 + jnp.sinh(0 * x), default=lambda x: x * 2
    )


def scanned(rows):
    def step(total, row):
        return total + row, total * 2

    return lax.scan(step, jnp.zeros((), jnp.float32), jnp.asarray(NUMBERS))[1][None] + rows[:, :1]


def scanned_by_row(rows):
    def of_row(row):
        def step(carried, number):
            return carried * 0.5 + number * row, carried[:2]

        return lax.scan(step, row, jnp.asarray(NUMBERS[:3]), reverse=True)

    return jax.vmap(of_row)(rows)


def scanned_over_columns(rows):
    return lax.scan(lambda total, column: (total + column, total), rows[:, 0], rows.T)[0]


CASES = {
    "sums": (lambda x: (x + 1) - x * jnp.asarray(NUMBERS)[None], ROWS),
    "norms": (lambda x: (x - NUMBERS[None]) * (2 / jnp.sqrt(NUMBERS**2 + 1))[None], ROWS),
    "quotients": (lambda x: x / (jnp.abs(x) + 1), ROWS),
    "whole quotients": (lambda x: (lax.div(x, jnp.int32(7)), lax.rem(x, jnp.int32(7))), INTEGERS),
    "functions": (
        lambda x: (jnp.exp(x), jnp.tanh(x), lax.logistic(x), lax.erf(x), lax.erfc(x), lax.sign(x)),
        SMALL,
    ),
    "powers": (lambda x: (x**3, lax.square(x), jnp.abs(x) ** 1.5, lax.integer_pow(x, 4)), SMALL),
    "roots": (
        lambda x: (jnp.sqrt(abs(x)), lax.rsqrt(abs(x)), jnp.log(abs(x)), jnp.log1p(abs(x))),
        SMALL,
    ),
    "roundings": (lambda x: (jnp.round(4 * x), jnp.floor(x), jnp.ceil(x), -x), SMALL),
    "limits": (lambda x: (lax.clamp(-0.5, x, 0.5), jnp.maximum(x, 0), jnp.minimum(x, 0)), ROWS),
    "comparisons": (
        lambda x: (x == x[:, :1], x != 0.5, x < 0, x <= x[:, 2:3], x > 0, x >= x[:, 2:3]),
        ROWS,
    ),
    "booleans": (lambda x: ((x > 0) & (x < 1) | ~(x > -1)) ^ (x > 0.1), ROWS),
    "bits": (lambda x: (x & 12, x | 3, x ^ 5, ~x), INTEGERS),
    "hashes": (hashed, INTEGERS),
    "choices": (lambda x: (jnp.where(x > 0, x, -x), jnp.where(x > 0, x > 1, x < -1)), ROWS),
    "finite": (lambda x: jnp.isfinite(jnp.where(x > 0, jnp.inf, x) * jnp.float32(0)), ROWS),
    "types": (
        lambda x: ((x > 0).astype(jnp.float32), x.astype(jnp.int32), (x > 0).astype(jnp.int32)),
        SMALL,
    ),
    "unsigned": (lambda x: (x.astype(jnp.uint32) - jnp.uint32(3), x > 0), INTEGERS),
    "bytes": (lambda x: x.astype(jnp.float32) / 255, INTEGERS.astype(np.uint8)),
    "as they are": (lambda x: lax.stop_gradient(lax.optimization_barrier(jnp.copy(x))), ROWS),
    "shapes": (
        lambda x: (
            x.reshape(-1, 2).reshape(-1, 8),
            x.reshape(-1, 2, 4).transpose(0, 2, 1),
            x[:, None],
        ),
        ROWS,
    ),
    "squeezed": (lambda x: lax.squeeze(x[:, :, None], (2,)), ROWS),
    "stretched": (
        lambda x: (
            jnp.broadcast_to(x[:, :, None], (*x.shape, 3)),
            jnp.broadcast_to(x[:, :1], x.shape),
        ),
        ROWS,
    ),
    "stretched and summed": (lambda x: jnp.broadcast_to(x[:, :1], x.shape).sum(axis=1), ROWS),
    "joined": (
        lambda x: (jnp.concatenate([x, x[:, 2:], jnp.zeros_like(x)], 1), jnp.stack([x, -x], 1)),
        ROWS,
    ),
    "split": (lambda x: tuple(jnp.split(x, [2, 5], axis=1)), ROWS),
    "parts": (lambda x: (lax.slice_in_dim(x, 1, 7, 2, axis=1), x[:, ::-1], x[:, 5:1:-2]), ROWS),
    "padded": (
        lambda x: (jnp.pad(x, ((0, 0), (2, 1))), lax.pad(x, -jnp.inf, ((0, 0, 0), (-1, 3, 0)))),
        ROWS,
    ),
    "padded images": (lambda x: convolve(jnp.pad(x, ((0, 0), (1, 0), (0, 2), (0, 0)))), IMAGES),
    "counted": (lambda x: x + jnp.arange(8, dtype=jnp.float32)[None], ROWS),
    "counted examples": (lambda x: x + jnp.arange(x.shape[0])[:, None].astype(jnp.float32), ROWS),
    "reductions": (
        lambda x: (x.sum(1), x.max(1), x.min(1), x.prod(1), x.mean(1, keepdims=True)),
        SMALL,
    ),
    "reductions of booleans": (lambda x: ((x > 0.5).any(1), (x > -0.5).all(1)), SMALL),
    "places": (lambda x: (x.argmax(1), x.argmin(1), jnp.argmax(x, axis=1, keepdims=True)), ROWS),
    "running": (
        lambda x: (jnp.cumsum(x, axis=1), lax.cumsum(x, 1, reverse=True), lax.cummax(x, 1)),
        SMALL,
    ),
    "running back": (lambda x: lax.cummax(x, 1, reverse=True), SMALL),
    "orders": (lambda x: (*lax.top_k(x, 3), jnp.sort(x, axis=1)), ROWS),
    "entries": (lambda x: jnp.take_along_axis(x, lax.top_k(x, 8)[1][:, ::-1], axis=1), ROWS),
    "entries or NaN": (lambda x: jnp.take(x, np.array([1, 0, 9]), axis=1, mode="fill"), ROWS),
    "entries at the end": (
        lambda x: jnp.take(jnp.asarray(NUMBERS), x.astype(jnp.int32) * 3, mode="clip"),
        SMALL,
    ),
    "filled": (
        lambda x: jnp.take(jnp.asarray(NUMBERS), x % 12, mode="fill", fill_value=5.0),
        INTEGERS,
    ),
    "rows of a table": (lambda x: jnp.asarray(MATRIX)[x.argmax(axis=1)], ROWS),
    "numbers of a table": (lambda x: jnp.asarray(MATRIX)[x.argmax(axis=1), x.argmin(1) % 5], ROWS),
    "columns": (lambda x: (x[:, np.array([3, 1, 1])], x[:, 2], x[:, 1::3]), ROWS),
    "every second pixel": (lambda x: x[:, ::2, 1::2], IMAGES),
    "written": (
        lambda x: (
            x.at[:, np.array([1, 4])].set(x[:, :2]),
            x.at[:, 2:5].set(0.0),
            jnp.zeros((x.shape[0], 9)).at[:, :8].set(x),
        ),
        ROWS,
    ),
    "added": (
        lambda x: (
            jnp.zeros((x.shape[0], 3)).at[:, np.array([0, 1, 2, 2, 1, 0, 7, 7])].add(x, mode="drop")
        ),
        SMALL,
    ),
    "products": (lambda x: (x @ MATRIX, jnp.einsum("nl,ml->nm", x, MATRIX.T[:, :8])), SMALL),
    "products of examples": (
        lambda x: jnp.einsum("nab,ncb->nac", x.reshape(-1, 4, 2), x.reshape(-1, 4, 2)[:, :3]),
        SMALL,
    ),
    "products with heads": (
        lambda x: jnp.einsum(
            "nqd,dhk->nqhk", x.reshape(-1, 2, 4), jnp.asarray(MATRIX).reshape(4, 2, 5)
        ),
        SMALL,
    ),
    "sums with heads": (
        lambda x: jnp.einsum(
            "nhk,hkd->nd", x.reshape(-1, 2, 4), jnp.asarray(MATRIX).reshape(2, 4, 5)
        ),
        SMALL,
    ),
    "factors": (lambda x: jnp.einsum("...c,c->...c", x, NUMBERS), SMALL),
    "outer products": (lambda x: jnp.einsum("na,nb->nab", x, x[:, :3]), SMALL),
    "convolutions": (convolve, IMAGES),
    "convolutions apart": (lambda x: convolve(x, DEPTHWISE, 4), IMAGES),
    "wide convolutions": (lambda x: convolve(x, rhs_dilation=(2, 1)), IMAGES),
    "convolutions and norms": (
        lambda x: jnp.maximum(convolve(x) * NUMBERS[None, None, None, :6] + 1, 0).mean(axis=(1, 2)),
        IMAGES,
    ),
    "largest of windows": (lambda x: windows(x, -jnp.inf, lax.max), IMAGES),
    "sums of windows": (lambda x: windows(x, 0.0, lax.add, 2) / 4, IMAGES),
    "derivatives": (with_slope, ROWS),
    "platforms": (by_platform, ROWS),
    "steps": (scanned, ROWS[:1]),
    "steps of examples": (scanned_by_row, SMALL),
    "steps over columns": (scanned_over_columns, SMALL),
}


def primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(
            equation.params, is_leaf=lambda one: hasattr(one, "jaxpr") or hasattr(one, "eqns")
        ):
            if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                yield from primitives(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_computes_the_same(name):
    in_onnx.check(*CASES[name])


def test_every_primitive_has_a_case():
    found = set()
    for function, examples in CASES.values():
        found |= set(primitives(lowering.trace(function, examples.shape[1:], examples.dtype).jaxpr))
    assert set(table.LOWERINGS) - found == set()


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (jnp.sinh, "the operation sinh of JAX"),
        (
            lambda x: lax.sort((x, x), num_keys=2)[0],
            "the operation sort of JAX for a sort of several",
        ),
        (lambda x: x[1:], "the operation gather of JAX for a part of the examples"),
        (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 0, 1))), "padding between numbers"),
        (lambda x: x.astype(jnp.bfloat16), "numbers of the type bfloat16"),
        (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), "a condition that is computed"),
    ],
)
def test_what_has_no_form_is_named(function, what):
    with pytest.raises(UserError, match="--format=onnx has no form of") as refused:
        in_onnx.lowered(function, ROWS)
    assert what in str(refused.value)


def test_large_constants_are_stored_once_and_in_16_bits_if_these_have_them():
    matrix = np.asarray(GENERATOR.normal(size=(40, 8)), np.float16).astype(np.float32)

    def function(rows):
        return (rows @ matrix.T @ matrix,)

    sizes = [
        len(model.make(function, "x", (8,), np.float32, ["y"], {}, half=half))
        for half in (False, True)
    ]
    saved = matrix.nbytes
    assert sizes[0] - sizes[1] > 0.9 * saved
