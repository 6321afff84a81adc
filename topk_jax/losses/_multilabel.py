"""Losses of several labels: a distribution of the label, or one binary problem for each class.

A sigmoid rounds to 0 below scores of -88 and to 1 above 17. So all logarithms are the log-sigmoid
of the score, or of minus the score for a class that is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax._checks import scalar
from topk_jax._classes import nan_unless
from topk_jax._example import (
    Scores,
    batch_loss,
    batch_mean,
    logits_and_targets,
    scores_and_targets,
    two_heads,
    zero_left_out,
)
from topk_jax.operators._top_k import select_largest

__all__ = [
    "assume_negative",
    "asymmetric",
    "binary_cross_entropy",
    "expect_over_labels",
    "expected_positive_regularization",
    "positive_cross_entropy",
    "role",
]


def expect_over_labels(
    logits: ArrayLike,
    plausibilities: ArrayLike,
    *,
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    num_labels: int | None = None,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The expected value of a loss of single examples over a distribution of the label.

    .. math:: \ell(s, \lambda) = \sum_y \lambda_y \, \ell(s, y)

    Several classes that are present at once are not a distribution; see `binary_cross_entropy`.

    Args:
        logits, where: see `topk_jax.losses`.
        plausibilities: the probability of each class to be the label, `[..., L]`: booleans or
            numbers, at least 0, with sum 1 up to 1e-4 or twice the eps of their type.
        loss: a function of logits `[..., L]` and integer labels `[...]` to one loss per example,
            `[...]`, as `functools.partial(losses.top_k_hinge, k=5)`.
        num_labels: the static number of most plausible labels, which must add up to 1, that the
            loss is computed for: 1 for one-hot targets, 2 for mixtures of two; `None` for all.

    Returns:
        One loss per example, `[...]`; NaN where the plausibilities are not a distribution.

    Example:
        >>> logits, mixture = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([[0.25, 0.75, 0.0]])
        >>> print(expect_over_labels(logits, mixture, loss=positive_cross_entropy).round(4))
        [0.1735]

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth".
    """
    scores, plausible = logits_and_targets(
        logits, plausibilities, name="plausibilities", where=where, may_be_soft=True
    )
    if where is None:
        _checks.sums_of_one(plausibilities, "plausibilities")
    num_classes = scores.shape[-1]
    if num_labels is None:
        classes = jnp.broadcast_to(jnp.arange(num_classes), scores.shape)
        weights, (_, labels) = plausible, _sharding.unify(scores, classes)
    else:
        (num_labels,) = _checks.set_sizes((num_labels,), "num_labels", num_classes)
        weights, labels = select_largest(plausible, num_labels)
    of_labels = jax.vmap(loss, in_axes=(None, -1), out_axes=-1)(scores, labels)
    # 0 times an infinite loss, of a label that is not plausible, is NaN.
    losses = jnp.where(weights > 0, weights * of_labels, 0).sum(axis=-1)
    rounding = _checks.rounding_of_sum(jnp.asarray(plausibilities).dtype)
    is_one = jnp.abs(weights.sum(axis=-1) - 1) <= rounding
    losses = nan_unless((plausible >= 0).all(axis=-1) & is_one, losses)
    return zero_left_out(losses, where)


def binary_cross_entropy(
    logits: ArrayLike, targets: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The sum of the binary cross-entropies of all classes.

    .. math:: \ell(s, t) = -\sum_j t_j \log\sigma(s_j) + (1 - t_j) \log(1 - \sigma(s_j))

    Args:
        logits, where: see `topk_jax.losses`.
        targets: 1 (or true) for the classes that are present, 0 for the others, `[..., L]`; a
            number between them is the probability that the class is present.

    Returns:
        One loss per example, `[...]`; NaN where a traced target is not from 0 to 1.

    Example:
        >>> print(binary_cross_entropy(jnp.array([[1.0, -2.0]]), jnp.array([[1, 0]])).round(2))
        [0.44]

    Source: thesis, equation 6.3.
    """
    scores, targets = scores_and_targets(logits, targets, where, may_be_soft=True)
    return scores.losses(_binary(scores.values, targets, 1 - targets).sum(axis=-1))


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

    Args:
        logits, where: see `topk_jax.losses`.
        targets: see `binary_cross_entropy`.
        gamma_positive: scalar strength of the scaling of classes that are present, at least 0.
        gamma_negative: the same for absent classes.
        margin: scalar m, in [0, 1).

    Returns:
        One loss per example, `[...]`; NaN where a traced target is not from 0 to 1.

    Example:
        >>> print(asymmetric(jnp.array([[1.0, 0.0, -4.0]]), jnp.array([[1, 0, 0]])).round(4))
        [0.3378]

    Source: Ridnik et al. (2021), "Asymmetric loss for multi-label classification", equation 8.
    """
    scores, targets = scores_and_targets(logits, targets, where, may_be_soft=True)
    gamma_positive = scalar(gamma_positive, "gamma_positive", scores.dtype, at_least=0)
    gamma_negative = scalar(gamma_negative, "gamma_negative", scores.dtype, at_least=0)
    margin = scalar(margin, "margin", scores.dtype, at_least=0, below=1)
    likely = negative_log_likelihood(scores.values, True)
    unlikely = negative_log_likelihood(scores.values, False)
    present = targets * jnp.exp(-gamma_positive * unlikely) * likely
    above = jnp.exp(-likely) - margin
    counts = (targets < 1) & ~(above <= 0)
    # 1 - q is sigmoid(-s) + m, which has all digits near p = 1. Powers of 0 have infinite slopes,
    # so classes that do not count get another number. Without a margin the sigmoid may be 0.
    above = jnp.where(counts, above, 1)
    has_margin = margin > 0
    complement = jnp.where(counts & has_margin, jnp.exp(-unlikely) + margin, 1)
    costs = jnp.where(has_margin, -jnp.log(complement), unlikely)
    absent = jnp.where(counts, (1 - targets) * above**gamma_negative * costs, 0)
    # The slopes of classes that do not count are 0, also in a NaN parameter.
    is_right = scores.is_valid & ~jnp.isnan(gamma_positive + gamma_negative + margin)
    return scores.losses_of_few(nan_unless(is_right, (present + absent).sum(axis=-1)))


def positive_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The binary cross-entropy of only the positive class.

    .. math:: \ell(z, y) = -\log\sigma(z_y)

    Large scores of all classes minimise it: add a term for the size of the sets.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(positive_cross_entropy(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])).round(4))
        [0.1269]

    Source: Cole et al. (2021); thesis, equation 5.6.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    return scores.losses_of_few(_positive_loss(scores))


