"""Sigmoid losses: one binary problem per class, for labels that may be incomplete.

A sigmoid rounds to 0 below scores of -88 and to 1 above 17. So all logarithms are the log-sigmoid
of the score, or of minus the score for a class that is absent.
"""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._example import FLOOR, Scores, batch_loss, batch_mean, scalar, zero_left_out

__all__ = [
    "assume_negative",
    "asymmetric",
    "binary_cross_entropy",
    "expected_positive_regularization",
    "positive_cross_entropy",
    "role",
]


def binary_cross_entropy(
    logits: ArrayLike, targets: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The sum of the binary cross-entropies of all classes.

    .. math:: \ell(s, t) = -\sum_j t_j \log\sigma(s_j) + (1 - t_j) \log(1 - \sigma(s_j))

    Args:
        logits, where: see `topk_jax.losses`.
        targets: 1 (or true) for the classes that are present and 0 for the others, `[..., L]`;
            booleans, integers or floats. A number between them is the probability that the class
            is present.

    Returns:
        One loss per example, `[...]`; NaN where a traced target is not from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, targets = jnp.array([[1.0, 0.0, -2.0]]), jnp.array([[1, 1, 0]])
        >>> print(losses.binary_cross_entropy(logits, targets).round(4))
        [1.1333]
        >>> print(losses.binary_cross_entropy(logits, jnp.array([[0.5, 1.0, 0.0]])).round(4))
        [1.6333]

    Source: Garcin (2023), thesis, equation 6.3.
    """
    scores, targets = _checks.logits_and_targets(logits, targets, where=where, may_be_soft=True)
    # 0 times the infinite loss of a masked class is NaN: no product there.
    present = jnp.where(targets > 0, targets * negative_log_likelihood(scores, True), 0)
    absent = jnp.where(targets < 1, (1 - targets) * negative_log_likelihood(scores, False), 0)
    loss = (present + absent).sum(axis=-1)
    losses = _numerics.nan_where_invalid_targets(loss, scores, targets, may_be_soft=True)
    return zero_left_out(losses, where)


def asymmetric(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    gamma_positive: ArrayLike = 0.0,
    gamma_negative: ArrayLike = 4.0,
    margin: ArrayLike = 0.05,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The sum of the binary cross-entropies of all classes, scaled down for easy absent classes.

    .. math::
        \ell(s, t) = -\sum_j t_j (1 - p_j)^{\gamma_+} \log p_j
        + (1 - t_j) \, q_j^{\gamma_-} \log(1 - q_j), \qquad
        p_j = \sigma(s_j), \quad q_j = \max(p_j - m, 0)

    If few of many classes are present, the others dominate `binary_cross_entropy`. An absent class
    whose probability is at most the margin m costs nothing. With 0 for all three parameters it is
    `binary_cross_entropy`.

    Args:
        logits, where: see `topk_jax.losses`.
        targets: 1 (or true) for the classes that are present and 0 for the others, `[..., L]`;
            booleans, integers or floats. A number between them is the probability that the class
            is present.
        gamma_positive: scalar strength of the scaling of classes that are present, at least 0.
        gamma_negative: the same for absent classes.
        margin: scalar m, in [0, 1).

    Returns:
        One loss per example, `[...]`; NaN where a traced target is not from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, targets = jnp.array([[1.0, 0.0, -4.0]]), jnp.array([[1, 0, 0]])
        >>> print(losses.asymmetric(logits, targets).round(4))
        [0.3378]
        >>> print(losses.binary_cross_entropy(logits, targets).round(4))
        [1.0246]

    Source: Ridnik et al. (2021), "Asymmetric loss for multi-label classification", equation 8.
    """
    scores, targets = _checks.logits_and_targets(logits, targets, where=where, may_be_soft=True)
    gamma_positive = scalar(gamma_positive, "gamma_positive", scores.dtype, at_least=0)
    gamma_negative = scalar(gamma_negative, "gamma_negative", scores.dtype, at_least=0)
    margin = scalar(margin, "margin", scores.dtype, at_least=0, below=1)
    # The slope of classes below the margin is 0, but NaN if the example is invalid.
    marked = _numerics.nan_where_invalid_targets(
        scores, scores[..., None, :], targets[..., None, :], may_be_soft=True
    )
    rows = _numerics.with_slope_of(scores, marked)
    likely = negative_log_likelihood(rows, True)
    unlikely = negative_log_likelihood(rows, False)
    # 0 times the infinite loss of a masked class is NaN: no product there.
    present = jnp.where(targets > 0, targets * jnp.exp(-gamma_positive * unlikely) * likely, 0)
    above = jnp.exp(-likely) - margin
    counts = (targets < 1) & ~(above <= 0)
    # 1 - q is sigmoid(-s) + m, which has all digits near p = 1. Powers of 0 have infinite slopes,
    # so classes that do not count get another number. Without a margin the sigmoid may be 0.
    above = jnp.where(counts, above, 1)
    has_margin = margin > 0
    complement = jnp.where(counts & has_margin, jnp.exp(-unlikely) + margin, 1)
    costs = jnp.where(has_margin, -jnp.log(complement), unlikely)
    absent = jnp.where(counts, (1 - targets) * above**gamma_negative * costs, 0)
    # A NaN parameter is not used by all classes. A factor marks the gradient, too.
    is_wrong = jnp.isnan(gamma_positive + gamma_negative + margin)
    losses = jnp.where(is_wrong, jnp.nan, 1) * (present + absent).sum(axis=-1)
    losses = _numerics.nan_where_invalid_targets(losses, scores, targets, may_be_soft=True)
    return zero_left_out(losses, where)


def positive_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The binary cross-entropy of only the positive class.

    .. math:: \ell(z, y) = -\log\sigma(z_y)

    Large scores of all classes minimise it. Add a term for the size of the sets, as
    `expected_positive_regularization` does.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.positive_cross_entropy(logits, labels).round(4))
        [0.1269]

    Source: Cole et al. (2021); Garcin (2023), thesis, equation 5.6.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    return scores.losses_of_few(_positive_loss(scores))


