"""Hinges on the k-th largest score, the top-k error that they bound, and smoothed hinges."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _sharding
from topk_jax._checks import scalar
from topk_jax._classes import FLOOR, nan_unless
from topk_jax._example import Scores, per_class
from topk_jax.operators._expected import check_expectation, compute_expected_mean
from topk_jax.operators._perturbed import check_perturbation, compute_perturbed, derive_keys
from topk_jax.operators._perturbed_selection import Selection
from topk_jax.operators._symmetric import log_ratio_of_sigmas
from topk_jax.operators._top_k import select_kth, select_largest, select_largest_of_split

__all__ = [
    "calibrated_top_k_hinge",
    "convex_top_k_hinge",
    "expected_top_k_hinge",
    "noised_top_k_hinge",
    "smooth_top_k_hinge",
    "top_k_error",
    "top_k_hinge",
]

_WITHOUT_LABEL = "the number of classes without the true one"
_NEXT_RANK = "the number of classes minus one, because rank k + 1 is used"
# With fewer classes for each factor, all classes multiplied out take less time than power sums:
# 1.5 and 2.9 ms for 5 classes (L = 1,000, K = 20), 16 and 2.6 ms for 833 (L = 10,000, K = 5).
_CLASSES_PER_FACTOR = 8


@_sharding.allow_split()
def top_k_error(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""Whether the true class is missing from the k highest scores, 1 or 0.

    .. math:: \ell(s, y) = \mathbb 1\{s_{[k]} > s_y\}

    A tie of the true class with the k-th score is not an error.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k: static set size, from 1 to L.

    Returns:
        0 or 1 for each example, `[...]`.

    Example:
        >>> print(top_k_error(jnp.array([[3.0, 2.0, 1.0]]), jnp.array([2]), k=2).round(2))
        [1.]

    Source: thesis, equation 4.3.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    few = _of_few(scores, _checks.rank(k, scores.num_classes))
    # The sign of a gap that is NaN already: XLA makes a selection of a comparison times a number.
    return scores.counted(jnp.sign(jax.nn.relu(scores.mark(_gap(few, few.values, k)))))


@_sharding.allow_split()
def top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The hinge on the k-th largest score of the wrong classes.

    .. math:: \ell(s, y) = \bigl(1 + (s_{\setminus y})_{[k]} - s_y\bigr)_+

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k: static set size, from 1 to L - 1.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(top_k_hinge(jnp.array([[3.0, 2.5, 1.0]]), jnp.array([1]), k=1))
        [1.5]

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, equation 4.4.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    k = _checks.rank(k, scores.num_classes - 1, reason=_WITHOUT_LABEL)
    few = _of_few(scores, k)
    return scores.losses_of_few(jax.nn.relu(1 + _gap(few, few.others(), k)))


@_sharding.allow_split()
def convex_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The hinge on the mean of the k largest scores, a convex upper bound of `top_k_hinge`.

    .. math:: \ell(s, y) = \Bigl(\frac1k \sum_{i=1}^k (s + 1 - e_y)_{[i]} - s_y\Bigr)_+

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k: static set size, from 1 to L.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(convex_top_k_hinge(jnp.array([[3.0, 2.0, 1.0]]), jnp.array([2]), k=2))
        [2.5]

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, table 4.1.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    k = _checks.rank(k, scores.num_classes)
    few = _of_few(scores, k)
    largest, classes = select_largest(jnp.where(few.is_label, few.values - 1, few.values), k)
    # A sum of k scores of 1e4 loses the digits of the margin. Differences of close scores are
    # exact, but those to a label far below are equal: so scores are selected, not differences.
    gaps = 1 + (largest - few.of_label(few.values)[..., None])
    gaps = jnp.where(classes == few.labels[..., None].astype(classes.dtype), 0, gaps)
    return scores.losses_of_few(jax.nn.relu(gaps.sum(axis=-1) / k))


@_sharding.allow_split()
def calibrated_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The hinge on the (k+1)-th largest score of all classes, calibrated for the top-k error.

    .. math:: \ell(s, y) = \bigl(1 + s_{[k+1]} - s_y\bigr)_+

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k: static set size, from 1 to L - 1.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(calibrated_top_k_hinge(jnp.array([[3.0, 2.5, 1.0]]), jnp.array([2]), k=1))
        [2.5]

    Source: Yang and Koyejo (2020), "On the consistency of top-k surrogate losses"; thesis, 4.5.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    k = _checks.rank(k, scores.num_classes - 1, reason=_NEXT_RANK)
    few = _of_few(scores, k + 1)
    return scores.losses_of_few(jax.nn.relu(1 + _gap(few, few.values, k + 1)))


def _gap(scores: Scores, values: jax.Array, k: int) -> jax.Array:
    """The k-th largest of values [..., L] minus the score of the label, `[...]`."""
    return select_largest(values, k)[0][..., -1] - scores.of_label(scores.values)


def _of_few(scores: Scores, size: int) -> Scores:
    """The scores; if the classes are split, of the label and the `size` largest others.

    These are in the order of the classes, so that equal scores rank as among all classes.
    """
    name, num_classes = scores.name, scores.num_classes
    if name is None:
        return scores
    _, classes = select_largest_of_split(scores.others(), min(size, num_classes - 1), name)
    label = jnp.clip(scores.labels, 0, num_classes - 1).astype(classes.dtype)[..., None]
    classes = jnp.sort(jnp.concatenate([classes, label], axis=-1))
    values = _classes.take(scores.values, classes, name)
    return Scores(values, values, (classes < label).sum(axis=-1, dtype=classes.dtype))


@_sharding.allow_split()
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

    As tau goes to 0 the loss tends to :math:`(1 + ((s_{\setminus y})_{[K]} - s_y)/K)_+`.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k: static set size K, from 1 to L - 1.
        tau: positive scalar temperature, in the units of the logits.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(smooth_top_k_hinge(jnp.array([[3.0, 0.0]]), jnp.array([1]), k=1, tau=0.1))
        [4.]

    Source: Berrada et al. (2018), "Smooth loss functions for deep top-k classification".
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    k = _checks.rank(k, scores.num_classes - 1, reason=_WITHOUT_LABEL)
    tau = scalar(tau, "tau", scores.dtype, above=0)
    # The likeliest classes are multiplied out; power sums handle the others.
    few, num_factors = scores, max(2 * k, k * k // 2)
    if scores.num_classes < _CLASSES_PER_FACTOR * num_factors:
        num_factors = scores.num_classes
        few = _of_few(scores, num_factors)
    threshold, excess = _log_ratio_of_sigmas(few, k, k * tau, num_factors)
    value = 1 + (threshold - few.of_label(few.values)) / k + tau * excess
    # This is tau softplus(v / tau), whose slope in tau loses all digits where tau is small.
    value = jnp.maximum(value, 0) + tau * jax.nn.softplus(-jnp.abs(value) / tau)
    return scores.losses_of_few(value)


def _log_ratio_of_sigmas(
    scores: Scores, k: int, temperature: jax.Array, num_factors: int
) -> tuple[jax.Array, jax.Array]:
    """The k-th score c of the other classes, a constant, and log(sigma_k / sigma_{k-1}) - c / T.

    Scores divided by the temperature T reach 1e7, where float32 has steps of 1: so the sigmas are
    of the differences to c.
    """
    name = scores.name
    others = jax.lax.stop_gradient(scores.others())
    # The label is removed after the division: -inf / temperature has no slope in the temperature.
    if num_factors == scores.num_classes:
        threshold = select_kth(others, k)[0]
        factors = scores.others((scores.values - threshold) / temperature)
        return threshold[..., 0], log_ratio_of_sigmas(factors, None, k, None)
    values, indices = select_largest_of_split(others, num_factors, name)
    threshold = values[..., k - 1 : k]
    log_values = scores.others((scores.values - threshold) / temperature)
    # Equal scores are selected in the order of their indices.
    classes = jax.lax.broadcasted_iota(indices.dtype, others.shape, others.ndim - 1)
    smallest = values[..., -1:]
    last = _classes.localize(indices[..., -1:], others.shape[-1], name)
    in_rest = (others < smallest) | ((others == smallest) & (classes > last))
    rest = jnp.where(in_rest, log_values, -jnp.inf)
    factors = _classes.take(log_values, indices, name)
    return threshold[..., 0], log_ratio_of_sigmas(factors, rest, k, name)


@_sharding.allow_split(derive_keys=derive_keys)
def noised_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    epsilon: ArrayLike,
    num_samples: int,
    key: jax.Array | None = None,
    noise: ArrayLike | None = None,
    margins: ArrayLike = 1.0,
    scale: ArrayLike = 1.0,
    hinge: Literal["calibrated", "convex", "lapin"] = "calibrated",
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The calibrated top-K hinge, with its top-(K+1) operator smoothed with Gaussian noise.

    .. math::
        \text{calibrated: } \gamma \, \bigl(m_y + \hat\tau_{K+1,\varepsilon,M}(s) - s_y\bigr)_+,
        \qquad
        \text{lapin: } \gamma \, \bigl(m_y + \hat\tau_{K,\varepsilon,M}(s_{\setminus y})
        - s_y\bigr)_+, \\
        \text{convex: } \gamma \, \Bigl(\frac1K \,
        \mathrm{top}\Sigma_{K,\varepsilon,M}(s + m_y (1 - e_y)) - s_y\Bigr)_+

    With larger margins for rarer classes it is the imbalanced loss. It has only reverse mode.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k: static set size K, from 1 to L - 1; up to L for the convex hinge.
        epsilon: scalar standard deviation of the noise, in the units of the logits, at least 0.
        num_samples: static number M of noise vectors per example, at least 1.
        key: one random key, or one per example, `[...]`; use a new one for each call.
        noise: standard normal noise `[M, ..., L]` instead of a key.
        margins: m, at least 0: a scalar, or one value per class, `[L]`, as of `class_margins`.
        scale: positive scalar gamma, needed for cosines.
        hinge: "calibrated" for the top-k error; "lapin" or "convex" for the noised `top_k_hinge`
            or `convex_top_k_hinge`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> options = {"k": 1, "epsilon": 1e-4, "num_samples": 10, "key": jax.random.key(0)}
        >>> logits, labels = jnp.array([[3.0, 2.0, 0.0, 0.0]]), jnp.array([3])
        >>> print(noised_top_k_hinge(logits, labels, **options).round(2))
        [3.]

    Source: Garcin et al. (2022); thesis, equations 4.10 and 4.13, and section 4.2 for the others.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    rank = _rank(k, hinge, scores)
    size = rank if hinge == "convex" else 1
    selection = Selection(rank, hinge != "convex", num_samples)
    perturbation = check_perturbation(selection, scores.given, key, noise, epsilon)

    def smooth(rivals: jax.Array) -> jax.Array:
        return compute_perturbed(rivals, perturbation, class_axis_name) / size

    return _smoothed_hinge(scores, margins, scale, hinge, smooth)


@_sharding.allow_split()
def expected_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    epsilon: ArrayLike,
    margins: ArrayLike = 1.0,
    scale: ArrayLike = 1.0,
    hinge: Literal["calibrated", "convex", "lapin"] = "calibrated",
    num_nodes: int | None = None,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The calibrated top-K hinge, with the expectation of its top-(K+1) operator under noise.

    .. math::
        \ell(s, y) = \gamma \, \bigl(m_y + \tau_{K+1,\varepsilon}(s) - s_y\bigr)_+, \qquad
        \tau_{K+1,\varepsilon}(s) = \mathbb E\bigl[(s + \varepsilon Z)_{[K+1]}\bigr]

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        k, epsilon, margins, scale, hinge: as in `noised_top_k_hinge`.
        num_nodes: static number of nodes of the quadrature, as in `expected_top_k_value`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[3.0, 2.0, 0.0, 0.0]]), jnp.array([3])
        >>> print(expected_top_k_hinge(logits, labels, k=1, epsilon=0.5).round(2))
        [2.98]

    Source: Garcin et al. (2022); thesis, equation 4.8.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    last = _rank(k, hinge, scores)
    # The mean of the K largest is the mean of the values of the ranks 1 to K.
    ranks = (*range(1 if hinge == "convex" else last, last + 1),)
    settings = [
        check_expectation(rank, scores.num_classes, epsilon, num_nodes, scores.dtype)
        for rank in ranks
    ]
    noise, nodes = settings[0][0], tuple(nodes for _, nodes in settings)

    def smooth(rivals: jax.Array) -> jax.Array:
        return compute_expected_mean(rivals, ranks, noise, nodes, class_axis_name)

    return _smoothed_hinge(scores, margins, scale, hinge, smooth)


def _rank(k: int, hinge: str, scores: Scores) -> int:
    """The rank of the score that the hinge compares with the label's."""
    if _checks.choice(hinge, "hinge", ("calibrated", "convex", "lapin")) == "convex":
        return _checks.rank(k, scores.num_classes)
    if hinge == "lapin":
        return _checks.rank(k, scores.num_classes - 1, reason=_WITHOUT_LABEL)
    return _checks.rank(k, scores.num_classes - 1, reason=_NEXT_RANK) + 1