def assume_negative(
    logits: ArrayLike, labels: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The binary cross-entropy with one positive class, and a total weight of 1 for all others.

    .. math:: \ell(z, y) = -\log\sigma(z_y) - \frac{1}{L-1} \sum_{j \ne y} \log(1 - \sigma(z_j))

    Args:
        logits, labels, where: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(assume_negative(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])).round(4))
        [1.1301]

    Source: Cole et al. (2021); thesis, equation 5.5.
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

    Args:
        logits, labels, axis_name: see `topk_jax.losses`.
        expected_positives: scalar K, the expected number of classes per set, in [0, L].
        beta: scalar weight of the squared gap, at least 0.

    Returns:
        The loss of the batch, a scalar.

    Example:
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> options = {"expected_positives": 1.0, "beta": 0.1}
        >>> print(expected_positive_regularization(logits, labels, **options).round(4))
        0.3276

    Source: Cole et al. (2021); thesis, equations 5.7 and 5.8.
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
    without a gradient. Cole et al. have this loss divided by L, with :math:`w = \lambda / L`.

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
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> theta, options = jnp.zeros_like(logits), {"expected_positives": 1.0, "weight": 0.1}
        >>> print(role(logits, theta, labels, **options).round(4))
        2.8009

    Source: Cole et al. (2021), "Multi-label learning from single positive labels"; thesis, 5.4.6.
    """
    network, estimate = two_heads(("logits", logits), ("label_logits", label_logits), labels)
    _checks.some_examples(network.values, "logits")
    _checks.axis_size(axis_name)
    expected = _expected(expected_positives, network)
    weight = scalar(weight, "weight", network.dtype, at_least=0)
    of_examples = _positive_loss(network) + _cross_loss(network, estimate)
    of_examples += _positive_loss(estimate) + _cross_loss(estimate, network)
    gaps = [_squared_gap(head, expected, axis_name) for head in (network, estimate)]
    loss = 0.5 * (batch_mean(of_examples, axis_name) + weight * (gaps[0] + gaps[1]))
    return batch_loss(loss, axis_name, network, estimate)


def negative_log_likelihood(scores: jax.Array, positive: jax.Array | bool) -> jax.Array:
    """The loss [..., L] of finite scores: -log sigmoid(score), or of -score for absent classes."""
    return -jax.nn.log_sigmoid(jnp.where(positive, scores, -scores))


def _binary(scores: jax.Array, present: jax.Array, absent: jax.Array) -> jax.Array:
    """The losses of the classes, with the weights of their presence and absence, `[..., L]`."""
    likely, unlikely = (negative_log_likelihood(scores, positive) for positive in (True, False))
    return present * likely + absent * unlikely


def _positive_loss(scores: Scores) -> jax.Array:
    return -jax.nn.log_sigmoid(scores.of_label(scores.values))


def _cross_loss(scores: Scores, others: Scores) -> jax.Array:
    """The binary cross-entropy [...] against the sigmoids of other scores, which are constants.

    A class that only `scores` masks would have an infinite loss, and counts 0.
    """
    logits = jax.lax.stop_gradient(others.given)
    costs = _binary(scores.values, jax.nn.sigmoid(logits), jax.nn.sigmoid(-logits))
    return jnp.where(jnp.isneginf(scores.given), 0.0, costs).sum(axis=-1)


def _squared_gap(scores: Scores, expected: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """The squared gap between the batch's mean number of predicted classes and the expected one."""
    positives = scores.sum(jax.nn.sigmoid(scores.values))
    return jnp.square(batch_mean(positives, axis_name) - expected)


def _expected(expected_positives: ArrayLike, scores: Scores) -> jax.Array:
    bounds = {"at_least": 0, "at_most": scores.num_classes}
    return scalar(expected_positives, "expected_positives", scores.dtype, **bounds)
