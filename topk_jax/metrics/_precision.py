"""How well scores rank the examples that have a label, for several labels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding
from topk_jax.metrics._curves import compute_sums, share
from topk_jax.metrics._tally import compute_weights

__all__ = ["mean_average_precision"]

# How many scores are sorted at once.
_BLOCK = 2**22


def mean_average_precision(
    scores: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The mean over classes of the average precision of each class (mAP).

    For each class c, the examples are ordered by their score of c:

    .. math::
        \mathrm{AP}_c = \frac{1}{n_c} \sum_{i : c \in Y_i}
        \frac{n(c \in Y, \, s_c \ge s_{i c})}{n(s_c \ge s_{i c})}, \qquad n_c = n(c \in Y)

    Here n is the sum of the weights of such examples. Examples with one score come together: each
    has the precision of all of them. So the order of the examples does not matter, and constant
    scores have the share of the label as their average precision. This is not interpolated, and it
    is not a mean of batches: all examples are needed at once. If the batch is split over devices,
    each of them gets all scores.

    Args:
        scores: floating-point scores of any range, larger for classes that fit better, `[..., L]`.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1. An
            example with another traced number is left out.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        A float scalar in [0, 1]: the mean over the classes that are a label of an example; NaN if
        there are none, if a score is NaN, or if a traced weight is negative or not finite.

    Raises:
        TypeError: `scores` is not floating-point, `targets` or `weights` is not real, or `where` is
            not boolean.
        ValueError: the shapes do not match, a concrete target is neither 0 nor 1, or a concrete
            weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.9, 0.2], [0.5, 0.2], [0.1, 0.7]])
        >>> targets = jnp.array([[1, 1], [0, 0], [1, 0]])
        >>> print(metrics.mean_average_precision(scores, targets))
        0.5833334

    See Also:
        `macro_f1`, `auroc`.

    Source: Buckley and Voorhees (2000), "Evaluating evaluation measure stability", for the average
    precision. Its mean over classes is the usual one of several labels.
    """
    values = _checks.floating_array(scores, "scores")
    labels, is_target = _checks.multi_hot(targets, "targets", values.shape)
    counts = compute_weights(values.shape[:-1], where, weights)
    counts = jnp.where(is_target.all(axis=-1), counts, 0)
    values, labels, counts = map(_sharding.gather, (values, labels, counts))
    values = jnp.where(counts[..., None] == 0, 0, values)
    return _mean_average_precision(
        values.reshape(-1, values.shape[-1]), labels.reshape(-1, labels.shape[-1]), counts.ravel()
    )


@jax.jit
def _mean_average_precision(scores: jax.Array, labels: jax.Array, counts: jax.Array) -> jax.Array:
    """The mean of scores and labels [n, L] with the weights [n], a block of classes at a time."""
    valid = ~jnp.isnan(scores).any() & ~jnp.isnan(counts.astype(scores.dtype)).any()

    def of_class(arrays: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        scores, labels = arrays
        hits = jnp.where(labels, counts, 0)
        found, everything = compute_sums(scores, hits, counts)
        # All examples of one score have the same sums, so that the first of them has the step.
        steps = jnp.diff(found, prepend=jnp.zeros(1, found.dtype))
        precision = share(found, jnp.where(everything > 0, everything, 1))
        total = hits.sum()
        parts = jnp.where(steps == 0, 0.0, share(steps, jnp.where(total > 0, total, 1)) * precision)
        return parts.sum(), total > 0

    block = max(1, _BLOCK // max(1, scores.shape[0]))
    means, present = jax.lax.map(of_class, (scores.T, labels.T), batch_size=block)
    mean = share(jnp.where(present, means, 0).sum(), present.sum())
    # A rounded sum can be a little more than 1.
    return _numerics.nan_unless(valid, jnp.minimum(mean, 1))
