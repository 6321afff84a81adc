"""Losses of the sets of a batch, by the scores of its labels; larger scores conform better.

Each device gets the scores of the labels of all others, one number for each example.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _search, _sharding
from topk_jax._compilation import compiled
from topk_jax._example import Scores, batch_loss, batch_mean, scalar
from topk_jax.operators._expected import check_expectation, compute_expected_top_k_value
from topk_jax.operators._top_k import compute_top_k_value

__all__ = [
    "conformal_training",
    "efficiency_gap",
    "p_value_uniformity",
    "size_at_average_error",
]

_CONFORMITIES = ("log_probability", "logit")
# Added below the logarithm, for a batch whose sets cost nothing.
_SMALLEST = 1e-8


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
    \rceil`, at most m. The others, P, get the soft sets C. With the identity for W, :math:`\Omega`
    is the missed coverage.

    Add a cross-entropy. After training, calibrate the sets again (`conformal_threshold`): the
    guarantee comes from this calibration.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`; at least two examples.
        error: static rate :math:`\varepsilon` of missed labels, a real number in [0, 1).
        temperature: positive scalar T, in the units of the scores s.
        smoothing: positive scalar standard deviation of the noise of the quantile, in the units of
            the scores s.
        size_weight: scalar weight w of the sizes, at least 0.
        target_size: scalar kappa, at least 0: smaller sets do not cost less.
        loss_matrix: W, `[L, L]`, at least 0 and finite: on the diagonal the cost of missing a
            class, and in row y the costs of other classes in the set of an example of class y.
            `None` for the identity. With split classes, each device needs the complete matrix.
        conformity: "log_probability" for s = log softmax(Z), as in the sets of "lac", or "logit"
            for s = Z.

    Returns:
        The loss of the batch, a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 0.0], [2.0, 1.0], [1.0, 3.0], [0.0, 0.5]])
        >>> loss = losses.conformal_training(
        ...     logits, jnp.array([0, 1, 1, 1]), error=0.1, temperature=0.5, smoothing=0.1
        ... )
        >>> print(f"{loss:.3f}")
        -0.245

    Source: Stutz, Dvijotham, Cemgil and Doucet (2022), "Learning optimal conformal classifiers",
    equations 4 to 7. The smooth quantile is ours.
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
    threshold = compute_expected_top_k_value(calibrating - origin, rank, epsilon, num_nodes)
    gaps = (scores - origin - threshold) / temperature
    memberships = jax.nn.sigmoid(gaps)
    is_label = given.is_label.astype(dtype)
    costs = is_label * jax.nn.sigmoid(-gaps) + (1 - is_label) * memberships
    costs = given.sum(costs * _weights(loss_matrix, given))
    costs += size_weight * jax.nn.relu(given.sum(memberships) - target_size)
    loss = jnp.log(_mean_of_odd_places(costs, axis_name) + _SMALLEST)
    return batch_loss(loss, axis_name, given)


def _weights(loss_matrix: ArrayLike | None, given: Scores) -> jax.Array:
    """The row of W for the label of each example, `[..., L]`, of the classes of this device."""
    dtype, num_own = given.dtype, given.values.shape[-1]
    if loss_matrix is None:
        return given.is_label.astype(dtype)
    shape = (given.num_classes, given.num_classes)
    matrix = _checks.real_array(loss_matrix, "loss_matrix", shape, dtype)
    matrix = _checks.within(loss_matrix, matrix, "loss_matrix", (0, float(jnp.finfo(dtype).max)))
    if given.name is not None:
        start = num_own * jax.lax.axis_index(given.name)
        matrix = jax.lax.dynamic_slice_in_dim(matrix, start, num_own, axis=1)
    return _numerics.value_of_class(matrix, given.labels)


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

    The second equation determines the threshold t, which the gradient goes through. With
    :math:`u' = u (1 - u) / T`,

    .. math::
        \frac{\partial \ell}{\partial s_{ij}}
        = \frac1n u'_{ij} \bigl(1 - \Lambda \, \mathbb 1\{j = y_i\}\bigr), \qquad
        \Lambda = \frac{\sum_{ij} u'_{ij}}{\sum_i u'_{i, y_i}}

    So the scores of the classes that are more likely than :math:`1 / \Lambda` rise, and the others
    fall. It is the dual of the average-K loss: the rate is given, and the size is minimised. The
    gradient vanishes if all sets are certain, so add it to a cross-entropy.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`.
        error: scalar rate :math:`\varepsilon` of missed labels, in (0, 1).
        temperature: positive scalar T, in the units of the scores.
        conformity: "log_probability" for s = log softmax(Z), as in the sets of "lac", or "logit"
            for s = Z, whose sets can be empty for some examples.

    Returns:
        The mean size, a scalar from 0 to L.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[4.0, 0.0, 0.0], [2.0, 1.0, -2.0], [0.0, 0.0, 3.0]])
        >>> labels = jnp.array([0, 1, 2])
        >>> for error in (0.1, 0.4):
        ...     size = losses.size_at_average_error(logits, labels, error=error, temperature=0.1)
        ...     print(f"{size:.3f}")
        1.233
        0.735

    Source: here; the problem is the average error of Garcin (2023), thesis, sections 2.2.1 and 6.1,
    and of Sadinle, Lei and Wasserman (2019).
    """
    given, scores, of_labels = _conformity(logits, labels, conformity, axis_name, class_axis_name)
    error = scalar(error, "error", scores.dtype, above=0, below=1)
    temperature = scalar(temperature, "temperature", scores.dtype, above=0)
    # At scores of 1e4, a threshold in float32 is rounded by more than a small temperature. So a
    # second search, among the differences to the first threshold, finds the rest with all digits.
    origin = _root(*jax.lax.stop_gradient((of_labels, 1 - error, temperature)))
    rest = _root(of_labels - origin, 1 - error, temperature)
    sizes = given.sum(jax.nn.sigmoid((scores - origin - rest) / temperature))
    return batch_loss(batch_mean(sizes, axis_name), axis_name, given)


