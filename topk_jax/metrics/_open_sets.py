"""Known classes, and examples of new classes that no training example has."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax.metrics._ranking import all_examples, area, curve
from topk_jax.metrics._tally import tally, weights_of

__all__ = ["open_set_accuracy", "oscr_area", "oscr_curve"]


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
        where, weights: see `topk_jax.metrics`.
        hits: whether the set has the label, booleans `[...]`, as from `top_k_hits`; not used for
            examples of new classes.
        says_new: whether the answer has "new", with or without a set, booleans `[...]`.
        is_new: whether the example is of a new class, booleans `[...]`.

    Returns:
        A dictionary of float scalars in [0, 1]; NaN without such examples. "known": the hits among
        the examples of known classes, their coverage. "new": the answers with "new" among the
        examples of new classes, which is how many are detected. "known_as_new": the answers with
        "new" among the examples of known classes. "all": the right answers among all examples, for
        which the sets of known classes and "new" have a joint guarantee.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, is_new = jnp.array([True, False, False]), jnp.array([False, False, True])
        >>> rates = metrics.open_set_accuracy(hits, jnp.array([True, False, True]), is_new)
        >>> print({name: round(float(value), 2) for name, value in rates.items()})
        {'known': 0.5, 'new': 1.0, 'known_as_new': 0.5, 'all': 0.67}

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification",
    section 3, for the joint guarantee.
    """
    right = _checks.boolean_array(hits, "hits")
    says = _checks.boolean_array(says_new, "says_new", right.shape)
    new = _checks.boolean_array(is_new, "is_new", right.shape)
    rates = _open_set_accuracy(right, says, new, weights_of(right.shape, where, weights))
    return dict(zip(("known", "new", "known_as_new", "all"), rates, strict=True))


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
        where, weights: see `topk_jax.metrics`.
        confidences: floating-point, `[...]`, the score that an answer must reach, such as the
            largest probability.
        hits: whether the answer is right, booleans `[...]`, as from `top_k_hits`; not used for
            examples of new classes.
        is_new: whether the example is of a new class, booleans `[...]`.

    Returns:
        The rates FPR and CCR, floats `[n + 1]` for the n examples, from (0, 0) on. Examples of one
        confidence have one point, which is repeated. NaN if a rate has no examples, or if a
        confidence is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, is_new = jnp.array([True, False, True]), jnp.array([False, True, False])
        >>> wrong, right = metrics.oscr_curve(jnp.array([0.9, 0.5, 0.4]), hits, is_new)
        >>> print(wrong, right)
        [0. 0. 1. 1.] [0.  0.5 0.5 1. ]

    Source: Dhamija, Günther and Boult (2018), "Reducing network agnostophobia", equation 8.
    """
    values, (right, new), counts = all_examples(
        "confidences", confidences, {"hits": hits, "is_new": is_new}, where, weights
    )
    of_new, of_known = jnp.where(new, counts, 0), jnp.where(new, 0, counts)
    return curve(values, (of_new, jnp.where(right, of_known, 0)), (of_new, of_known))


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
    classes.

    Args:
        where, weights: see `topk_jax.metrics`.
        confidences, hits, is_new: see `oscr_curve`.

    Returns:
        A float scalar in [0, 1]; NaN without known or without new examples, or if a confidence is
        NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, is_new = jnp.array([True, False, True]), jnp.array([False, True, False])
        >>> print(metrics.oscr_area(jnp.array([0.9, 0.5, 0.4]), hits, is_new))
        0.5

    Source: Dhamija, Günther and Boult (2018), "Reducing network agnostophobia"; Vaze et al. (2022),
    "Open-set recognition: a good closed-set classifier is all you need", for its area.
    """
    return area(*oscr_curve(confidences, hits, is_new, where=where, weights=weights))


@jax.jit
def _open_set_accuracy(
    right: jax.Array, says: jax.Array, new: jax.Array, counts: jax.Array
) -> tuple[jax.Array, ...]:
    of_new, of_known = jnp.where(new, counts, 0), jnp.where(new, 0, counts)
    return (
        tally(right, weights=of_known).mean(),
        tally(says, weights=of_new).mean(),
        tally(says, weights=of_known).mean(),
        tally(jnp.where(new, says, right), weights=counts).mean(),
    )
