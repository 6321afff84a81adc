"""Conformal training: sets of one half of a batch, at a smooth quantile of the other half."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics
from topk_jax.losses._label_scores import mean_of_odd_places, measure
from topk_jax.operators._expected import check_expectation, compute_expected_top_k_value
from topk_jax.operators._perturbed import check_perturbation, compute_perturbed
from topk_jax.operators._perturbed_selection import Selection
from topk_jax.operators._relaxed_ranks import check_relaxation, compute_relaxed_value
from topk_jax.operators._top_k import compute_top_k_value

__all__ = ["conformal_training"]

_QUANTILES = ("bitonic", "expected", "neural_sort", "odd_even", "perturbed", "soft_sort")
# Added below the logarithm, for a batch whose sets cost nothing.
_SMALLEST = 1e-8


class _Smoothing(NamedTuple):
    """How the quantile is smoothed; the last three fields are for the noise of "perturbed"."""

    quantile: str
    scale: ArrayLike
    num_samples: int | None
    key: jax.Array | None
    noise: ArrayLike | None


@_class_axis.allow_split(of="batch")
def conformal_training(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    temperature: ArrayLike,
    smoothing: ArrayLike,
    quantile: Literal[
        "bitonic", "expected", "neural_sort", "odd_even", "perturbed", "soft_sort"
    ] = "expected",
    size_weight: ArrayLike = 1.0,
    target_size: ArrayLike = 1.0,
    loss_matrix: ArrayLike | None = None,
    conformity: Literal["log_probability", "logit"] = "log_probability",
    num_samples: int | None = None,
    key: jax.Array | None = None,
    noise: ArrayLike | None = None,
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

    The examples at places 0, 2, ... of the batch calibrate: q is a smooth quantile of their labels'
    scores, the k-th largest of the m scores with :math:`k = \lceil (m + 1)(1 - \varepsilon)
    \rceil`. If that is more than m, it is the smallest. The others, P, get the soft sets C. With
    the identity for W, :math:`\Omega` is the missed coverage. Everything has a gradient, the
    quantile too.

    The program and the source add a cross-entropy. After training, calibrate the sets again
    (`conformal_threshold`): the guarantee comes from this calibration.

    Args:
        logits: floating-point scores Z, `[..., L]`; all axes but the last are the batch, at least
            two examples.
        labels: integer classes, `[...]`.
        error: static rate :math:`\varepsilon` of missed labels, a real number in [0, 1).
        temperature: positive scalar T, in the units of the scores s. May be traced.
        smoothing: positive scalar scale of the smooth quantile, in the units of the scores s: the
            standard deviation of the noise for "expected" and "perturbed", else tau of
            `relaxed_ranks`. May be traced.
        quantile: "expected" (`expected_top_k_value`), "perturbed" (`perturbed_top_k_value`), or a
            method of `relaxed_ranks` (the networks with the swap "logistic").
        size_weight: scalar weight w of the sizes, at least 0.
        target_size: scalar kappa, at least 0: smaller sets do not cost less.
        loss_matrix: W, `[L, L]`, at least 0 and finite: on the diagonal the cost of missing a
            class, and in row y the costs of other classes in the set of an example of class y.
            `None` for the identity. With split classes, each device needs the complete matrix.
        conformity: "log_probability" for s = log softmax(Z), as in the sets of "lac", or "logit"
            for s = Z.
        num_samples: static number of noise vectors, for "perturbed".
        key: a random key, for "perturbed"; a new one for each call, the same on all devices.
        noise: standard normal noise instead of a key, `[M, m]`.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch; see `average_k` for the
            gradients.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        The loss of the batch, a scalar in float32 or float64; NaN if a logit is NaN or +inf, or a
        label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch has fewer
            than two examples, `axis_name` is not bound, or not exactly one of `key` and `noise` is
            given for "perturbed".

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 0.0], [2.0, 1.0], [1.0, 3.0], [0.0, 0.5]])
        >>> loss = losses.conformal_training(
        ...     logits, jnp.array([0, 1, 1, 1]), error=0.1, temperature=0.5, smoothing=0.1
        ... )
        >>> print(f"{loss:.3f}")
        -0.245

    See Also:
        `size_at_average_error`, `conformal_threshold`, `expected_top_k_value`, `relaxed_ranks`.

    Source: Stutz, Dvijotham, Cemgil and Doucet (2022), "Learning optimal conformal classifiers",
    equations 4 to 7. The quantiles "expected" and "perturbed" are ours.
    """
    found = measure(logits, labels, conformity, axis_name, class_axis_name)
    dtype, num_examples = found.scores.dtype, found.of_labels.size
    if num_examples < 2:
        raise ValueError(f"logits must have at least two examples, got {num_examples}.")
    rate = _checks.static_error(error)
    temperature = _checks.scalar(temperature, "temperature", dtype, above=0)
    size_weight = _checks.scalar(size_weight, "size_weight", dtype, at_least=0)
    target_size = _checks.scalar(target_size, "target_size", dtype, at_least=0)
    calibrating = found.of_labels[::2]
    rank = min(math.ceil((calibrating.size + 1) * (1 - rate)), calibrating.size)
    # Identity: a shift of the scores shifts the quantile. Hazard: at scores of 1e4 its sums are
    # rounded by more than a temperature. Choice: differences to the hard quantile, a constant.
    origin = jax.lax.stop_gradient(compute_top_k_value(calibrating, rank))
    threshold = _smooth_quantile(
        calibrating - origin, rank, _Smoothing(quantile, smoothing, num_samples, key, noise)
    )
    memberships = jax.nn.sigmoid((found.scores - origin - threshold) / temperature)
    weights = _weights(loss_matrix, found.scores, found.labels, class_axis_name)
    is_label = _numerics.is_label(found.scores, found.labels, class_axis_name)
    missing = jax.nn.sigmoid((origin + threshold - found.scores) / temperature)
    costs = jnp.where(is_label, missing, memberships) * weights
    sizes = _classes.sum_classes(memberships, class_axis_name)
    costs = _classes.sum_classes(costs, class_axis_name)
    costs = costs + size_weight * jax.nn.relu(sizes - target_size)
    costs = _numerics.nan_where_invalid(costs, found.logits, found.labels, class_axis_name)
    return jnp.log(mean_of_odd_places(costs, axis_name) + _SMALLEST)


