"""How well scores rank examples: the area under the ROC curve, and average precision."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _example, _sharding
from topk_jax.metrics._tally import weights_of

__all__ = ["auroc", "mean_average_precision"]

# How many scores of `mean_average_precision` are sorted at once.
_BLOCK = 2**22


def auroc(
    scores: ArrayLike,
    positives: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The area under the ROC curve: how often a positive example has the larger score.

    .. math:: P(s_+ > s_-) + \frac{1}{2} P(s_+ = s_-)

    Here :math:`s_+` and :math:`s_-` are the scores of a positive and of a negative example, each
    drawn in proportion to its weight. All examples are needed at once: the areas of batches have no
    useful mean.

    Args:
        where, weights: see `topk_jax.metrics`.
        scores: floating-point and larger for positive examples, `[...]`: for example outlier scores
            to distinguish new classes from known ones.
        positives: which examples are positive, booleans `[...]`.

    Returns:
        A float scalar in [0, 1]; NaN without positive or without negative examples, or if a score
        is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([0.1, 0.4, 0.4, 0.8])
        >>> print(metrics.auroc(scores, jnp.array([False, False, True, True])))
        0.875

    Source: Fawcett (2006), "An introduction to ROC analysis".
    """
    values, (positive,), counts = all_examples(
        "scores", scores, {"positives": positives}, where, weights
    )
    masses = jnp.where(positive, 0, counts), jnp.where(positive, counts, 0)
    return area(*curve(values, masses, masses))


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

    Here n is the sum of the weights of such examples. Examples with one score come together, so
    that constant scores have the share of the label as their average precision. This is not
    interpolated, and all examples are needed at once.

    Args:
        targets, where, weights: see `topk_jax.metrics`. An example with a traced target that is
            neither 0 nor 1 is left out.
        scores: floating-point scores of any range, larger for classes that fit better, `[..., L]`.

    Returns:
        A float scalar in [0, 1]: the mean over the classes that are a label of an example; NaN if
        there are none, or if a score is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.9, 0.2], [0.5, 0.2], [0.1, 0.7]])
        >>> targets = jnp.array([[1, 1], [0, 0], [1, 0]])
        >>> print(metrics.mean_average_precision(scores, targets))
        0.5833334

    Source: Buckley and Voorhees (2000), "Evaluating evaluation measure stability", for the average
    precision. Its mean over classes is the usual one of several labels.
    """
    values = _checks.floating_array(scores, "scores")
    labels, is_target = _checks.multi_hot(targets, "targets", values.shape)
    counts = weights_of(values.shape[:-1], where, weights)
    counts = jnp.where(is_target.all(axis=-1), counts, 0)
    values, labels, counts = map(_sharding.gather, (values, labels, counts))
    values = jnp.where(counts[..., None] == 0, 0, values)
    size = values.shape[-1]
    return _mean_average_precision(
        values.reshape(-1, size), labels.reshape(-1, size), counts.ravel()
    )


@jax.jit
def _mean_average_precision(scores: jax.Array, labels: jax.Array, counts: jax.Array) -> jax.Array:
    """The mean of scores and labels [n, L] with the weights [n], a block of classes at a time."""
    valid = ~jnp.isnan(scores).any() & ~jnp.isnan(counts.astype(scores.dtype)).any()

    def of_class(arrays: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        scores, labels = arrays
        hits = jnp.where(labels, counts, 0)
        found, everything = _sums(scores, hits, counts)
        # All examples of one score have the same sums, so that the first of them has the step.
        steps = jnp.diff(found, prepend=jnp.zeros(1, found.dtype))
        precision = _share(found, jnp.where(everything > 0, everything, 1))
        total = hits.sum()
        parts = _share(steps, jnp.where(total > 0, total, 1)) * precision
        return jnp.where(steps == 0, 0.0, parts).sum(), total > 0

    block = max(1, _BLOCK // max(1, scores.shape[0]))
    means, present = jax.lax.map(of_class, (scores.T, labels.T), batch_size=block)
    mean = _share(jnp.where(present, means, 0).sum(), present.sum())
    # A rounded sum can be a little more than 1.
    return _example.nan_unless(valid, jnp.minimum(mean, 1))


def all_examples(
    name: str,
    scores: ArrayLike,
    marks: dict[str, ArrayLike],
    where: ArrayLike | None,
    weights: ArrayLike | None,
) -> tuple[jax.Array, list[jax.Array], jax.Array]:
    """Scores, booleans and weights of all examples, each `[n]`, on each device.

    Those that are left out have a score and a weight of 0. A NaN makes all scores NaN.
    """
    given = _checks.floating_numbers(scores, name)
    booleans = [_checks.boolean_array(mark, label, given.shape) for label, mark in marks.items()]
    counts = weights_of(given.shape, where, weights)
    values, counts, *found = (
        _sharding.gather(array).reshape(-1) for array in (given, counts, *booleans)
    )
    values = jnp.where(counts == 0, 0, values)
    return _example.nan_unless(~jnp.isnan(values).any(), values), found, counts


@jax.jit
def curve(
    scores: jax.Array,
    masses: tuple[jax.Array, jax.Array],
    wholes: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The sums of each mass from the largest score down, as shares of its total, `[n + 1]`."""
    dtype, valid = jnp.result_type(float), ~jnp.isnan(scores).any()
    rates = []
    for found, whole in zip(_sums(scores, *masses), wholes, strict=True):
        points = jnp.concatenate([jnp.zeros(1, dtype), found.astype(dtype)])
        rates.append(_example.nan_unless(valid, _share(points, whole.sum())))
    return rates[0], rates[1]


def _sums(scores: jax.Array, *masses: jax.Array) -> list[jax.Array]:
    """The sums of each mass [n] over the examples of no smaller score, from the largest score down.

    Each example of several with one score has the sums of all of them: ties count together.
    """
    descending, *ordered = jax.lax.sort((-scores, *masses), num_keys=1)
    number = scores.shape[0]
    is_last = jnp.append(descending[1:] != descending[:-1], True)
    ends = jnp.where(is_last, jnp.arange(number), number - 1)
    # Trees, on all platforms: few roundings, and no window as long as the batch.
    ends = jax.lax.associative_scan(jnp.minimum, ends, reverse=True)
    return [jax.lax.associative_scan(jnp.add, mass)[ends] for mass in ordered]


@jax.jit
def area(x: jax.Array, y: jax.Array) -> jax.Array:
    """The area under straight lines between the points of a curve; NaN without other points."""
    # A rounded sum can be a little more than 1.
    found = jnp.minimum((jnp.diff(x) * (y[1:] + y[:-1])).sum() / 2, 1)
    return _example.nan_unless(~jnp.isnan(x[0] + y[0]), found)


def _share(part: jax.Array, whole: jax.Array) -> jax.Array:
    """The quotients in the default float type; NaN where the denominator is 0."""
    dtype = jnp.result_type(float)
    shares = part.astype(dtype) / jnp.where(whole > 0, whole, 1).astype(dtype)
    return jnp.where(whole > 0, shares, jnp.nan)