def _smoothed_hinge(
    scores: Scores,
    margins: ArrayLike,
    scale: ArrayLike,
    hinge: str,
    smooth: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """The hinge, with `smooth` for the threshold, which a shift of all scores shifts."""
    margin = scores.of_label(per_class(margins, "margins", scores))
    scale = scalar(scale, "scale", scores.dtype, above=0)
    score = scores.of_label(scores.values)
    # Small noise added to scores of 1e4 is rounded away, so the differences to s_y are smoothed.
    # The shift needs no gradient, because that of the threshold sums to one.
    shift = jax.lax.stop_gradient(jnp.where(jnp.abs(score) < -FLOOR, score, 0.0))
    rivals = scores.values - shift[..., None]
    if hinge != "calibrated":
        of_label = rivals if hinge == "convex" else FLOOR
        of_others = rivals + margin[..., None] if hinge == "convex" else rivals
        # A score of NaN or +inf stays, and makes the result NaN.
        rivals = jnp.where(scores.is_label & (scores.given < jnp.inf), of_label, of_others)
    gap = smooth(rivals) + (shift - score)
    if hinge != "convex":
        gap += margin
    # Inside the hinge, because an inactive hinge would keep the NaN out of the gradient; and again
    # if the gap is NaN already, for the slope in the label's score.
    gap = nan_unless(scores.is_class & ~jnp.isnan(margin + gap), gap)
    return scores.counted(scale * jax.nn.relu(gap))