@jax.custom_jvp
@compiled
def _root(gaps: jax.Array, coverage: jax.Array, temperature: jax.Array) -> jax.Array:
    """The t at which the mean of sigmoid((gaps - t) / T) of gaps [n] is the coverage.

    The mean falls in t, and the root is between the smallest and the largest gap, both minus T
    logit of the coverage. It is searched in the order of the floats.
    """
    shift = temperature * (jnp.log(coverage) - jnp.log1p(-coverage))
    lower, upper = gaps.min() - shift, gaps.max() - shift
    reach = 8 * float(jnp.finfo(gaps.dtype).eps) * jnp.maximum(jnp.abs(lower), jnp.abs(upper))
    bounds = tuple(_search.to_ordinals(bound) for bound in (lower - reach, upper + reach))

    def covers(ordinal: jax.Array) -> jax.Array:
        threshold = _search.to_floats(ordinal, gaps.dtype)
        return jax.nn.sigmoid((gaps - threshold) / temperature).mean() >= coverage

    return _search.to_floats(_search.last_where(covers, *bounds), gaps.dtype)


@_root.defjvp
def _root_jvp(
    primals: tuple[jax.Array, jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The derivative of the implicit function.

    With the slopes v of the sigmoids and their shares w of the sum of v, dt = sum w (dgap -
    (gap - t) dT / T) - n T dcoverage / sum v. If all sigmoids are 0 or 1, all slopes round to 0:
    so w is the softmax of their logarithms, and an infinite slope in the coverage is finite.
    """
    gaps, _, temperature = primals
    slope, of_coverage, of_temperature = tangents
    threshold = _root(*primals)
    scaled = (gaps - threshold) / temperature
    log_slopes = jax.nn.log_sigmoid(scaled) + jax.nn.log_sigmoid(-scaled)
    moved = (jax.nn.softmax(log_slopes) * (slope - scaled * of_temperature)).sum()
    per_slope = jnp.exp(-jax.nn.logsumexp(log_slopes))
    per_slope = jnp.minimum(per_slope, float(jnp.finfo(gaps.dtype).max) / gaps.size)
    return threshold, moved - gaps.size * per_slope * temperature * of_coverage


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

    Conformal temperature scaling (ConfTS) changes the temperature T of a finished classifier by
    steps of gradient descent on this loss of `logits / T`. No temperature is best for the loss: it
    goes to 0 with T. So the result depends on the start and on the number of steps. Which classes
    are above the label is constant, so the gradient is exact almost everywhere.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`; at least two examples.
        error: static rate :math:`\varepsilon` of missed labels, a real number in [0, 1).

    Returns:
        The mean, a scalar from 0 to 1.

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

    Source: Xi et al. (2025), "Does confidence calibration improve conformal prediction?". TorchCP
    divides a batch into two parts, too.
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

    with :math:`a_{(1)} \le \dots \le a_{(n)}`. If p is the law of the label, the score a is uniform
    on [0, 1] for every x; an overconfident network has too many scores near 1. Add the loss to a
    cross-entropy of other examples of the batch, because a network that fits all labels has uniform
    scores only with labels that it was not trained on.

    The gradient goes to the example at which the distance is reached, and is exact almost
    everywhere; the source relaxes both sorts.

    Args:
        logits, labels, axis_name, class_axis_name: see `topk_jax.losses`.
        uniform: U, one number from 0 to 1 of each example, `[...]`; draw new ones for each call
            (`jax.random.uniform`).

    Returns:
        The distance, a scalar from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[5.0, 0.0], [5.0, 0.0]])
        >>> labels, uniform = jnp.array([0, 0]), jnp.array([0.1, 0.6])
        >>> distance = losses.p_value_uniformity(logits, labels, uniform=uniform)
        >>> print(f"{distance:.3f}")
        0.404

    Source: Einbinder, Romano, Sesia and Zhou (2022), "Training uncertainty-aware classifiers with
    conformalized deep learning", equations 4 to 7.
    """
    given = Scores.of(logits, labels, class_axis_name=class_axis_name)
    _checks.some_examples(given.values, "logits")
    drawn = _checks.real_array(uniform, "uniform", given.labels.shape, given.dtype)
    drawn = _checks.within(uniform, drawn, "uniform", (0.0, 1.0))
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
    kind = _checks.choice(conformity, "conformity", _CONFORMITIES)
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
