"""The top-K hinge smoothed with noise: with samples, or in expectation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics
from topk_jax.losses._hinge import REASON_NEXT_RANK, REASON_WITHOUT_LABEL
from topk_jax.operators._expected import check_expectation, compute_expected_mean
from topk_jax.operators._perturbed import check_perturbation, compute_perturbed, derive_keys
from topk_jax.operators._perturbed_selection import Selection

__all__ = ["expected_top_k_hinge", "noised_top_k_hinge"]

_HINGES = ("calibrated", "convex", "lapin")


@_class_axis.allow_split(derive_keys=derive_keys)
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
    implementation: Literal["xla", "pallas"] = "xla",
) -> jax.Array:
    r"""The calibrated top-K hinge, with its top-(K+1) operator smoothed with Gaussian noise.

    .. math::
        \ell(s, y) = \gamma \, \bigl(m_y + \hat\tau_{K+1,\varepsilon,M}(s) - s_y\bigr)_+

    With margins of 1 this is the balanced loss. With larger margins for rarer classes (see
    `class_margins`) it is the imbalanced loss. The other hinges are smoothed in the same way:

    .. math::
        \text{lapin: } \gamma \, \bigl(m_y + \hat\tau_{K,\varepsilon,M}(s_{\setminus y})
        - s_y\bigr)_+, \qquad
        \text{convex: } \gamma \, \Bigl(\frac1K \,
        \mathrm{top}\Sigma_{K,\varepsilon,M}(s + m_y (1 - e_y)) - s_y\Bigr)_+

    If the hinge is active only for some noise vectors,
    the mean of the loss over the noise is above the hinge of the mean. More samples reduce the
    difference. Only reverse mode is supported, as for `perturbed_top_k_value`.

    Args:
        logits: floating-point scores, `[..., L]`, for the imbalanced loss usually cosines; -inf
            masks a class. The label of a masked class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size K, from 1 to L - 1; up to L for the convex hinge.
        epsilon: scalar standard deviation of the noise, in the units of the logits, at least 0.
        num_samples: static number M of noise vectors per example, at least 1.
        key: one random key, or one per example, `[...]`; use a new one for each call.
        noise: standard normal noise `[M, ..., L]` instead of a key.
        margins: m, in the units of the logits, at least 0: a scalar, or one value per class, `[L]`.
        scale: positive scalar factor of the loss (gamma above), needed for cosines.
        hinge: "calibrated", or "lapin" for the noised `top_k_hinge` and "convex" for the noised
            `convex_top_k_hinge`, which are not calibrated for the top-k error.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.
        implementation: "xla", or "pallas" for one kernel on TPU, with the same noise; see
            `perturbed_top_k_value`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, or shapes do not match, or not exactly one of
            `key` and `noise` is given.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 0.0, 0.0], [3.0, 2.0, 0.0, 0.0]])
        >>> loss = losses.noised_top_k_hinge(
        ...     logits, jnp.array([0, 3]), k=1, epsilon=1e-4, num_samples=10, key=jax.random.key(0))
        >>> print(loss.round(2))
        [0. 3.]

    See Also:
        `expected_top_k_hinge`, `calibrated_top_k_hinge`, `perturbed_top_k_value`.

    Source: Garcin et al. (2022); thesis, equations 4.10 and 4.13, and section 4.2 for the others.
    """
    checked = _check_hinge(logits, labels, k, margins, scale, hinge, class_axis_name, where)
    perturbation = check_perturbation(
        Selection(checked.rank, hinge != "convex", num_samples, implementation),
        checked.scores,
        key,
        noise,
        epsilon,
        class_axis_name=class_axis_name,
    )
    size = checked.rank if hinge == "convex" else 1

    def smooth(scores: jax.Array) -> jax.Array:
        return compute_perturbed(scores, perturbation, class_axis_name) / size

    return _numerics.zero_left_out(_smoothed_hinge(checked, smooth, class_axis_name), where)


@_class_axis.allow_split()
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

    This is the limit of `noised_top_k_hinge` for many samples. It is deterministic, needs no key,
    and is twice differentiable.

    Args:
        logits: floating-point scores, `[..., L]`, for the imbalanced loss usually cosines; -inf
            masks a class. The label of a masked class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size K, from 1 to L - 1; up to L for the convex hinge.
        epsilon: scalar standard deviation of the noise, in the units of the logits, at least 0.
        margins: m, in the units of the logits, at least 0: a scalar, or one value per class, `[L]`.
        scale: positive scalar factor of the loss (gamma above), needed for cosines.
        hinge: "calibrated", "lapin" or "convex", as in `noised_top_k_hinge`. The convex one takes
            the time of K expectations.
        num_nodes: static number of nodes of the quadrature, as in `expected_top_k_value`.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, or shapes do not match.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 0.0, 0.0], [3.0, 2.0, 0.0, 0.0]])
        >>> loss = losses.expected_top_k_hinge(logits, jnp.array([0, 3]), k=1, epsilon=0.5)
        >>> print(loss.round(2))
        [0.   2.98]

    See Also:
        `noised_top_k_hinge`, `expected_top_k_value`.

    Source: Garcin et al. (2022); thesis, equation 4.8.
    """
    checked = _check_hinge(logits, labels, k, margins, scale, hinge, class_axis_name, where)
    num_classes = _classes.count(checked.scores, class_axis_name)
    # The mean of the K largest is the mean of the values of the ranks 1 to K.
    ranks = (*range(1 if hinge == "convex" else checked.rank, checked.rank + 1),)
    settings = [
        check_expectation(rank, num_classes, epsilon, num_nodes, checked.scores.dtype)
        for rank in ranks
    ]
    noise, nodes = settings[0][0], tuple(nodes for _, nodes in settings)

    def smooth(scores: jax.Array) -> jax.Array:
        return compute_expected_mean(scores, ranks, noise, nodes, class_axis_name)

    return _numerics.zero_left_out(_smoothed_hinge(checked, smooth, class_axis_name), where)


