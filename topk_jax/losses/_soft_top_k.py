"""Cross-entropies of soft memberships in the k largest scores."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax.operators._lapsum import distances_from_threshold
from topk_jax.operators._sigmoid import REASON_BETWEEN, distances_from_middle
from topk_jax.operators._successive_softmax import log_successive_softmax

__all__ = ["lapsum_top_k_loss", "sigmoid_top_k_loss", "successive_softmax_top_k_loss"]


@_class_axis.refuse_split
def lapsum_top_k_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: ArrayLike,
    alpha: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The negative logarithm of the true class's soft membership in the k largest scores.

    .. math::
        \ell(s, y) = -\log p_y, \qquad
        \frac{\partial \ell}{\partial s_j} = \frac1\alpha \Bigl(\frac1{\max(p_y, 1/2)} - 1\Bigr)
        (q_j - \delta_{jy})

    where p and q are defined in `operators.lapsum_top_k`. Far below the threshold b the loss is
    :math:`(b - s_y) / \alpha + \log 2`.

    In float32, for alpha from 1e-4 to 1e4, the value is right to a relative 2e-6, and the gradient
    to 2e-5 / alpha.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: set size K: an integer from 1 to L, or a real scalar greater than 0 and at most L, as in
            `operators.lapsum_top_k`. With k = L the loss is 0.
        alpha: positive scalar scale, in the units of the logits. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` or `alpha` is
            not real.
        ValueError: the shapes do not match, `k` is outside its range, or `alpha` is not a positive
            scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[2.0, 0.0, 0.0, -2.0], [2.0, 0.0, 0.0, -2.0]])
        >>> loss = losses.lapsum_top_k_loss(logits, jnp.array([0, 3]), k=2, alpha=1.0)
        >>> print(f"{loss[0]:.4f} {loss[1]:.4f}")
        0.0701 2.6931

    See Also:
        `sigmoid_top_k_loss`, `lapsum_top_k`.

    Source: Struski, Bednarczyk, Podolak and Tabor (2025), "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection".
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    k = _checks.rank_or_sum(k, scores.shape[-1], scores.dtype)
    alpha = _checks.scalar(alpha, "alpha", scores.dtype, above=0)
    distances = distances_from_threshold(scores, k, alpha)
    loss = -_log_laplace_cdf(_numerics.score_of_label(distances, labels))
    losses = _numerics.nan_where_invalid_labels(loss, labels, scores.shape[-1])
    return _numerics.zero_left_out(losses, where)


@_class_axis.refuse_split
def sigmoid_top_k_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    tau: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The logistic loss of the true class's distance from the middle of s_[k] and s_[k+1].

    .. math::
        \ell(s, y) = \log\Bigl(1 + e^{(\theta - s_y) / \tau}\Bigr), \qquad
        \theta = \frac{s_{[k]} + s_{[k+1]}}2

    This is -log p_y with the memberships p of `operators.sigmoid_top_k`: the loss of the authors
    for a set of relevant items, with the true class as the only one. Only three scores have a
    gradient.

    In float32, for tau from 1e-4 to 1e4, the value is right to a relative 2e-6, and the gradient to
    2e-5 / tau.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size K, from 1 to L - 1.
        tau: positive scalar temperature, in the units of the logits. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

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
        >>> logits = jnp.array([[2.0, 0.5, -0.5, -2.0], [2.0, 0.5, -0.5, -2.0]])
        >>> loss = losses.sigmoid_top_k_loss(logits, jnp.array([0, 3]), k=2, tau=0.5)
        >>> print(f"{loss[0]:.4f} {loss[1]:.4f}")
        0.0181 4.0181

    See Also:
        `lapsum_top_k_loss`, `sigmoid_top_k`.

    Source: Zhu et al. (2025), "Differentiable fast top-k selection for large-scale recommendation"
    (DFTopK), its loss of one stage.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    k = _checks.rank(k, scores.shape[-1] - 1, reason=REASON_BETWEEN)
    tau = _checks.scalar(tau, "tau", scores.dtype, above=0)
    distances = distances_from_middle(scores, k, tau)
    loss = jax.nn.softplus(-_numerics.score_of_label(distances, labels))
    losses = _numerics.nan_with_slopes_where_invalid(loss, scores, labels)
    return _numerics.zero_left_out(losses, where)


@_class_axis.refuse_split
def successive_softmax_top_k_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    tau: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The negative logarithm of the chance that one of k successive softmaxes chooses the label.

    .. math:: \ell(s, y) = -\log \Bigl( 1 - \prod_{j=1}^k \bigl(1 - p^{(j)}_y\bigr) \Bigr)

    where the shares p are defined in `operators.successive_softmax_top_k`. With k = 1 and tau = 1
    it is the cross-entropy. The sum of the shares can exceed 1, so it is not a probability.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size K, from 1 to L. Time and memory grow with it.
        tau: positive scalar temperature, in the units of the logits. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, `k` is not a static
            integer, or `tau` is not real.
        ValueError: the shapes do not match, `k` is outside [1, L], or `tau` is not a positive
            scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[2.0, 0.0, 0.0, -2.0], [2.0, 0.0, 0.0, -2.0]])
        >>> loss = losses.successive_softmax_top_k_loss(logits, jnp.array([0, 3]), k=2, tau=1.0)
        >>> print(f"{loss[0]:.4f} {loss[1]:.4f}")
        0.1283 2.9770

    See Also:
        `successive_softmax_top_k`, `lapsum_top_k_loss`, `cross_entropy`.

    Source: Xie and Ermon (2019), "Reparameterizable subset sampling via continuous relaxations";
    Garcin (2023), thesis, section 4.2. They have the shares; this chance of them is ours.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    k = _checks.rank(k, scores.shape[-1])
    tau = _checks.scalar(tau, "tau", scores.dtype, above=0)
    rounds = log_successive_softmax(scores, k, tau)
    # Identity: 1 - prod (1 - p_j) = sum_j p_j prod_{i < j} (1 - p_i). Hazard: the product rounds to
    # 1 if all shares are small. Choice: the sum, of logarithms. Cost: none.
    chances = rounds.of_rounds + rounds.left_before
    chosen = [_numerics.score_of_label(chance, labels) for chance in chances]
    loss = -jax.nn.logsumexp(jnp.stack(chosen), axis=0)
    losses = _numerics.nan_where_invalid(jax.nn.relu(loss), scores, labels)
    return _numerics.zero_left_out(losses, where)


def _log_laplace_cdf(distances: jax.Array) -> jax.Array:
    """The logarithm of the CDF of the Laplace distribution.

    Identity: it is r - log 2 up to 0, and log(1 - e^-r / 2) above. Hazard: the CDF underflows below
    -87, and e^-r overflows there, which would make the gradient NaN. Choice: the logarithm does not
    get distances below 0. Cost: none.
    """
    above = jnp.where(distances > 0, distances, 0)
    return jnp.where(distances > 0, jnp.log1p(-jnp.exp(-above) / 2), distances - math.log(2))