def _smooth_quantile(scores: jax.Array, rank: int, smoothing: _Smoothing) -> jax.Array:
    """The smooth `rank`-th largest of scores [m]."""
    kind = _checks.choice(smoothing.quantile, "quantile", _QUANTILES)
    _checks.parameters_of_kind(
        kind,
        {"num_samples": smoothing.num_samples, "key": smoothing.key, "noise": smoothing.noise},
        needed={"num_samples"} if kind == "perturbed" else set(),
        possible={"key", "noise"} if kind == "perturbed" else set(),
    )
    scale = _checks.scalar(smoothing.scale, "smoothing", scores.dtype, above=0)
    if kind == "expected":
        epsilon, num_nodes = check_expectation(rank, scores.size, scale, None, scores.dtype)
        return compute_expected_top_k_value(scores, rank, epsilon, num_nodes)
    if kind == "perturbed":
        selection = Selection(rank, True, smoothing.num_samples or 0, "xla")
        perturbation = check_perturbation(selection, scores, smoothing.key, smoothing.noise, scale)
        return compute_perturbed(scores, perturbation)
    relaxation = check_relaxation(kind, scale, "logistic", 0.0, scores.dtype)
    return compute_relaxed_value(scores, rank, relaxation)


def _weights(
    loss_matrix: ArrayLike | None,
    scores: jax.Array,
    labels: jax.Array,
    class_axis_name: Hashable | None,
) -> jax.Array:
    """The row of W for the label of each example, `[..., L]`, of the classes of this device."""
    is_label = _numerics.is_label(scores, labels, class_axis_name)
    if loss_matrix is None:
        return is_label.astype(scores.dtype)
    num_classes, num_own = _classes.count(scores, class_axis_name), scores.shape[-1]
    shape = (num_classes, num_classes)
    matrix = _checks.real_array(loss_matrix, "loss_matrix", shape, scores.dtype)
    bounds = (0.0, float(jnp.finfo(scores.dtype).max))
    matrix = _checks.within(loss_matrix, matrix, "loss_matrix", bounds)
    if class_axis_name is not None:
        start = num_own * jax.lax.axis_index(class_axis_name)
        matrix = jax.lax.dynamic_slice_in_dim(matrix, start, num_own, axis=1)
    return _numerics.value_of_class(matrix, labels)
