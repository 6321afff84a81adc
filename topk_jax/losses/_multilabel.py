"""Sigmoid losses: one binary problem per class, for labels that may be incomplete.

All of them use logarithms of sigmoids. Identity: `1 - sigmoid(s) = sigmoid(-s)`. Hazard: the
sigmoid rounds to 0 below scores of -88 and to 1 above 17. Its logarithm is then infinite or has no
correct digit. Choice: `jax.nn.log_sigmoid` of the score, or of minus the score for negative labels.
Cost: one exponential and one logarithm per entry, as before.
"""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics

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
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        targets: 1 (or true) for the classes that are present and 0 for the others, `[..., L]`;
            booleans, integers or floats. A number between them is the probability that the class
            is present: a smoothed label, a share of votes, or a mixture of examples.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and targets are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or a
        traced target is not from 0 to 1.

    Raises:
        TypeError: `logits` is not floating-point or `targets` is neither boolean nor real.
        ValueError: the shapes do not match, or a concrete target is not from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, targets = jnp.array([[1.0, 0.0, -2.0]]), jnp.array([[1, 1, 0]])
        >>> print(losses.binary_cross_entropy(logits, targets).round(4))
        [1.1333]
        >>> print(losses.binary_cross_entropy(logits, jnp.array([[0.5, 1.0, 0.0]])).round(4))
        [1.6333]

    See Also:
        `assume_negative`, `cross_entropy`, `expect_over_labels`.

    Source: Garcin (2023), thesis, equation 6.3.
    """
    scores, targets = _checks.logits_and_targets(logits, targets, where=where, may_be_soft=True)
    # Hazard: 0 times the infinite loss of a masked class is NaN. Choice: no product there. The
    # products with 1 are exact. Cost: two selections; both parts share their logarithm.
    present = jnp.where(targets > 0, targets * negative_log_likelihood(scores, True), 0)
    absent = jnp.where(targets < 1, (1 - targets) * negative_log_likelihood(scores, False), 0)
    loss = (present + absent).sum(axis=-1)
    losses = _numerics.nan_where_invalid_targets(loss, scores, targets, may_be_soft=True)
    return _numerics.zero_left_out(losses, where)


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
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        targets: 1 (or true) for the classes that are present and 0 for the others, `[..., L]`;
            booleans, integers or floats. A number between them is the probability that the class
            is present: a smoothed label, a share of votes, or a mixture of examples.
        gamma_positive: scalar strength of the scaling of classes that are present, at least 0. May
            be traced.
        gamma_negative: the same for absent classes.
        margin: scalar m, in [0, 1). May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and targets are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or a
        traced target is not from 0 to 1.

    Raises:
        TypeError: `logits` is not floating-point, or another argument is neither boolean nor real.
        ValueError: the shapes do not match, a concrete target is not from 0 to 1, or a parameter is
            outside its range or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, targets = jnp.array([[1.0, 0.0, -4.0]]), jnp.array([[1, 0, 0]])
        >>> print(losses.asymmetric(logits, targets).round(4))
        [0.3378]
        >>> print(losses.binary_cross_entropy(logits, targets).round(4))
        [1.0246]

    See Also:
        `binary_cross_entropy`, `sparse_top_loss`, `focal`.

    Source: Ridnik et al. (2021), "Asymmetric loss for multi-label classification", equation 8.
    """
    scores, targets = _checks.logits_and_targets(logits, targets, where=where, may_be_soft=True)
    gamma_positive = _checks.scalar(gamma_positive, "gamma_positive", scores.dtype, at_least=0)
    gamma_negative = _checks.scalar(gamma_negative, "gamma_negative", scores.dtype, at_least=0)
    margin = _checks.scalar(margin, "margin", scores.dtype, at_least=0, below=1)
    # The slope of classes below the margin is 0, but NaN if the example is invalid.
    marked = _numerics.nan_where_invalid_targets(
        scores, scores[..., None, :], targets[..., None, :], may_be_soft=True
    )
    rows = _numerics.with_slope_of(scores, marked)
    likely = negative_log_likelihood(rows, True)
    unlikely = negative_log_likelihood(rows, False)
    # Hazard: 0 times the infinite loss of a masked class is NaN. Choice: no product there.
    present = jnp.where(targets > 0, targets * jnp.exp(-gamma_positive * unlikely) * likely, 0)
    above = jnp.exp(-likely) - margin
    counts = (targets < 1) & ~(above <= 0)
    # Identity: 1 - q = sigmoid(-s) + m. Hazards: 1 - p has no correct digit near p = 1, and powers
    # of 0 have infinite slopes. Choices: the sigmoid of minus the score, and another number if the
    # class does not count. Without a margin, the log-sigmoid is used: the sigmoid may be 0.
    # Cost: a logarithm per entry.
    above = jnp.where(counts, above, 1)
    has_margin = margin > 0
    complement = jnp.where(counts & has_margin, jnp.exp(-unlikely) + margin, 1)
    costs = jnp.where(has_margin, -jnp.log(complement), unlikely)
    absent = jnp.where(counts, (1 - targets) * above**gamma_negative * costs, 0)
    # A NaN parameter is not used by all classes. Choice: a factor, which marks the gradient, too.
    is_wrong = jnp.isnan(gamma_positive + gamma_negative + margin)
    losses = jnp.where(is_wrong, jnp.nan, 1) * (present + absent).sum(axis=-1)
    losses = _numerics.nan_where_invalid_targets(losses, scores, targets, may_be_soft=True)
    return _numerics.zero_left_out(losses, where)


