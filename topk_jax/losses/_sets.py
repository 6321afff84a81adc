"""Losses of the sets of a batch, by the scores of its labels, and the choice of a set size.

Each device gets the scores of the labels of all others, one number for each example.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _sharding
from topk_jax._checks import scalar
from topk_jax._classes import FLOOR, nan_unless
from topk_jax._example import Scores, batch_loss, batch_mean, zero_elsewhere
from topk_jax.operators._expected import check_expectation, compute_expected_mean
from topk_jax.operators._soft_top_k import from_kth_largest, logistic_threshold
from topk_jax.operators._top_k import compute_top_k_value

__all__ = [
    "cardinality_aware",
    "cardinality_costs",
    "conformal_training",
    "efficiency_gap",
    "p_value_uniformity",
    "size_at_average_error",
]


@_sharding.allow_split(of="batch")
def conformal_training(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    temperature: ArrayLike,
    smoothing: ArrayLike,
    size_weight: ArrayLike = 1.0,
    target_size: ArrayLike = 1.0,
    loss_matrix: ArrayLike | None = None,
    conformity: Literal["log_probability", "logit"] = "log_probability",
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The logarithm of the errors and of the sizes of conformal sets that a batch calibrates.

    .. math::
        \ell(Z, y) = \log \Bigl( \frac1{|P|} \sum_{i \in P} \bigl[ \Omega_i
        + w \max\bigl(0, \textstyle\sum_j C_{ij} - \kappa \bigr) \bigr] + 10^{-8} \Bigr), \qquad
        C_{ij} = \sigma\Bigl(\frac{s_{ij} - q}T\Bigr)

    .. math::
        \Omega_i = \sum_j W_{y_i j} \bigl( \mathbb 1\{j = y_i\} (1 - C_{ij})
        + \mathbb 1\{j \ne y_i\} \, C_{ij} \bigr)

    The examples at places 0, 2, ... of the batch calibrate: q is the `expected_top_k_value` of
    their labels' scores, the k-th largest of m with :math:`k = \lceil (m + 1)(1 - \varepsilon)
    \rceil`, at most m. The others, P, get the soft sets C. Add a cross-entropy. After training,
    calibrate the sets again (`conformal_threshold`): the guarantee comes from this calibration.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`; at least two examples.
        error: static rate :math:`\varepsilon` of missed labels, a real number in [0, 1).
        temperature: positive scalar T, in the units of the scores s.
        smoothing: positive scalar standard deviation of the quantile's noise, in the same units.
        size_weight: scalar weight w of the sizes, at least 0.
        target_size: scalar kappa, at least 0: smaller sets do not cost less.
        loss_matrix: W, `[L, L]` also if the classes are split, at least 0 and finite: row y has the
            costs of an example of class y; `None` for the identity.
        conformity: "log_probability" for s = log softmax(Z), or "logit" for s = Z.

    Returns:
        The loss of the batch, a scalar.

    Example:
        >>> logits = jnp.array([[3.0, 0.0], [2.0, 1.0], [1.0, 3.0], [0.0, 0.5]])
        >>> labels, options = jnp.array([0, 1, 1, 1]), {"temperature": 0.5, "smoothing": 0.1}
        >>> print(conformal_training(logits, labels, error=0.1, **options).round(2))
        -0.24

    Source: Stutz et al. (2022), "Learning optimal conformal classifiers", with our own quantile.
    """
    given, scores, of_labels = _conformity(logits, labels, conformity, axis_name, class_axis_name)
    dtype = scores.dtype
    calibrating, rank = _calibrating(of_labels, _checks.static_error(error))
    temperature = scalar(temperature, "temperature", dtype, above=0)
    size_weight = scalar(size_weight, "size_weight", dtype, at_least=0)
    target_size = scalar(target_size, "target_size", dtype, at_least=0)
    smoothing = scalar(smoothing, "smoothing", dtype, above=0)
    epsilon, num_nodes = check_expectation(rank, calibrating.size, smoothing, None, dtype)
    # Differences to the hard quantile, because sums of scores of 1e4 are rounded by a temperature.
    origin = jax.lax.stop_gradient(compute_top_k_value(calibrating, rank))
    threshold = compute_expected_mean(calibrating - origin, (rank,), epsilon, (num_nodes,))
    gaps = (scores - origin - threshold) / temperature
    memberships = jax.nn.sigmoid(gaps)
    costs = jnp.where(given.is_label, jax.nn.sigmoid(-gaps), memberships)
    costs = given.sum(costs * _weights(loss_matrix, given))
    costs += size_weight * jax.nn.relu(given.sum(memberships) - target_size)
    loss = jnp.log(_mean_of_odd_places(costs, axis_name) + 1e-8)
    return batch_loss(loss, axis_name, given)


