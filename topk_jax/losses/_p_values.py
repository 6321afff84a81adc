"""Uncertainty-aware conformal training: the labels' p-values are uniform."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax.losses._label_scores import mass_up_to_labels, of_whole_batch

__all__ = ["p_value_uniformity"]


@_class_axis.allow_split(of="batch")
def p_value_uniformity(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    uniform: ArrayLike,
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""How far the randomised scores of the labels are from uniform: Kolmogorov and Smirnov's.

    .. math::
        \ell(Z, y) = \max_r \max\Bigl( \frac rn - a_{(r)}, \; a_{(r)} - \frac{r - 1}n \Bigr), \qquad
        a_i = \sum_{j : z_{ij} > z_{i, y_i}} p_{ij} + U_i \, p_{i, y_i}, \qquad
        p = \mathrm{softmax}(Z)

    with :math:`a_{(1)} \le \dots \le a_{(n)}`. If p is the law of the label, the score a is uniform
    on [0, 1] for every x, whatever the law is; an overconfident network has too many scores near 1.
    So this term makes probabilities honest, and "aps" sets cover well for each x. Add it to a
    cross-entropy of other examples of the batch, because a network that fits all labels has uniform
    scores only with labels that it was not trained on.

    The gradient goes to the example at which the distance is reached. Scores are sorted, and which
    classes are above the label is constant, so the gradient is exact almost everywhere; the source
    relaxes both.

    Args:
        logits: floating-point scores Z, `[..., L]`; all axes but the last are the batch of n
            examples.
        labels: integer classes, `[...]`.
        uniform: U, one number from 0 to 1 of each example, `[...]`; draw new ones for each call
            (`jax.random.uniform`).
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch; see `average_k` for the
            gradients.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        The distance, a scalar from 0 to 1 in float32 or float64; NaN if a logit is NaN or +inf, a
        label is outside [0, L) or a number is not from 0 to 1 anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes do not match, the batch is empty, a concrete number is not from 0 to 1,
            or `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[5.0, 0.0], [5.0, 0.0]])
        >>> labels, uniform = jnp.array([0, 0]), jnp.array([0.1, 0.6])
        >>> distance = losses.p_value_uniformity(logits, labels, uniform=uniform)
        >>> print(f"{distance:.3f}")
        0.404

    See Also:
        `conformal_training`, `conformal_scores`, `cross_entropy`.

    Source: Einbinder, Romano, Sesia and Zhou (2022), "Training uncertainty-aware classifiers with
    conformalized deep learning", equations 4 to 7.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    _checks.some_examples(scores, "logits")
    _checks.axis_size(axis_name)
    drawn = _checks.real_array(uniform, "uniform", labels.shape, scores.dtype)
    drawn = _checks.within(uniform, drawn, "uniform", (0.0, 1.0))
    (scores,) = _numerics.batch_with_slopes_or_nan(
        scores, labels=labels, axis_name=axis_name, class_axis_name=class_axis_name
    )
    finite = _numerics.finite_scores(scores)
    values = mass_up_to_labels(finite, labels, drawn, class_axis_name)
    # Hazard: a sort puts NaN last, and a maximum on the CPU may lose it. Choice: mark the sum.
    marks = _numerics.nan_where_invalid(0 * drawn, scores, labels, class_axis_name)
    ascending = jnp.sort(of_whole_batch(values, axis_name))
    size = ascending.size
    steps = jnp.arange(size + 1, dtype=ascending.dtype) / size
    distance = jnp.maximum(steps[1:] - ascending, ascending - steps[:-1]).max()
    # The mean of equal numbers, so that the gradients of the devices add up to one.
    return _numerics.batch_mean(marks + distance, axis_name)
