"""NeuralSort: ranks as softmaxes of scores minus the sum of their distances to all others."""

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _numerics, _sharding
from topk_jax._entries import take_along


def log_neural_sort(
    scores: jax.Array, k: int, tau: jax.Array, labels: jax.Array | None = None
) -> jax.Array:
    """The logarithms of the relaxed ranks of finite scores [..., L], `[..., k, L]`.

    With `labels` [...], only those of these classes, `[..., k]`.

    Hazard: among equal scores the order of a sort decides which of them has which derivative, and a
    network that starts with equal scores would prefer some classes. Choice: the mean over both
    orders, which is the derivative with sign(0) = 0 in the sum of pairwise distances. Both have the
    same sorted scores, so that the second one is the first with the places of equal scores
    mirrored. Cost: all that comes after the sort is computed twice.
    """
    frozen = jax.lax.stop_gradient(scores)
    given = (frozen,) if labels is None else (frozen, labels)
    order, mirrored, places = _sharding.map_examples(_in_order, scores.ndim - 1, *given)
    take = _take_all if labels is None else _take_one

    def by_order(one_order: jax.Array, its_places: jax.Array) -> jax.Array:
        by_place = jax.nn.log_softmax(-_deficits(take_along(scores, one_order), k) / tau, axis=-1)
        return take(by_place, its_places)

    return 0.5 * (
        by_order(order, places)
        + by_order(take_along(order, mirrored), take_along(mirrored, places))
    )


def _in_order(
    scores: jax.Array, labels: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The classes from the largest score down, the mirrored places, and the places of classes."""
    last = scores.ndim - 1
    classes = jax.lax.broadcasted_iota(jnp.int32, scores.shape, last)
    ascending, order = jax.lax.sort((-scores, classes), dimension=last, num_keys=1)
    if labels is None:
        places = jnp.argsort(order, axis=-1)
    else:
        places = (order.astype(labels.dtype) == labels[..., None]).argmax(axis=-1, keepdims=True)
    return order, _mirror_ties(ascending), places


def _mirror_ties(in_order: jax.Array) -> jax.Array:
    """The places of sorted numbers [..., L] if equal ones were in the opposite order."""
    size, last = in_order.shape[-1], in_order.ndim - 1
    places = jax.lax.broadcasted_iota(jnp.int32, in_order.shape, last)
    differs = in_order[..., 1:] != in_order[..., :-1]
    before = [(0, 0)] * last
    is_first = jnp.pad(differs, [*before, (1, 0)], constant_values=True)
    is_last = jnp.pad(differs, [*before, (0, 1)], constant_values=True)
    first = jax.lax.cummax(jnp.where(is_first, places, 0), axis=last)
    ends = jax.lax.cummin(jnp.where(is_last, places, size - 1), axis=last, reverse=True)
    return first + ends - places


def _take_all(by_place: jax.Array, places: jax.Array) -> jax.Array:
    """Ranks [..., k, L] of the classes, in the order of the classes."""
    return take_along(by_place, places[..., None, :])


def _take_one(by_place: jax.Array, places: jax.Array) -> jax.Array:
    """Ranks [..., k] of one class, whose place is [..., 1].

    On a TPU, a gather of one class would first copy all ranks of all classes.
    """
    return _numerics.score_of_label(by_place, jnp.broadcast_to(places, by_place.shape[:-1]))


def _deficits(sorted_scores: jax.Array, k: int) -> jax.Array:
    """How far each position is below the best one in each of the first k rows, `[..., k, L]`.

    Identity: in row j (from 0) the logit of NeuralSort at position r is the one at position j minus
    the sum of |2 (q - j) + 1| (s_q - s_{q+1}) over the positions q between r and j. Hazard: the sum
    of L distances has an absolute error of L times the error of a score, and differences of such
    sums do not have a correct digit at 1e4 classes. Choice: only nonnegative terms are added,
    outwards from j. Terms of masked classes stay apart from others, as in a vector without these
    classes. Cost: a cumulative sum over the classes for each row.
    """
    length = sorted_scores.shape[-1]
    gaps = (sorted_scores[..., :-1] - sorted_scores[..., 1:])[..., None, :]
    rows = np.arange(k)[:, None]
    steps = np.arange(length - 1)[None]
    below = np.where(steps >= rows, 2 * (steps - rows) + 1, 0)
    above = np.where(steps < rows, 2 * (rows - steps) - 1, 0)[:, : k - 1]
    last = gaps.ndim - 1
    beyond = jax.lax.cumsum(_constant(below, gaps) * gaps, axis=last)
    before = _constant(above, gaps) * gaps[..., : k - 1]
    before = jax.lax.cumsum(before, axis=last, reverse=True)
    batch = [(0, 0)] * last
    return jnp.pad(beyond, [*batch, (1, 0)]) + jnp.pad(before, [*batch, (0, length - k + 1)])


def _constant(table: np.ndarray, like: jax.Array) -> jax.Array:
    return jnp.asarray(table.reshape(*[1] * (like.ndim - 2), *table.shape), like.dtype)
