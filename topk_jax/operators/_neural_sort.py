"""NeuralSort: ranks as softmaxes of scores minus the sum of their distances to all others."""

import jax
import jax.numpy as jnp
import numpy as np


def log_neural_sort(
    scores: jax.Array, k: int, tau: jax.Array, classes: jax.Array | None = None
) -> jax.Array:
    """The logarithms of the relaxed ranks of finite scores [..., L], `[..., k, L]`.

    With `classes` [..., C], only the results of these classes, `[..., k, C]`.

    Hazard: among equal scores the order of a sort decides which of them has which derivative, and a
    network that starts with equal scores would prefer some classes. Choice: the mean over both
    orders, which is the derivative with sign(0) = 0 in the sum of pairwise distances. Cost: a
    second sort.
    """
    frozen = jax.lax.stop_gradient(scores)
    ascending = jnp.argsort(frozen, axis=-1, stable=True)
    orders = (jnp.argsort(-frozen, axis=-1, stable=True), ascending[..., ::-1])
    first, second = (_log_ranks_by_order(scores, order, k, tau, classes) for order in orders)
    return 0.5 * (first + second)


def _log_ranks_by_order(
    scores: jax.Array, order: jax.Array, k: int, tau: jax.Array, classes: jax.Array | None
) -> jax.Array:
    sorted_scores = jnp.take_along_axis(scores, order, axis=-1, mode="promise_in_bounds")
    by_position = jax.nn.log_softmax(-_deficits(sorted_scores, k) / tau, axis=-1)
    positions = jnp.argsort(order, axis=-1)
    if classes is not None:
        positions = jnp.take_along_axis(positions, classes, axis=-1, mode="promise_in_bounds")
    return jnp.take_along_axis(
        by_position, positions[..., None, :], axis=-1, mode="promise_in_bounds"
    )


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
