"""Ordinals of floats: their order, from minus infinity to infinity, and the way back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import _ordinals

SPECIAL = [-np.inf, -1e30, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 1e30, np.inf]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ordinals_have_the_order_of_the_floats(rng, dtype):
    with jax.enable_x64(dtype == np.float64), np.errstate(over="ignore", under="ignore"):
        for drawn in (SPECIAL, np.sort(rng.normal(size=200))):
            floats = np.array(drawn).astype(dtype)
            ordinals = _ordinals.to_ordinals(jnp.asarray(floats))
            assert ordinals.dtype == f"uint{8 * floats.itemsize}"
            # In 16 bits some of them are equal, but -0 and 0 never are.
            differ = np.diff(np.asarray(ordinals).astype(object))
            assert ((differ > 0) == (np.diff(floats.view(ordinals.dtype)) != 0)).all()
            assert (differ >= 0).all()
            back = _ordinals.to_floats(ordinals, jnp.dtype(dtype))
            assert np.asarray(back).tobytes() == floats.tobytes()


def test_the_next_ordinal_is_that_of_the_next_float():
    floats = np.float32([-2.5, -1e-45, 0.0, 1.0, 1e30])
    following = np.nextafter(floats, np.float32(np.inf))
    ordinals = _ordinals.to_ordinals(jnp.asarray(floats))
    # After the negative number that is nearest to 0 comes -0.
    assert _ordinals.to_floats(ordinals + jnp.uint32(1), jnp.dtype("float32")).tolist() == (
        following.tolist()
    )