@_class_axis.allow_split()
def positive_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The binary cross-entropy of only the positive class.

    .. math:: \ell(z, y) = -\log\sigma(z_y)

    Nothing keeps the scores of the other classes low, so without another term large scores of all
    classes minimise it. Add a term for the size of the sets: `expected_positive_regularization`
    does.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.positive_cross_entropy(logits, labels).round(4))
        [0.1269]

    See Also:
        `assume_negative`, `expected_positive_regularization`, `binary_cross_entropy`.

    Source: Cole et al. (2021); Garcin (2023), thesis, equation 5.6.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    losses = _positive_loss(scores, labels, class_axis_name)
    return _numerics.zero_left_out(losses, where)


@_class_axis.refuse_split
def assume_negative(
    logits: ArrayLike, labels: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The binary cross-entropy with one positive class, and a total weight of 1 for all others.

    .. math:: \ell(z, y) = -\log\sigma(z_y) - \frac{1}{L-1} \sum_{j \ne y} \log(1 - \sigma(z_j))

    With a single class the second term is 0.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> print(losses.assume_negative(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])).round(4))
        [1.1301]

    See Also:
        `binary_cross_entropy`, `expected_positive_regularization`, `role`.

    Source: Cole et al. (2021); Garcin (2023), thesis, equation 5.5.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    num_classes = scores.shape[-1]
    positive = _numerics.is_label(scores, labels)
    weights = jnp.where(positive, 1.0, 1.0 / max(num_classes - 1, 1)).astype(scores.dtype)
    loss = (weights * negative_log_likelihood(scores, positive)).sum(axis=-1)
    return _numerics.zero_left_out(_numerics.nan_where_invalid(loss, scores, labels), where)


@_class_axis.refuse_split
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
        logits: floating-point scores, `[..., L]`; all axes but the last are the batch of n
            examples. -inf masks a class. The label of a masked class costs about 1e30.
        labels: integer classes, `[...]`.
        expected_positives: scalar K, the expected number of classes per set, in [0, L].
        beta: scalar weight of the squared gap, at least 0.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch. Under `pmap` and
            `shard_map(check_vma=False)`, average the gradients of shared parameters over the
            devices (`jax.lax.pmean`) to get the gradient of the complete batch. Gradients with
            respect to values of one device, such as its logits, are too large by a factor of the
            number of devices. Under `shard_map(check_vma=True)`, both are already the gradients of
            the complete batch.

    Returns:
        The loss of the batch, a scalar in float32 or float64; NaN if a logit is NaN or +inf, or a
        label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> print(losses.expected_positive_regularization(
        ...     logits, labels, expected_positives=1.0, beta=0.1).round(4))
        0.3276

    See Also:
        `role`, `assume_negative`.

    Source: Cole et al. (2021); Garcin (2023), thesis, equations 5.7 and 5.8.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    _checks.some_examples(scores, "logits")
    _checks.axis_size(axis_name)
    expected = _expected(expected_positives, scores)
    beta = _checks.scalar(beta, "beta", scores.dtype, at_least=0.0)
    (scores,) = _numerics.batch_with_slopes_or_nan(scores, labels=labels, axis_name=axis_name)
    positive = _numerics.batch_mean(_positive_loss(scores, labels), axis_name)
    return positive + beta * _squared_gap(scores, expected, axis_name)


