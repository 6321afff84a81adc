"""Sums along examples in the order of their scores; examples of one score come together."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax.metrics._tally import compute_weights


def compute_sums(scores: jax.Array, *masses: jax.Array) -> list[jax.Array]:
    """The sums of each mass [n] over the examples of no smaller score, from the largest score down.

    Each example of several with one score has the sums of all of them: ties count together.
    """
    descending, *ordered = jax.lax.sort((-scores, *masses), num_keys=1)
    number = scores.shape[0]
    places = jnp.arange(number)
    is_last = jnp.append(descending[1:] != descending[:-1], True)
    ends = jnp.where(is_last, places, number - 1)
    # Trees, on all platforms: few roundings, and no window as long as the batch.
    ends = jax.lax.associative_scan(jnp.minimum, ends, reverse=True)
    return [jax.lax.associative_scan(jnp.add, mass)[ends] for mass in ordered]


def compute_area(x: jax.Array, y: jax.Array) -> jax.Array:
    """The area under straight lines between the points, from (0, 0) on; NaN without points.

    Shares are at most 1, and so is the area: a rounded sum can be a little more.
    """
    if not x.size:
        return jnp.full((), jnp.nan, x.dtype)
    before_x, before_y = (jnp.append(jnp.zeros(1, each.dtype), each[:-1]) for each in (x, y))
    return jnp.minimum(((x - before_x) * (y + before_y)).sum() / 2, 1)


def scores_and_weights(
    scores: ArrayLike,
    name: str,
    marks: dict[str, ArrayLike],
    where: ArrayLike | None,
    weights: ArrayLike | None,
) -> tuple[jax.Array, list[jax.Array], jax.Array, jax.Array]:
    """Scores, booleans and weights of all examples, each `[n]`, and whether all scores are numbers.

    Each device gets all examples. Those that are left out have a score and a weight of 0.
    """
    values = _checks.floating_numbers(scores, name)
    given = [_checks.boolean_array(mark, label, values.shape) for label, mark in marks.items()]
    counts = compute_weights(values.shape, where, weights)
    values, counts, *booleans = (
        _sharding.gather(array).reshape(-1) for array in (values, counts, *given)
    )
    values = jnp.where(counts == 0, 0, values)
    return values, booleans, counts, ~jnp.isnan(values).any()


def share(part: jax.Array, whole: jax.Array) -> jax.Array:
    """The quotients in the default float type; NaN where the denominator is 0."""
    dtype = jnp.result_type(float)
    shares = part.astype(dtype) / jnp.where(whole > 0, whole, 1).astype(dtype)
    return jnp.where(whole > 0, shares, jnp.nan)