def assume_negative(
    logits: ArrayLike, labels: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The binary cross-entropy with one positive class, and a total weight of 1 for all others.

    .. math:: \ell(z, y) = -\log\sigma(z_y) - \frac{1}{L-1} \sum_{j \ne y} \log(1 - \sigma(z_j))

    With a single class the second term is 0.

    Args:
        logits, labels, where: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> print(losses.assume_negative(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])).round(4))
        [1.1301]

    Source: Cole et al. (2021); Garcin (2023), thesis, equation 5.5.
    """
    scores = Scores.of(logits, labels, where)
    positive = scores.is_label
    weights = jnp.where(positive, 1.0, 1 / max(scores.num_classes - 1, 1)).astype(scores.dtype)
    return scores.losses(scores.sum(weights * negative_log_likelihood(scores.values, positive)))


def expected_positive_regularization(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    expected_positives: ArrayLike,
    beta: ArrayLike,
    axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The positive labels' cross-entropy plus a penalty on the mean number of predicted classes.

    .. math::
        \ell(Z, y) = -\frac1n \sum_i \log\sigma(z_{i, y_i}) + \beta \, (\hat K(Z) - K)^2, \qquad
        \hat K(Z) = \frac1n \sum_i \sum_j \sigma(z_{ij})

    It couples the examples: :math:`\hat K` is a mean over the complete batch.

    Args:
        logits, labels, axis_name: see `topk_jax.losses`.
        expected_positives: scalar K, the expected number of classes per set, in [0, L].
        beta: scalar weight of the squared gap, at least 0.

    Returns:
        The loss of the batch, a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> print(losses.expected_positive_regularization(
        ...     logits, labels, expected_positives=1.0, beta=0.1).round(4))
        0.3276

    Source: Cole et al. (2021); Garcin (2023), thesis, equations 5.7 and 5.8.
    """
    scores = Scores.of(logits, labels)
    _checks.some_examples(scores.values, "logits")
    _checks.axis_size(axis_name)
    expected = _expected(expected_positives, scores)
    beta = scalar(beta, "beta", scores.dtype, at_least=0)
    loss = batch_mean(_positive_loss(scores), axis_name)
    return batch_loss(loss + beta * _squared_gap(scores, expected, axis_name), axis_name, scores)


