"""Sets against examples that have several labels each."""

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _classes, _example
from topk_jax._sums import Sum
from topk_jax.metrics._hits import members_of
from topk_jax.metrics._tally import Tally, weights_of

__all__ = ["example_f1", "label_coverage", "tally_f1"]


def example_f1(
    chosen: ArrayLike, targets: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The F1 score of the set of each example: the harmonic mean of its precision and recall.

    .. math:: F_1(S, Y) = \frac{2 \, |S \cap Y|}{|S| + |Y|}

    Args:
        chosen, targets, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Floats in [0, 1], `[...]`: 1 for an empty set without labels; scikit-learn has 0 by default.

    Example:
        >>> chosen = jnp.array([[True, True, False], [False, False, False]])
        >>> print(example_f1(chosen, jnp.array([[1, 1, 0], [0, 0, 1]])))
        [1. 0.]

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    hits, size, number, valid = _overlaps(chosen, targets, class_axis_name)
    return _share(2 * hits, size + number, valid)


def label_coverage(
    chosen: ArrayLike, targets: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The part of the labels of each example that its set has: the recall.

    .. math:: c(S, Y) = \frac{|S \cap Y|}{|Y|}

    Args:
        chosen, targets, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Floats in [0, 1], `[...]`: 1 without labels.

    Example:
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> print(label_coverage(chosen, jnp.array([[1, 1, 0], [0, 1, 1]])))
        [1.  0.5]

    Source: Angelopoulos et al. (2024), "Conformal risk control", section 3.
    """
    hits, _, number, valid = _overlaps(chosen, targets, class_axis_name)
    return _share(hits, number, valid)


def tally_f1(
    chosen: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Tally:
    r"""The F1 score of each class, as sums that add up over batches and devices.

    .. math:: F_{1,c} = \frac{2 \, n(c \in S \cap Y)}{n(c \in S) + n(c \in Y)}

    Here n is the sum of the weights of such examples. `macro_mean` is the macro F1 score, of the
    classes that are in a set or a label; scikit-learn counts others as 0, unless `zero_division` is
    NaN. `mean` is the micro F1 score, of all pairs of an example and a class.

    Args:
        chosen, targets, where, weights: see `topk_jax.metrics`.

    Returns:
        A `Tally` with the numerator and the denominator of each class, `[L]`.

    Example:
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> scores = tally_f1(chosen, jnp.array([[1, 0, 0], [0, 1, 1]]))
        >>> print(scores.mean(), scores.macro_mean())
        0.6666667 0.5555556

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    members, labels, valid = _members_and_labels(chosen, targets, None)
    counts = jnp.where(valid, weights_of(valid.shape, where, weights), 0)
    batch = tuple(range(counts.ndim))

    def total(included: jax.Array) -> jax.Array:
        return jnp.where(included, counts[..., None], 0).sum(axis=batch)

    return Tally(Sum.of(2 * total(members & labels)), Sum.of(total(members) + total(labels)))


def _members_and_labels(
    chosen: ArrayLike, targets: ArrayLike, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The booleans of both, [..., L], and whether all targets of an example are 0 or 1, [...]."""
    members = members_of(chosen, class_axis_name)
    labels, valid = _example.multi_hot(targets, "targets", members.shape)
    return members, labels, ~_classes.any_class(~valid, class_axis_name)


def _overlaps(
    chosen: ArrayLike, targets: ArrayLike, class_axis_name: Hashable | None
) -> tuple[jax.Array, ...]:
    """How many classes are in both, in the set and among the labels; and what is valid, `[...]`."""
    members, labels, valid = _members_and_labels(chosen, targets, class_axis_name)
    masks = (members & labels, members, labels)
    return *(_classes.sum_classes(mask, class_axis_name) for mask in masks), valid


def _share(part: jax.Array, whole: jax.Array, valid: jax.Array) -> jax.Array:
    """The quotient of integers; 1 where both are 0, and NaN where the example is not valid."""
    share = part.astype(float) / jnp.maximum(whole, 1).astype(float)
    return _classes.nan_unless(valid, jnp.where(whole > 0, share, 1.0))