@_class_axis.refuse_split
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
    without a gradient. The network and the estimate each learn from the other, from the observed
    labels and from the mean number of classes. The sums run over the classes, as everywhere in this
    package. Cole et al. average over the classes and divide the gap by L. With their weight
    :math:`\lambda`, their loss is this loss at :math:`w = \lambda / L`, divided by L.

    Args:
        logits: floating-point scores Z of the network, `[..., L]`; all axes but the last are the
            batch, n examples. -inf masks a class. The label of a masked class costs about 1e30.
        label_logits: floating-point logits of the estimated labels, `[..., L]`: the rows of Theta
            for these examples.
        labels: integer classes, `[...]`.
        expected_positives: scalar K, the expected number of classes per set, in [0, L].
        weight: scalar weight w of the squared gaps, at least 0.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            The loss and gradients are as in `expected_positive_regularization`. Rows of Theta that
            only one device holds are not shared parameters. Under `pmap` and
            `shard_map(check_vma=False)`, divide their gradient by the number of devices to get the
            gradient of the complete batch.

    Returns:
        The loss of the batch, a scalar in float32 or float64; NaN if a logit of either argument is
        NaN or a label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> theta = jnp.zeros_like(logits)
        >>> print(losses.role(
        ...     logits, theta, labels, expected_positives=1.0, weight=0.1).round(4))
        2.8009

    See Also:
        `expected_positive_regularization`, `assume_negative`.

    Source: Cole et al. (2021), "Multi-label learning from single positive labels"; Garcin (2023),
    thesis, section 5.4.6.
    """
    scores, estimates, labels = _checks.two_heads(
        ("logits", logits), ("label_logits", label_logits), labels
    )
    _checks.some_examples(scores, "logits")
    _checks.axis_size(axis_name)
    expected = _expected(expected_positives, scores)
    weight = _checks.scalar(weight, "weight", scores.dtype, at_least=0.0)
    scores, estimates = _numerics.batch_with_slopes_or_nan(
        scores, estimates, labels=labels, axis_name=axis_name
    )
    examples = (
        _positive_loss(scores, labels)
        + _positive_loss(estimates, labels)
        + _cross_loss(scores, estimates)
        + _cross_loss(estimates, scores)
    )
    gaps = _squared_gap(scores, expected, axis_name) + _squared_gap(estimates, expected, axis_name)
    return 0.5 * (_numerics.batch_mean(examples, axis_name) + weight * gaps)


def negative_log_likelihood(scores: jax.Array, positive: jax.Array | bool) -> jax.Array:
    """The loss [..., L] of each class: -log sigmoid(score), or of -score for negative classes."""
    scores = _numerics.finite_scores(scores)
    return -jax.nn.log_sigmoid(jnp.where(positive, scores, -scores))


def _positive_loss(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    rows = _numerics.finite_scores(scores)
    loss = -jax.nn.log_sigmoid(_numerics.score_of_label(rows, labels, class_axis_name))
    return _numerics.nan_with_slopes_where_invalid(loss, scores, labels, class_axis_name)


def _cross_loss(scores: jax.Array, others: jax.Array) -> jax.Array:
    """The binary cross-entropy [...] of scores against the sigmoids of other scores.

    Hazard: `1 - sigmoid` loses its digits near 1. Choice: `sigmoid` of minus the score. Hazard: a
    class that only one argument masks has an infinite loss. Choice: its loss there is 0. No
    gradient flows to the other scores.
    """
    others = jax.lax.stop_gradient(others)
    finite = _numerics.finite_scores(scores)
    present = jax.nn.sigmoid(others) * jax.nn.log_sigmoid(finite)
    absent = jax.nn.sigmoid(-others) * jax.nn.log_sigmoid(-finite)
    return jnp.where(jnp.isneginf(scores), 0.0, -present - absent).sum(axis=-1)


def _squared_gap(scores: jax.Array, expected: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """The squared gap between the batch's mean number of predicted classes and the expected number.

    Hazard: the mean of the devices' squared gaps is not the squared gap of the batch. Choice:
    average over the devices before squaring.
    """
    positives = jax.nn.sigmoid(_numerics.finite_scores(scores)).sum(axis=-1)
    return jnp.square(_numerics.batch_mean(positives, axis_name) - expected)


def _expected(expected_positives: ArrayLike, scores: jax.Array) -> jax.Array:
    return _checks.scalar(
        expected_positives,
        "expected_positives",
        scores.dtype,
        at_least=0.0,
        at_most=float(scores.shape[-1]),
    )