def _weights(loss_matrix: ArrayLike | None, given: Scores) -> jax.Array:
    """The row of W for the label of each example, `[..., L]`, of the classes of this device."""
    dtype, num_own = given.dtype, given.values.shape[-1]
    if loss_matrix is None:
        return given.is_label.astype(dtype)
    shape = (given.num_classes, given.num_classes)
    matrix = _checks.real_array(loss_matrix, "loss_matrix", dtype, shape)
    matrix = _checks.within(
        loss_matrix, matrix, "loss_matrix", at_least=0, at_most=float(jnp.finfo(dtype).max)
    )
    if given.name is not None:
        start = num_own * jax.lax.axis_index(given.name)
        matrix = jax.lax.dynamic_slice_in_dim(matrix, start, num_own, axis=1)
    return _classes.value_of_class(matrix, given.labels)


def size_at_average_error(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    error: ArrayLike,
    temperature: ArrayLike,
    conformity: Literal["log_probability", "logit"] = "log_probability",
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The mean size of soft sets that miss the labels of the batch at a given rate.

    .. math::
        \ell(Z, y) = \frac1n \sum_i \sum_j u_{ij}, \qquad
        u_{ij} = \sigma\Bigl(\frac{s_{ij} - t}T\Bigr), \qquad
        \frac1n \sum_i u_{i, y_i} = 1 - \varepsilon

    The second equation determines the threshold t, which the gradient goes through. Add a
    cross-entropy, because the gradient vanishes if all sets are certain.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`.
        error: scalar rate :math:`\varepsilon` of missed labels, in (0, 1).
        temperature: positive scalar T, in the units of the scores s.
        conformity: "log_probability" for s = log softmax(Z), or "logit" for s = Z.

    Returns:
        The mean size, a scalar from 0 to L.

    Example:
        >>> logits = jnp.array([[4.0, 0.0, 0.0], [2.0, 1.0, -2.0], [0.0, 0.0, 3.0]])
        >>> labels = jnp.array([0, 1, 2])
        >>> print(size_at_average_error(logits, labels, error=0.1, temperature=0.1).round(2))
        1.23

    Source: here, for the average error of the thesis, sections 2.2.1 and 6.1.
    """
    given, scores, of_labels = _conformity(logits, labels, conformity, axis_name, class_axis_name)
    error = scalar(error, "error", scores.dtype, above=0, below=1)
    temperature = scalar(temperature, "temperature", scores.dtype, above=0)
    number = of_labels.size * (1 - error)
    # At scores of 1e4, a threshold in float32 would be rounded by more than a small temperature.
    distances, origin = from_kth_largest(of_labels, number, temperature)
    gaps = (scores - origin[0]) / temperature - logistic_threshold(distances, number)[0]
    sizes = given.sum(jax.nn.sigmoid(gaps))
    return batch_loss(batch_mean(sizes, axis_name), axis_name, given)


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
    scores, with :math:`r = \lceil (m + 1)(1 - \varepsilon) \rceil`, at most m. The others are P.
    A loss of `logits / T` goes to 0 with T: the number of steps decides the temperature.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`; at least two examples.
        error: static rate :math:`\varepsilon` of missed labels, a real number in [0, 1).

    Returns:
        The mean, a scalar from 0 to 1.

    Example:
        >>> logits = jnp.array([[3.0, 0.0], [2.0, 1.0], [1.0, 3.0], [0.0, 0.5]])
        >>> labels = jnp.array([0, 1, 1, 1])
        >>> print(efficiency_gap(logits, labels, error=0.1).round(2))
        0.06

    Source: Xi et al. (2025), "Does confidence calibration improve conformal prediction?", ConfTS.
    """
    given = Scores.of(logits, labels, class_axis_name=class_axis_name)
    masses = _mass_up_to_labels(given, jnp.ones((), given.dtype))
    calibrating, rank = _calibrating(
        _of_whole_batch(masses, axis_name), _checks.static_error(error)
    )
    gaps = jnp.square(jnp.sort(calibrating)[rank - 1] - masses)
    return batch_loss(_mean_of_odd_places(gaps, axis_name), axis_name, given)


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

    with :math:`a_{(1)} \le \dots \le a_{(n)}`. Add a cross-entropy of other examples: the scores of
    a network that fits its labels are not uniform.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`.
        uniform: U, one new draw of `jax.random.uniform` for each example and call, `[...]`.

    Returns:
        The distance, a scalar from 0 to 1.

    Example:
        >>> logits = jnp.array([[5.0, 0.0], [5.0, 0.0]])
        >>> labels, uniform = jnp.array([0, 0]), jnp.array([0.1, 0.6])
        >>> print(f"{p_value_uniformity(logits, labels, uniform=uniform):.2f}")
        0.40

    Source: Einbinder et al. (2022), "Training uncertainty-aware classifiers", equations 4 to 7.
    """
    given = Scores.of(logits, labels, class_axis_name=class_axis_name)
    _checks.some_examples(given.values, "logits")
    drawn = _checks.real_array(uniform, "uniform", given.dtype, given.labels.shape)
    drawn = _checks.within(uniform, drawn, "uniform", at_least=0, at_most=1)
    ascending = jnp.sort(_of_whole_batch(_mass_up_to_labels(given, drawn), axis_name))
    steps = jnp.arange(ascending.size + 1, dtype=ascending.dtype) / ascending.size
    distance = jnp.maximum(steps[1:] - ascending, ascending - steps[:-1]).max()
    # The mean of equal numbers, so that the gradients of the devices add up to one. A maximum on
    # the CPU may lose a NaN, so the numbers that were drawn mark it.
    distance = batch_mean(distance + 0 * drawn, axis_name)
    return batch_loss(distance, axis_name, given)


def _conformity(
    logits: ArrayLike,
    labels: ArrayLike,
    conformity: str,
    axis_name: Hashable | None,
    class_axis_name: Hashable | None,
) -> tuple[Scores, jax.Array, jax.Array]:
    """The arguments, the scores `[..., L]`, and those of the labels on all devices, `[n]`."""
    given = Scores.of(logits, labels, class_axis_name=class_axis_name)
    kind = _checks.choice(conformity, "conformity", ("log_probability", "logit"))
    _checks.some_examples(given.values, "logits")
    scores = given.log_softmax() if kind == "log_probability" else given.values
    return given, scores, _of_whole_batch(given.of_label(scores), axis_name)


def _of_whole_batch(values: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """One number of each example, [...], of the examples of all devices, `[n]`."""
    _checks.axis_size(axis_name)
    if axis_name is None:
        return _sharding.gather(values).reshape(-1)
    whole: jax.Array = jax.lax.all_gather(values.reshape(-1), axis_name, tiled=True)
    return whole


def _calibrating(values: jax.Array, error: Fraction) -> tuple[jax.Array, int]:
    """The values [n] at places 0, 2, ..., and the rank of their quantile."""
    if values.size < 2:
        raise ValueError(f"logits must have at least two examples, got {values.size}.")
    found = values[::2]
    return found, min(math.ceil((found.size + 1) * (1 - error)), found.size)


def _mass_up_to_labels(given: Scores, own_part: jax.Array) -> jax.Array:
    """The softmax's sum over the classes above the label, with a part of the label's, `[...]`."""
    probabilities = jnp.exp(given.log_softmax())
    above = given.values > given.of_label(given.values)[..., None]
    return given.sum(jnp.where(above, probabilities, 0)) + own_part * given.of_label(probabilities)


def _mean_of_odd_places(values: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """The mean of values [...] at places 1, 3, ... of the complete batch."""
    places = jnp.arange(values.size)
    if axis_name is not None:
        places += values.size * jax.lax.axis_index(axis_name)
    odd = (places % 2).reshape(values.shape).astype(values.dtype)
    num_examples = values.size * _checks.axis_size(axis_name)
    return batch_mean(odd * values, axis_name) / ((num_examples // 2) / num_examples)


def cardinality_aware(
    selector_logits: ArrayLike, costs: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The cost-sensitive logistic loss of a network that chooses one of M set sizes.

    .. math:: \ell(r, c) = \sum_j (1 - c_j) \log \sum_i e^{r_i - r_j}

    Args:
        selector_logits: floating-point scores r of the set sizes, `[..., M]`; -inf masks a size.
        costs: the costs of the set sizes, numbers in [0, 1], `[..., M]`; see `cardinality_costs`.
        where: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`; NaN where a cost is outside [0, 1].

    Example:
        >>> print(cardinality_aware(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 0.25]])).round(4))
        [1.2982]

    Source: Cortes et al. (2024), "Cardinality-aware set prediction and top-k classification".
    """
    given = _checks.floating_array(selector_logits, "selector_logits")
    costs = _checks.real_array(costs, "costs", given.dtype, given.shape)
    given, costs = zero_elsewhere(where, given, costs)
    scores = Scores.without_labels(given, (costs >= 0) & (costs <= 1), where)
    weights = jnp.where(scores.values <= FLOOR, 0, 1 - costs)
    return scores.losses(-scores.sum(weights * scores.log_softmax()))


def cardinality_costs(
    logits: ArrayLike, labels: ArrayLike, *, sizes: Sequence[int], weight: ArrayLike
) -> jax.Array:
    r"""The cost of each of M set sizes: a missed label, and the logarithm of the size.

    .. math::
        c_j = \frac{\mathbf 1[y \notin \mathrm{top}_{k_j}(s)] + \lambda \log k_j}
        {1 + \lambda \log \max_i k_i}

    A label that ties with other classes is in the set. The costs have no gradient.

    Args:
        logits, labels: see `topk_jax.losses`.
        sizes: the set sizes k, a sequence of M static integers from 1 to L.
        weight: scalar lambda, at least 0: a set e times as large costs as much as this error rate.

    Returns:
        One cost per example and size, `[..., M]`.

    Example:
        >>> logits, labels = jnp.array([[3.0, 2.0, 1.0, 0.0]]), jnp.array([1])
        >>> print(cardinality_costs(logits, labels, sizes=(1, 2), weight=0.05).round(4))
        [[0.9665 0.0335]]

    Source: Cortes et al. (2024), the cardinality-aware loss with costs log k.
    """
    scores = Scores.of(logits, labels)
    sizes = _checks.set_sizes(sizes, "sizes", scores.num_classes)
    weight = scalar(weight, "weight", scores.dtype, at_least=0)
    above = scores.given > scores.of_label(scores.given)[..., None]
    shape = (*scores.labels.shape, len(sizes))
    is_missed = above.sum(axis=-1, keepdims=True) >= jnp.broadcast_to(jnp.asarray(sizes), shape)
    logs = jnp.asarray(np.log(sizes), scores.dtype)
    penalties = weight * jnp.broadcast_to(logs, shape)
    costs = (is_missed.astype(scores.dtype) + penalties) / (1 + weight * float(np.log(max(sizes))))
    return jax.lax.stop_gradient(nan_unless(scores.is_valid[..., None], costs))
