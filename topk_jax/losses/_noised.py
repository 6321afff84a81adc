"""The top-K hinge smoothed with noise: with samples, or in expectation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax._checks import scalar
from topk_jax._classes import FLOOR, nan_unless
from topk_jax._example import Scores, per_class
from topk_jax.losses._hinges import REASON_NEXT_RANK, REASON_WITHOUT_LABEL
from topk_jax.operators._expected import check_expectation, compute_expected_mean
from topk_jax.operators._perturbed import check_perturbation, compute_perturbed, derive_keys
from topk_jax.operators._perturbed_selection import Selection

__all__ = ["expected_top_k_hinge", "noised_top_k_hinge"]


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
        return _checks.rank(k, scores.num_classes - 1, reason=REASON_WITHOUT_LABEL)
    return _checks.rank(k, scores.num_classes - 1, reason=REASON_NEXT_RANK) + 1


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
