"""Code for the CPU and for accelerators: each gets its part, and both find the same."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import _compilation, _search, losses, operators


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ordinals_have_the_order_of_the_floats(rng, dtype):
    special = [-np.inf, -1e30, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 1e30, np.inf]
    with jax.enable_x64(dtype == np.float64), np.errstate(over="ignore", under="ignore"):
        floats = np.concatenate([special, np.sort(rng.normal(size=200))]).astype(dtype)
        ordinals = _search.to_ordinals(jnp.asarray(floats))
        # In 16 bits some of them are equal, but -0 and 0 never are.
        for part, drawn in zip(
            np.split(np.asarray(ordinals), [10]), np.split(floats, [10]), strict=True
        ):
            differ = np.diff(part.astype(object))
            assert ((differ > 0) == (np.diff(drawn.view(part.dtype)) != 0)).all()
            assert (differ >= 0).all()
        back = _search.to_floats(ordinals, jnp.dtype(dtype))
        assert np.asarray(back).tobytes() == floats.tobytes()


def trace_as_elsewhere(monkeypatch):
    """Has what is traced be as on an accelerator."""
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )


def test_the_last_integer(monkeypatch):
    low = np.array([3, 0, 7, 0, 2**31], np.uint32)
    high = np.array([4, 2**32 - 1, 7, 1, 2**32 - 1], np.uint32)
    bounds = np.array([2**32 - 1, 2**32 - 2, 9, 0, 2**31 + 12345], np.uint32)

    def last_at_most(bounds):
        return _search.last_where(lambda tried: tried <= bounds, low, high)

    # An empty interval has its end.
    expected = [3, 2**32 - 2, 7, 0, 2**31 + 12345]
    np.testing.assert_array_equal(jax.jit(last_at_most)(bounds), expected)
    trace_as_elsewhere(monkeypatch)
    np.testing.assert_array_equal(jax.jit(last_at_most)(bounds), expected)


def has_loop(function, *arguments):
    return "stablehlo.while" in jax.jit(function).lower(*arguments).as_text()


def test_there_are_no_loops_on_accelerators(rng, monkeypatch):
    trace_as_elsewhere(monkeypatch)
    logits = rng.normal(size=(5, 7)).astype(np.float32)
    labels = rng.integers(0, 7, 5)
    assert not has_loop(functools.partial(operators.sparse_top, k=2), logits)
    wide = rng.normal(size=(2, 100)).astype(np.float32)
    smooth = functools.partial(losses.smooth_top_k_hinge, k=5, tau=1.0)
    assert not has_loop(jax.grad(lambda logits: smooth(logits, labels[:2]).sum()), wide)


@pytest.mark.parametrize("k", [1, 5])
def test_the_smooth_loss_is_the_same_without_a_loop(rng, monkeypatch, k):
    logits, labels = rng.normal(size=(2, 100)).astype(np.float32), np.array([3, 99])

    def gradient(logits):
        return jax.value_and_grad(
            lambda logits: losses.smooth_top_k_hinge(logits, labels, k=k, tau=1.0).sum()
        )(logits)

    expected = jax.jit(gradient)(logits)
    trace_as_elsewhere(monkeypatch)
    found = jax.jit(functools.partial(gradient))(logits)
    # The same terms, added up in another order.
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), found, expected
    )


def nested(x):
    """A choice inside of a choice."""

    def inner(x):
        return _compilation.choose(x, cpu=jnp.sin, default=jnp.cos)

    return inner(_compilation.choose(x, cpu=inner, default=lambda x: inner(2 * x)))


@pytest.mark.parametrize(
    ("platform", "kept", "left_out"), [("cpu", "sine", "cosine"), ("tpu", "cosine", "sine")]
)
def test_each_platform_gets_its_part(platform, kept, left_out):
    exported = jax.export.export(jax.jit(nested), platforms=[platform])(jnp.float32(0.5))
    module = exported.mlir_module()
    assert f"stablehlo.{kept} " in module
    assert f"stablehlo.{left_out} " not in module
