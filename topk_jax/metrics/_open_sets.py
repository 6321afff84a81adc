"""Known classes, and examples of new classes that no training example has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax.metrics._curves import compute_area, compute_sums, scores_and_weights, share
from topk_jax.metrics._tally import compute_weights, tally

__all__ = ["auroc", "open_set_accuracy", "oscr_area", "oscr_curve"]


def open_set_accuracy(
    hits: ArrayLike,
    says_new: ArrayLike,
    is_new: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> dict[str, jax.Array]:
    r"""The shares of right answers, if an answer may be "a new class" beside a set of known ones.

    Args:
        hits: whether the set has the label, booleans `[...]`, as from `top_k_hits`; not used for
            examples of new classes.
        says_new: whether the answer has "new", with or without a set, booleans `[...]`.
        is_new: whether the example is of a new class, booleans `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        A dictionary of float scalars in [0, 1]; NaN without such examples. "known": the hits among
        the examples of known classes, their coverage. "new": the answers with "new" among the
        examples of new classes, which is how many are detected. "known_as_new": the answers with
        "new" among the examples of known classes. "all": the right answers among all examples, for
        which the sets of known classes and "new" have a joint guarantee.

    Raises:
        TypeError: a mask is not boolean or `weights` is not real.
        ValueError: the shapes do not match, or a concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, is_new = jnp.array([True, False, False]), jnp.array([False, False, True])
        >>> rates = metrics.open_set_accuracy(hits, jnp.array([True, False, True]), is_new)
        >>> print({name: round(float(value), 2) for name, value in rates.items()})
        {'known': 0.5, 'new': 1.0, 'known_as_new': 0.5, 'all': 0.67}

    See Also:
        `auroc`, `oscr_area`, `new_class_p_values`, `accuracy`.

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification",
    section 3, for the joint guarantee.
    """
    right = _checks.boolean_array(hits, "hits")
    says = _checks.boolean_array(says_new, "says_new", right.shape)
    new = _checks.boolean_array(is_new, "is_new", right.shape)
    counts = compute_weights(right.shape, where, weights)

    def mean_of(values: jax.Array, included: jax.Array | bool) -> jax.Array:
        return tally(values, weights=jnp.where(included, counts, 0)).mean()

    return {
        "known": mean_of(right, ~new),
        "new": mean_of(says, new),
        "known_as_new": mean_of(says, ~new),
        "all": mean_of(jnp.where(new, says, right), True),
    }


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
    drawn in proportion to its weight. A tie counts one half. All examples are needed at once: the
    areas of batches have no useful mean.

    Args:
        scores: floating-point and larger for positive examples, `[...]`: for example outlier scores
            to distinguish new classes from known ones.
        positives: which examples are positive, booleans `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        A float scalar in [0, 1]; NaN without positive or without negative examples, if a score is
        NaN, or if a traced weight is negative or not finite.

    Raises:
        TypeError: `scores` is not floating-point, `positives` or `where` is not boolean, or
            `weights` is not real.
        ValueError: the shapes do not match, or a concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([0.1, 0.4, 0.4, 0.8])
        >>> print(metrics.auroc(scores, jnp.array([False, False, True, True])))
        0.875

    See Also:
        `oscr_area`, `open_set_accuracy`, `new_class_p_values`.

    Source: Fawcett (2006), "An introduction to ROC analysis".
    """
    values, (positive,), counts, valid = scores_and_weights(
        scores, "scores", {"positives": positives}, where, weights
    )
    masses = jnp.where(positive, 0, counts), jnp.where(positive, counts, 0)
    return _numerics.nan_unless(valid, compute_area(*_curve(values, masses, masses)))


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
        confidences: floating-point, `[...]`, the score that an answer must reach, such as the
            largest probability.
        hits: whether the answer is right, booleans `[...]`, as from `top_k_hits`; not used for
            examples of new classes.
        is_new: whether the example is of a new class, booleans `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        The rates FPR and CCR, floats `[n + 1]` for the n examples, from (0, 0) on. Examples of one
        confidence have one point, which is repeated. NaN if a rate has no examples, if a confidence
        is NaN, or if a traced weight is negative or not finite.

    Raises:
        TypeError: `confidences` is not floating-point, a mask is not boolean, or `weights` is not
            real.
        ValueError: the shapes do not match, or a concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, is_new = jnp.array([True, False, True]), jnp.array([False, True, False])
        >>> wrong, right = metrics.oscr_curve(jnp.array([0.9, 0.5, 0.4]), hits, is_new)
        >>> print(wrong, right)
        [0. 0. 1. 1.] [0.  0.5 0.5 1. ]

    See Also:
        `oscr_area`, `open_set_accuracy`.

    Source: Dhamija, Günther and Boult (2018), "Reducing network agnostophobia", equation 8.
    """
    x, y = _oscr(confidences, hits, is_new, where, weights)
    if not x.size:
        return jnp.full(1, jnp.nan, x.dtype), jnp.full(1, jnp.nan, y.dtype)
    start = jnp.where(jnp.isnan(x[:1]), jnp.nan, 0), jnp.where(jnp.isnan(y[:1]), jnp.nan, 0)
    return jnp.concatenate([start[0], x]), jnp.concatenate([start[1], y])


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
    class, each drawn in proportion to its weight. So it is at most the accuracy of the known
    classes. A tie counts one half.

    Args:
        confidences: floating-point, `[...]`, the score that an answer must reach, such as the
            largest probability.
        hits: whether the answer is right, booleans `[...]`, as from `top_k_hits`; not used for
            examples of new classes.
        is_new: whether the example is of a new class, booleans `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        A float scalar in [0, 1]; NaN without known or without new examples, if a confidence is NaN,
        or if a traced weight is negative or not finite.

    Raises:
        TypeError: `confidences` is not floating-point, a mask is not boolean, or `weights` is not
            real.
        ValueError: the shapes do not match, or a concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, is_new = jnp.array([True, False, True]), jnp.array([False, True, False])
        >>> print(metrics.oscr_area(jnp.array([0.9, 0.5, 0.4]), hits, is_new))
        0.5

    See Also:
        `oscr_curve`, `auroc`, `open_set_accuracy`.

    Source: Dhamija, Günther and Boult (2018), "Reducing network agnostophobia"; Vaze et al. (2022),
    "Open-set recognition: a good closed-set classifier is all you need", for its area.
    """
    return compute_area(*_oscr(confidences, hits, is_new, where, weights))


def _oscr(
    confidences: ArrayLike,
    hits: ArrayLike,
    is_new: ArrayLike,
    where: ArrayLike | None,
    weights: ArrayLike | None,
) -> tuple[jax.Array, jax.Array]:
    values, (right, new), counts, valid = scores_and_weights(
        confidences, "confidences", {"hits": hits, "is_new": is_new}, where, weights
    )
    of_new, of_known = jnp.where(new, counts, 0), jnp.where(new, 0, counts)
    x, y = _curve(values, (of_new, jnp.where(right, of_known, 0)), (of_new, of_known))
    return _numerics.nan_unless(valid, x), _numerics.nan_unless(valid, y)


def _curve(
    scores: jax.Array,
    masses: tuple[jax.Array, jax.Array],
    wholes: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The sums of each mass from the largest score down, as shares of its total."""
    x, y = compute_sums(scores, *masses)
    return share(x, wholes[0].sum()), share(y, wholes[1].sum())