def role(
    logits: ArrayLike,
    label_logits: ArrayLike,
    labels: ArrayLike,
    *,
    expected_positives: ArrayLike,
    weight: ArrayLike,
    axis_name: Hashable | None = None,
) -> jax.Array:
    r"""Expected positive regularization with estimated labels, trained together with the network.

    .. math::
        \ell(Z, \Theta, y) &= \tfrac12 \bigl[h(Z, \Theta) + h(\Theta, Z)\bigr] \\
        h(U, V) &= \frac1n \sum_i \Bigl[ -\log\sigma(u_{i, y_i})
        - \sum_j \bar v_{ij} \log\sigma(u_{ij}) + (1 - \bar v_{ij}) \log(1 - \sigma(u_{ij})) \Bigr]
        + w \, (\hat K(U) - K)^2

    with :math:`\hat K` as in `expected_positive_regularization`, and :math:`\bar v = \sigma(v)`
    without a gradient. Cole et al. average over the classes and divide the gap by L: with their
    weight :math:`\lambda`, their loss is this loss at :math:`w = \lambda / L`, divided by L.

    Args:
        logits, labels, axis_name: see `topk_jax.losses`. Rows of Theta that only one device holds
            are not shared parameters: under `pmap` and `shard_map(check_vma=False)`, divide their
            gradient by the number of devices.
        label_logits: floating-point logits of the estimated labels, `[..., L]`: the rows of Theta
            for these examples.
        expected_positives: scalar K, the expected number of classes per set, in [0, L].
        weight: scalar weight w of the squared gaps, at least 0.

    Returns:
        The loss of the batch, a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> theta = jnp.zeros_like(logits)
        >>> print(losses.role(
        ...     logits, theta, labels, expected_positives=1.0, weight=0.1).round(4))
        2.8009

    Source: Cole et al. (2021), "Multi-label learning from single positive labels"; Garcin (2023),
    thesis, section 5.4.6.
    """
    first, second, labels = _checks.two_heads(
        ("logits", logits), ("label_logits", label_logits), labels
    )
    network, estimate = Scores.of(first, labels), Scores.of(second, labels)
    _checks.some_examples(network.values, "logits")
    _checks.axis_size(axis_name)
    expected = _expected(expected_positives, network)
    weight = scalar(weight, "weight", network.dtype, at_least=0)
    of_examples = (
        _positive_loss(network)
        + _positive_loss(estimate)
        + _cross_loss(network.given, estimate.given)
        + _cross_loss(estimate.given, network.given)
    )
    gaps = [_squared_gap(head, expected, axis_name) for head in (network, estimate)]
    loss = 0.5 * (batch_mean(of_examples, axis_name) + weight * (gaps[0] + gaps[1]))
    return batch_loss(loss, axis_name, network, estimate)


def negative_log_likelihood(scores: jax.Array, positive: jax.Array | bool) -> jax.Array:
    """The loss [..., L] of each class: -log sigmoid(score), or of -score for negative classes."""
    finite = jnp.maximum(scores, FLOOR)
    return -jax.nn.log_sigmoid(jnp.where(positive, finite, -finite))


def _positive_loss(scores: Scores) -> jax.Array:
    return -jax.nn.log_sigmoid(scores.of_label(scores.values))


def _cross_loss(scores: jax.Array, others: jax.Array) -> jax.Array:
    """The binary cross-entropy [...] of scores against the sigmoids of other, constant scores.

    A class that only one argument masks has an infinite loss, which counts as 0.
    """
    others = jax.lax.stop_gradient(others)
    present = jax.nn.sigmoid(others) * negative_log_likelihood(scores, True)
    absent = jax.nn.sigmoid(-others) * negative_log_likelihood(scores, False)
    return jnp.where(jnp.isneginf(scores), 0.0, present + absent).sum(axis=-1)


def _squared_gap(scores: Scores, expected: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """The squared gap between the batch's mean number of predicted classes and the expected one."""
    positives = scores.sum(jax.nn.sigmoid(scores.values))
    return jnp.square(batch_mean(positives, axis_name) - expected)


def _expected(expected_positives: ArrayLike, scores: Scores) -> jax.Array:
    bounds = {"at_least": 0, "at_most": scores.num_classes}
    return scalar(expected_positives, "expected_positives", scores.dtype, **bounds)