class _Hinge(NamedTuple):
    """The checked arguments that both losses take; `rank` is the rank of the threshold's score."""

    scores: jax.Array
    labels: jax.Array
    rank: int
    margins: jax.Array
    scale: jax.Array
    kind: str


def _check_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    k: int,
    margins: ArrayLike,
    scale: ArrayLike,
    kind: str,
    class_axis_name: Hashable | None,
    where: ArrayLike | None,
) -> _Hinge:
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    kind = _checks.choice(kind, "hinge", _HINGES)
    num_classes = _classes.count(scores, class_axis_name)
    if kind == "convex":
        rank = _checks.rank(k, num_classes)
    elif kind == "lapin":
        rank = _checks.rank(k, num_classes - 1, reason=REASON_WITHOUT_LABEL)
    else:
        rank = _checks.rank(k, num_classes - 1, reason=REASON_NEXT_RANK) + 1
    margins = _checks.per_class(margins, "margins", scores.shape[-1], scores.dtype, class_axis_name)
    scale = _checks.scalar(scale, "scale", scores.dtype, above=0)
    return _Hinge(scores, labels, rank, margins, scale, kind)


def _smoothed_hinge(
    hinge: _Hinge, smooth: Callable[[jax.Array], jax.Array], class_axis_name: Hashable | None
) -> jax.Array:
    """The hinge, with `smooth` for the threshold, which a shift of all scores shifts."""
    scores, labels, _, margins, scale, kind = hinge
    num_classes = _classes.count(scores, class_axis_name)
    scores = _numerics.finite_scores(scores)
    # Identity: a shift of all scores shifts the threshold. Hazard: small noise added to scores of
    # 1e4 is rounded away. Choice: smooth the differences to s_y, which are small where the noise
    # matters. The shift needs no gradient, because the gradient of the threshold sums to one. Cost:
    # one elementwise pass, which XLA fuses into the operator.
    score = _numerics.computed_score_of_label(scores, labels, class_axis_name)
    # If the label's score is infinite or masked, there are no small differences and the loss is not
    # finite.
    shift = jax.lax.stop_gradient(jnp.where(jnp.abs(score) < -_numerics.FLOOR, score, 0.0))
    margin = jnp.broadcast_to(
        _numerics.value_of_class(margins, labels, class_axis_name), labels.shape
    )
    rivals = scores - shift[..., None]
    if kind != "calibrated":
        is_label = _numerics.is_label(scores, labels, class_axis_name)
        of_label = rivals if kind == "convex" else _numerics.FLOOR
        of_others = rivals + margin[..., None] if kind == "convex" else rivals
        # A score of NaN or +inf stays, and makes the result NaN.
        rivals = jnp.where(is_label & (scores < jnp.inf), of_label, of_others)
    gap = smooth(rivals) + (shift - score)
    if kind != "convex":
        gap = gap + margin
    # Inside the hinge, because an inactive hinge would keep the NaN out of the gradient.
    gap = _numerics.nan_where_invalid_labels(gap, labels, num_classes)
    # The mark of a gap that is NaN already is for the gradient of the label's score.
    return scale * jax.nn.relu(_numerics.nan_unless(~jnp.isnan(margin + gap), gap))
