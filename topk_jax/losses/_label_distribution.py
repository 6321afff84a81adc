"""The expected loss of an example whose label is a distribution over the classes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding
from topk_jax.operators._top_k import select_largest

__all__ = ["expect_over_labels"]


@_class_axis.refuse_split
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

    With it every loss of single examples takes soft and one-hot targets: mixtures of two images
    (mixup), smoothed labels, the votes of several experts. The loss is computed for `num_labels`
    labels of each example. One label is enough for one-hot targets, and two are enough for mixtures
    of two images. Several classes that are present at once are not a distribution; see
    `binary_cross_entropy`.

    Args:
        logits: floating-point scores, `[..., L]`.
        plausibilities: the probability of each class to be the label, `[..., L]`: at least 0, with
            sum 1 over the classes; booleans, integers or floats. Rounding may change the sum by
            1e-4, or by twice the eps of their type if that is more, as in half precision.
        loss: a function of logits `[..., L]` and integer labels `[...]` to one loss per example,
            `[...]`, as `functools.partial(losses.top_k_hinge, k=5)`.
        num_labels: the static number of labels that the loss is computed for: the most plausible
            ones of each example; `None` for all L. The others do not count, and those that count
            must add up to 1 up to the same rounding.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and plausibilities are.

    Returns:
        One loss per example, `[...]`; NaN where a traced plausibility is negative or NaN, where
        the `num_labels` largest ones do not add up to 1, or where the loss of a plausible label is
        NaN.

    Raises:
        TypeError: `logits` is not floating-point, `plausibilities` is neither boolean nor real, or
            `num_labels` is not a static integer.
        ValueError: the shapes do not match, concrete plausibilities are not from 0 to 1 or do not
            add up to 1, or `num_labels` is outside [1, L].

    Example:
        >>> from functools import partial
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> mixture = jnp.array([[0.25, 0.75, 0.0]])
        >>> print(losses.expect_over_labels(logits, mixture, loss=losses.cross_entropy).round(4))
        [0.6576]
        >>> hinge = partial(losses.top_k_hinge, k=1)
        >>> print(losses.expect_over_labels(logits, mixture, loss=hinge, num_labels=2))
        [0.5]

    See Also:
        `cross_entropy`, `binary_cross_entropy`, `top_k_hinge`.

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth"; Zhang et al.
    (2018), "mixup: beyond empirical risk minimization".
    """
    scores, plausible = _checks.logits_and_targets(
        logits, plausibilities, name="plausibilities", where=where, may_be_soft=True
    )
    if where is None:
        _checks.sums_of_one(plausibilities, "plausibilities")
    num_classes = scores.shape[-1]
    if num_labels is None:
        classes = jnp.broadcast_to(jnp.arange(num_classes), scores.shape)
        weights, (_, labels) = plausible, _sharding.unify(scores, classes)
    else:
        num_labels = _checks.static_integer(
            num_labels,
            "num_labels",
            minimum=1,
            maximum=num_classes,
            reason="the number of classes",
        )
        weights, labels = select_largest(plausible, num_labels)
    of_labels = jax.vmap(loss, in_axes=(None, -1), out_axes=-1)(scores, labels)
    # Hazard: 0 times an infinite loss, of a label that is not plausible, is NaN. Choice: no product
    # there. Cost: one selection.
    losses = jnp.where(weights > 0, weights * of_labels, 0).sum(axis=-1)
    sums = weights.sum(axis=-1)
    rounding = _checks.rounding_of_sum(jnp.asarray(plausibilities).dtype)
    valid = (plausible >= 0).all(axis=-1) & (jnp.abs(sums - 1) <= rounding)
    if where is not None:
        valid |= ~jnp.asarray(where)
    return _numerics.zero_left_out(_numerics.nan_unless(valid, losses), where)
