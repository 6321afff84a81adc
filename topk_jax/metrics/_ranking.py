"""How well scores rank examples and tell new classes: areas under curves, and shares.

All examples are needed at once: the areas of batches have no useful mean.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _sharding
from topk_jax.metrics._tally import ratio, tally, weights_of

__all__ = ["auroc", "mean_average_precision", "open_set_accuracy", "oscr_area", "oscr_curve"]

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
    drawn in proportion to its weight.

    Args:
        where, weights: see `topk_jax.metrics`.
        scores: floating-point and larger for positive examples, `[...]`, as outlier scores.
        positives: which examples are positive, booleans `[...]`.

    Returns:
        A float scalar in [0, 1]; NaN without examples of both kinds, or if a score is NaN.

    Example:
        >>> scores = jnp.array([0.1, 0.4, 0.4, 0.8])
        >>> print(auroc(scores, jnp.array([False, False, True, True])))
        0.875

    Source: Fawcett (2006), "An introduction to ROC analysis".
    """
    values, (positive,), counts = _all_examples(
        "scores", scores, {"positives": positives}, where, weights
    )
    masses = jnp.where(positive, 0, counts), jnp.where(positive, counts, 0)
    return _area(*_curve(values, masses, masses))


def mean_average_precision(
    scores: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The mean over classes of the average precision of each class (mAP), not interpolated.

    .. math::
        \mathrm{AP}_c = \frac{1}{n_c} \sum_{i : c \in Y_i}
        \frac{n(c \in Y, \, s_c \ge s_{i c})}{n(s_c \ge s_{i c})}, \qquad n_c = n(c \in Y)

    Here n is the sum of the weights of such examples.

    Args:
        scores, targets, where, weights: see `topk_jax.metrics`.

    Returns:
        A float scalar in [0, 1]: the mean over the classes that are a label of an example; NaN if
        there are none, or if a score is NaN.

    Example:
        >>> scores = jnp.array([[0.9, 0.2], [0.5, 0.2], [0.1, 0.7]])
        >>> print(mean_average_precision(scores, jnp.array([[1, 1], [0, 0], [1, 0]])))
        0.5833334

    Source: Buckley and Voorhees (2000), "Evaluating evaluation measure stability".
    """
    values = _checks.floating_array(scores, "scores")
    labels, is_target = _example.multi_hot(targets, "targets", values.shape)
    counts = weights_of(values.shape[:-1], where, weights)
    counts = jnp.where(is_target.all(axis=-1), counts, 0)
    values, labels, counts = map(_sharding.gather, (values, labels, counts))
    values = jnp.where(counts[..., None] == 0, 0, values)
    size = values.shape[-1]
    return _mean_average_precision(
        values.reshape(-1, size), labels.reshape(-1, size), counts.ravel()
    )


def open_set_accuracy(
    hits: ArrayLike,
    says_new: ArrayLike,
    is_new: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> dict[str, jax.Array]:
    """The shares of right answers, if an answer may be "a new class" beside a set of known ones.

    Args:
        where, weights: see `topk_jax.metrics`.
        hits: whether the set has the label, booleans `[...]`; not used for new classes.
        says_new: whether the answer has "new", with or without a set, booleans `[...]`.
        is_new: whether the example is of a new class, booleans `[...]`.

    Returns:
        A dictionary of float scalars in [0, 1]; NaN without such examples. "known": the hits among
        the examples of known classes. "new" and "known_as_new": the answers with "new" among the
        examples of new and of known classes. "all": the right answers among all examples.

    Example:
        >>> hits, is_new = jnp.array([True, False, False]), jnp.array([False, False, True])
        >>> rates = open_set_accuracy(hits, jnp.array([True, False, True]), is_new)
        >>> print(rates["known"], rates["new"])
        0.5 1.0

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification".
    """
    right = _checks.boolean_array(hits, "hits")
    says = _checks.boolean_array(says_new, "says_new", right.shape)
    new = _checks.boolean_array(is_new, "is_new", right.shape)
    return _open_set_accuracy(right, says, new, weights_of(right.shape, where, weights))


def oscr_curve(
    confidences: ArrayLike,
    hits: ArrayLike,
    is_new: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    r"""Right answers for known classes against wrong answers for new ones, by threshold (OSCR).

    .. math::
        \mathrm{FPR}(t) = P(\text{confidence} \ge t \mid \text{new}), \qquad
        \mathrm{CCR}(t) = P(\text{hit and confidence} \ge t \mid \text{known})

    Args:
        hits, is_new, where, weights: see `open_set_accuracy`.
        confidences: the score that an answer must reach, floating-point, `[...]`.

    Returns:
        The rates FPR and CCR, floats `[n + 1]` for the n examples, from (0, 0) on. Examples of one
        confidence repeat one point. NaN if a rate has no examples, or if a confidence is NaN.

    Example:
        >>> hits, is_new = jnp.array([True, False, True]), jnp.array([False, True, False])
        >>> wrong, right = oscr_curve(jnp.array([0.9, 0.5, 0.4]), hits, is_new)
        >>> print(wrong, right)
        [0. 0. 1. 1.] [0.  0.5 0.5 1. ]

    Source: Dhamija, Günther and Boult (2018), "Reducing network agnostophobia", equation 8.
    """
    values, (right, new), counts = _all_examples(
        "confidences", confidences, {"hits": hits, "is_new": is_new}, where, weights
    )
    of_new, of_known = jnp.where(new, counts, 0), jnp.where(new, 0, counts)
    return _curve(values, (of_new, jnp.where(right, of_known, 0)), (of_new, of_known))


def oscr_area(
    confidences: ArrayLike,
    hits: ArrayLike,
    is_new: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The area under the OSCR curve: right answers that are surer than answers for new classes.

    .. math:: P(\text{hit}, c_k > c_u) + \frac{1}{2} P(\text{hit}, c_k = c_u)

    Here :math:`c_k` and :math:`c_u` are the confidences of an example of a known and of a new
    class, each drawn in proportion to its weight.

    Args:
        confidences, hits, is_new, where, weights: see `oscr_curve`, `[...]` all.

    Returns:
        A float scalar in [0, 1]; NaN where `oscr_curve` is.

    Example:
        >>> hits, is_new = jnp.array([True, False, True]), jnp.array([False, True, False])
        >>> print(oscr_area(jnp.array([0.9, 0.5, 0.4]), hits, is_new))
        0.5

    Source: Vaze et al. (2022), "Open-set recognition".
    """
    return _area(*oscr_curve(confidences, hits, is_new, where=where, weights=weights))


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
    return _classes.nan_unless(valid, jnp.minimum(mean, 1))


def _all_examples(
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
    return _classes.nan_unless(~jnp.isnan(values).any(), values), found, counts


@jax.jit
def _curve(
    scores: jax.Array, masses: tuple[jax.Array, jax.Array], wholes: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """The sums of each mass from the largest score down, as shares of its total, `[n + 1]`."""
    dtype, valid = jnp.result_type(float), ~jnp.isnan(scores).any()
    rates = []
    for found, whole in zip(_sums(scores, *masses), wholes, strict=True):
        points = jnp.concatenate([jnp.zeros(1, dtype), found.astype(dtype)])
        rates.append(_classes.nan_unless(valid, _share(points, whole.sum())))
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
def _area(x: jax.Array, y: jax.Array) -> jax.Array:
    """The area under straight lines between the points of a curve; NaN without other points."""
    # A rounded sum can be a little more than 1.
    found = jnp.minimum((jnp.diff(x) * (y[1:] + y[:-1])).sum() / 2, 1)
    return _classes.nan_unless(~jnp.isnan(x[0] + y[0]), found)


def _share(part: jax.Array, whole: jax.Array) -> jax.Array:
    """The quotients in the default float type; NaN where the denominator is 0."""
    return ratio(part.astype(float), whole.astype(float))


@jax.jit
def _open_set_accuracy(
    right: jax.Array, says: jax.Array, new: jax.Array, counts: jax.Array
) -> dict[str, jax.Array]:
    of_new, of_known = jnp.where(new, counts, 0), jnp.where(new, 0, counts)
    return {
        "known": tally(right, weights=of_known).mean(),
        "new": tally(says, weights=of_new).mean(),
        "known_as_new": tally(says, weights=of_known).mean(),
        "all": tally(jnp.where(new, says, right), weights=counts).mean(),
    }
