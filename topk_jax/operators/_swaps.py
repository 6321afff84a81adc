"""The gates of comparators that are certain only if the scores are far apart."""

import math

import jax
import jax.numpy as jnp

from topk_jax import _numerics
from topk_jax.operators._sorting_networks import Gates

# If scores are farther apart than this, one of them is the score of a masked class.
_FAR = -0.5 * _numerics.FLOOR
# As in difftopk: the derivative of a power of the gap is finite at 0.
_SMALLEST_GAP = 1e-10


def gates(gap: jax.Array, swap: str, tau: jax.Array, art_lambda: jax.Array | None) -> Gates:
    """The gates of comparators whose second score exceeds the first by `gap`.

    Hazard: a Cauchy swap has such heavy tails that a masked class at -1e30 would shift the scores
    that it is compared with by tau / pi. Choice: comparators with one masked class are certain.
    """
    is_far = jnp.abs(gap) > _FAR
    near = jnp.where(is_far, 1.0, gap)
    scaled = near / tau
    if art_lambda is not None:
        scaled = scaled / (jnp.abs(near) + _SMALLEST_GAP) ** art_lambda
    keep, swapped = _SWAPS[swap](scaled)
    certain = jnp.where(gap > 0, 0.0, _numerics.FLOOR).astype(gap.dtype)
    reverse = _numerics.FLOOR - certain
    return Gates(jnp.where(is_far, certain, keep), jnp.where(is_far, reverse, swapped))


def _logistic(gap: jax.Array) -> Gates:
    return Gates(-jax.nn.softplus(-gap), -jax.nn.softplus(gap))


def _cauchy(gap: jax.Array) -> Gates:
    """Identity: 1/2 + arctan(v) / pi = arctan2(1, -v) / pi, which keeps the digits of the tail."""

    def log_probability(gap: jax.Array) -> jax.Array:
        return jnp.log(jnp.arctan2(jnp.ones_like(gap), -gap) / math.pi)

    return Gates(log_probability(gap), log_probability(-gap))


def _optimal(gap: jax.Array) -> Gates:
    """Linear up to 1/4, then as far from 0 and 1 as the error bound of the paper allows."""

    def log_probability(gap: jax.Array) -> jax.Array:
        is_linear = (gap >= -0.25) & (gap <= 0.25)
        tail = 1 / (16 * jnp.where(is_linear, 1.0, gap))
        linear = jnp.log(0.5 + jnp.where(is_linear, gap, 0.0))
        low = jnp.log(jnp.where(gap < -0.25, -tail, 1.0))
        high = jnp.log1p(-jnp.where(gap > 0.25, tail, 0.0))
        return jnp.where(is_linear, linear, low + high)

    return Gates(log_probability(gap), log_probability(-gap))


_SWAPS = {"logistic": _logistic, "cauchy": _cauchy, "optimal": _optimal}
SWAPS = tuple(_SWAPS)
