"""The top-K hinge smoothed with a temperature."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics
from topk_jax.losses._hinge import REASON_WITHOUT_LABEL
from topk_jax.operators._symmetric_ratio import log_ratio_of_sigmas
from topk_jax.operators._top_k import select_kth, select_largest_of_split

__all__ = ["smooth_top_k_hinge"]

# Milliseconds for 64 examples on a CPU, forward and backward, with power sums and with all classes
# multiplied out: 0.12 and 0.19 for L = 100 and K = 5 (8 classes per factor), 0.92 and 0.92 for
# L = 400 and K = 10 (8), 2.9 and 1.5 for L = 1,000 and K = 20 (5), 2.6 and 16 for L = 10,000 and
# K = 5 (833).
_CLASSES_PER_FACTOR = 8


@_class_axis.allow_split()
def smooth_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    tau: ArrayLike,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The top-K hinge, with log-sum-exps instead of its two maxima over sets of K classes.

    .. math::
        \ell(s, y) = \tau \log \frac{\sigma_K \, e^{1/\tau} + \sigma_{K-1} \, e^{s_y/(K\tau)}}
        {\sigma_{K-1} \, e^{s_y/(K\tau)}}, \qquad
        \sigma_i = \sum_{|A| = i,\, y \notin A} \; \prod_{j \in A} e^{s_j/(K\tau)}

    As tau goes to 0 the loss tends to :math:`(1 + ((s_{\setminus y})_{[K]} - s_y)/K)_+`. With k = 1
    and tau = 1 it is the cross-entropy with a margin of 1.

    In float32, for tau from 1e-3 to 1e3, the value is right to 5e-6, relative or absolute, and the
    gradient to 5e-6 / K. The bounds are four times as large at K = 50. With 100,000 classes the
    value is right to 8e-6.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size K, from 1 to L - 1.
        tau: positive scalar temperature, in the units of the logits. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, `k` is not a static
            integer, or `tau` is not real.
        ValueError: the shapes do not match, `k` is outside [1, L - 1], or `tau` is not a positive
            scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 0.0, 0.0], [3.0, 2.0, 0.0, 0.0]])
        >>> loss = losses.smooth_top_k_hinge(logits, jnp.array([0, 3]), k=2, tau=0.5)
        >>> print(f"{loss[0]:.4f} {loss[1]:.4f}")
        0.2407 1.9213

    See Also:
        `noised_top_k_hinge`, `log_symmetric_polynomials`.

    Source: Berrada et al. (2018), "Smooth loss functions for deep top-k classification"; thesis,
    table 4.1, where the second sum is misprinted.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    num_classes = _classes.count(scores, class_axis_name)
    k = _checks.rank(k, num_classes - 1, reason=REASON_WITHOUT_LABEL)
    tau = _checks.scalar(tau, "tau", scores.dtype, above=0)
    if class_axis_name is not None and _num_factors(num_classes, k) == num_classes:
        scores, class_axis_name = _classes.gather(scores, class_axis_name), None
    scores = _numerics.finite_scores(scores)
    threshold, excess = _log_ratio_of_sigmas(scores, labels, k, k * tau, class_axis_name)
    gap = threshold - _numerics.score_of_label(scores, labels, class_axis_name)
    loss = _tempered_softplus(1.0 + gap / k + tau * excess, tau)
    losses = _numerics.nan_where_invalid(loss, scores, labels, class_axis_name)
    return _numerics.zero_left_out(losses, where)


@jax.custom_jvp
def _tempered_softplus(value: jax.Array, tau: jax.Array) -> jax.Array:
    """The softplus tau log(1 + e^(v / tau)).

    Identity: its derivative in tau is the entropy of a coin with odds e^(v / tau). Hazard: the
    product rule gives a difference of two numbers of size v / tau, which does not have a correct
    digit for small tau. Choice: a custom rule with the entropy as a sum of positive terms.
    """
    return tau * jax.nn.softplus(value / tau)


@_tempered_softplus.defjvp
def _tempered_softplus_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    value, tau = primals
    odds = value / tau
    distance = jnp.abs(odds)
    entropy = jax.nn.softplus(-distance) + distance * jax.nn.sigmoid(-distance)
    tangent = jax.nn.sigmoid(odds) * tangents[0] + entropy * tangents[1]
    return _tempered_softplus(value, tau), tangent


def _log_ratio_of_sigmas(
    scores: jax.Array,
    labels: jax.Array,
    k: int,
    temperature: jax.Array,
    class_axis_name: Hashable | None,
) -> tuple[jax.Array, jax.Array]:
    """The k-th score c of the other classes, and log(sigma_k / sigma_{k-1}) - c / temperature.

    The sigmas are the polynomials of exp(s / temperature) without the true class; c is a constant.

    Identity: subtracting c / temperature from every score subtracts it from the logarithm of the
    ratio, for any constant c. Hazard: scores divided by the temperature reach 1e7, where float32
    has steps of 1. Choice: use the differences to the k-th score. Cost: one selection.
    """
    others = _numerics.without_label(jax.lax.stop_gradient(scores), labels, class_axis_name)
    num_classes = _classes.count(scores, class_axis_name)
    num_factors = _num_factors(num_classes, k)
    if num_factors == num_classes:
        threshold = select_kth(others, k)[0]
        # The label is removed only here: -inf / temperature does not have a derivative in the
        # temperature.
        factors = _numerics.without_label((scores - threshold) / temperature, labels)
        return threshold[..., 0], log_ratio_of_sigmas(factors, None, k, None)
    values, indices = select_largest_of_split(others, num_factors, class_axis_name)
    threshold = values[..., k - 1 : k]
    log_values = (scores - threshold) / temperature
    log_values = _numerics.without_label(log_values, labels, class_axis_name)
    factors = _classes.take(log_values, indices, class_axis_name)
    # Equal scores are selected in the order of their indices.
    classes = jax.lax.broadcasted_iota(indices.dtype, scores.shape, scores.ndim - 1)
    smallest = values[..., -1:]
    last = _classes.localize(indices[..., -1:], scores.shape[-1], class_axis_name)
    in_rest = (others < smallest) | ((others == smallest) & (classes > last))
    rest = jnp.where(in_rest, log_values, -jnp.inf)
    return threshold[..., 0], log_ratio_of_sigmas(factors, rest, k, class_axis_name)


def _num_factors(num_classes: int, k: int) -> int:
    """The number of classes to multiply out; power sums handle the others."""
    num_likely = max(2 * k, k * k // 2)
    return num_likely if num_classes >= _CLASSES_PER_FACTOR * num_likely else num_classes
