"""ConfTS: how far the labels' scores are from the threshold of adaptive conformal sets."""

from __future__ import annotations

import math
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax.losses._label_scores import mass_up_to_labels, mean_of_odd_places, of_whole_batch

__all__ = ["efficiency_gap"]


@_class_axis.allow_split(of="batch")
def efficiency_gap(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The mean squared distance of the labels' scores "aps" from their conformal threshold.

    .. math::
        \ell(Z, y) = \frac1{|P|} \sum_{i \in P} (q - a_i)^2, \qquad
        a_i = p_{i, y_i} + \sum_{j : z_{ij} > z_{i, y_i}} p_{ij}, \qquad
        p = \mathrm{softmax}(Z)

    The examples at places 0, 2, ... of the batch calibrate: q is the r-th smallest of their m
    scores, with :math:`r = \lceil (m + 1)(1 - \varepsilon) \rceil`, or the largest if r is more
    than m. The others are P. These are scores of sets that are not randomised.

    Conformal temperature scaling (ConfTS) changes the temperature T of a finished classifier by
    steps of gradient descent on this loss of `logits / T`. No temperature is best for the loss: it
    goes to 0 with T, because all scores go to 1, and then the sets have all classes. So the result
    depends on the start and on the number of steps; compare the mean sizes on other examples.
    [Losses of sets](../sets_losses.md) has measured sizes.

    The gradient goes through q to the example whose score q is. Which classes are above the label
    is constant, so the gradient is exact almost everywhere.

    Args:
        logits: floating-point scores Z, `[..., L]`; all axes but the last are the batch, at least
            two examples.
        labels: integer classes, `[...]`.
        error: static rate :math:`\varepsilon` of missed labels, a real number in [0, 1).
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch; see `average_k` for the
            gradients.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        The mean, a scalar from 0 to 1 in float32 or float64; NaN if a logit is NaN or +inf, or a
        label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch has fewer
            than two examples, or `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 0.0], [2.0, 1.0], [1.0, 3.0], [0.0, 0.5]])
        >>> labels = jnp.array([0, 1, 1, 1])
        >>> for temperature in (1.0, 0.5):
        ...     gap = losses.efficiency_gap(logits / temperature, labels, error=0.1)
        ...     print(f"{gap:.2f}")
        0.06
        0.04

    See Also:
        `temperature`, `size_at_average_error`, `conformal_scores`.

    Source: Xi et al. (2025), "Does confidence calibration improve conformal prediction?". TorchCP
    divides a batch into two parts, too.
    """
    checked, labels = _checks.logits_and_labels(logits, labels)
    _checks.axis_size(axis_name)
    rate = _checks.static_error(error)
    (marked,) = _numerics.batch_with_slopes_or_nan(
        checked, labels=labels, axis_name=axis_name, class_axis_name=class_axis_name
    )
    finite = _numerics.finite_scores(marked)
    own = mass_up_to_labels(finite, labels, jnp.ones((), finite.dtype), class_axis_name)
    of_all = of_whole_batch(own, axis_name)
    if of_all.size < 2:
        raise ValueError(f"logits must have at least two examples, got {of_all.size}.")
    calibrating = jnp.sort(of_all[::2])
    rank = min(math.ceil((calibrating.size + 1) * (1 - rate)), calibrating.size)
    gaps = jnp.square(calibrating[rank - 1] - own)
    gaps = _numerics.nan_where_invalid(gaps, checked, labels, class_axis_name)
    return mean_of_odd_places(gaps, axis_name)
