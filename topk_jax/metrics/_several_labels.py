"""Sets against examples that have several labels each."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics, _sharding
from topk_jax._sums import Sum
from topk_jax.metrics._tally import Tally, compute_weights

__all__ = ["example_f1", "label_coverage", "macro_f1", "tally_f1"]


@_class_axis.allow_split()
def example_f1(
    chosen: ArrayLike, targets: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The F1 score of the set of each example: the harmonic mean of its precision and recall.

    .. math:: F_1(S, Y) = \frac{2 \, |S \cap Y|}{|S| + |Y|}

    It is 1 for an empty set of an example without labels, which is right. scikit-learn has 0 there,
    unless `zero_division` is 1.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Floats in [0, 1], `[...]`, for `tally`; NaN where a traced target is neither 0 nor 1.

    Raises:
        TypeError: `chosen` is not boolean or `targets` is not real.
        ValueError: the shapes do not match, or a concrete target is neither 0 nor 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> chosen = jnp.array([[True, True, False], [False, False, False]])
        >>> print(metrics.example_f1(chosen, jnp.array([[1, 1, 0], [0, 0, 1]])))
        [1. 0.]

    See Also:
        `macro_f1`, `label_coverage`, `tally`.

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    members, labels, valid = _members_and_labels(chosen, targets, class_axis_name)
    hits, size, number = (
        _classes.sum_classes(each, class_axis_name) for each in (members & labels, members, labels)
    )
    return _share(2 * hits, size + number, valid)


@_class_axis.allow_split()
def label_coverage(
    chosen: ArrayLike, targets: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The part of the labels of each example that its set has: the recall.

    .. math:: c(S, Y) = \frac{|S \cap Y|}{|Y|}

    It is 1 for an example without labels, because none is missing. One minus the recall is the
    false negative rate; `sets.false_negative_rates` computes it for many thresholds.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Floats in [0, 1], `[...]`, for `tally`; NaN where a traced target is neither 0 nor 1.

    Raises:
        TypeError: `chosen` is not boolean or `targets` is not real.
        ValueError: the shapes do not match, or a concrete target is neither 0 nor 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> print(metrics.label_coverage(chosen, jnp.array([[1, 1, 0], [0, 1, 1]])))
        [1.  0.5]

    See Also:
        `example_f1`, `false_negative_rates`, `tally`.

    Source: Angelopoulos et al. (2024), "Conformal risk control", section 3.
    """
    members, labels, valid = _members_and_labels(chosen, targets, class_axis_name)
    hits = _classes.sum_classes(members & labels, class_axis_name)
    return _share(hits, _classes.sum_classes(labels, class_axis_name), valid)


def macro_f1(
    chosen: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The mean over classes of the F1 score of each class.

    .. math::
        \frac{1}{|C|} \sum_{c \in C} \frac{2 \, n(c \in S \cap Y)}{n(c \in S) + n(c \in Y)}, \qquad
        C = \{ c : n(c \in S) + n(c \in Y) > 0 \}

    Here n is the sum of the weights of such examples. A class that is in no set and is not the
    label of any example is left out. scikit-learn counts it as 0, unless `zero_division` is NaN.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1. An
            example with another traced number is left out.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        A float scalar in [0, 1]; NaN if no class is in a set or a label, or if a traced weight is
        negative or not finite.

    Raises:
        TypeError: `chosen` or `where` is not boolean, or `targets` or `weights` is not real.
        ValueError: the shapes do not match, a concrete target is neither 0 nor 1, or a concrete
            weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> print(metrics.macro_f1(chosen, jnp.array([[1, 0, 0], [0, 1, 1]])))
        0.5555556

    See Also:
        `tally_f1`, `example_f1`, `mean_average_precision`.

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    return tally_f1(chosen, targets, where=where, weights=weights).macro_mean()


def tally_f1(
    chosen: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Tally:
    r"""The sums of F1 scores of classes, which add up over batches and devices.

    .. math:: t_c = 2 \, n(c \in S \cap Y), \qquad n_c = n(c \in S) + n(c \in Y)

    So `macro_mean` is `macro_f1`, `shot_means` are its means over classes with few and many
    training examples, and `mean` is the micro F1 score, of all pairs of an example and a class.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1. An
            example with another traced number is left out.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.

    Returns:
        A `Tally` with one sum and one count per class, `[L]`.

    Raises:
        TypeError: `chosen` or `where` is not boolean, or `targets` or `weights` is not real.
        ValueError: the shapes do not match, a concrete target is neither 0 nor 1, or a concrete
            weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> counts = metrics.tally_f1(chosen, jnp.array([[1, 0, 0], [0, 1, 1]]))
        >>> print(counts.total, counts.count, counts.mean())
        [2 2 0] [2 3 1] 0.6666667

    See Also:
        `macro_f1`, `tally_by_class`.

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    members, labels, valid = _members_and_labels(chosen, targets, None)
    counts = compute_weights(valid.shape, where, weights)

    def tally_of(counts: jax.Array, members: jax.Array, labels: jax.Array) -> Tally:
        def total(included: jax.Array) -> jax.Array:
            return jnp.where(included, counts[..., None], 0).sum(axis=tuple(range(counts.ndim)))

        return Tally(Sum.of(2 * total(members & labels)), Sum.of(total(members) + total(labels)))

    return _sharding.sum_examples(tally_of, jnp.where(valid, counts, 0), members, labels)


def _members_and_labels(
    chosen: ArrayLike, targets: ArrayLike, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The booleans of both, [..., L], and whether all targets of an example are 0 or 1, [...]."""
    members = _checks.boolean_array(chosen, "chosen")
    if members.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {members.shape}.")
    labels, valid = _checks.multi_hot(targets, "targets", members.shape)
    return members, labels, ~_classes.any_class(~valid, class_axis_name)


def _share(part: jax.Array, whole: jax.Array, valid: jax.Array) -> jax.Array:
    """The quotient of integers; 1 where both are 0, and NaN where the example is not valid."""
    share = part.astype(float) / jnp.maximum(whole, 1).astype(float)
    return _numerics.nan_unless(valid, jnp.where(whole > 0, share, 1.0))
