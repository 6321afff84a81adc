"""The expected loss of an example whose label is a distribution over the classes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _sharding
from topk_jax._example import nan_unless, zero_left_out
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
    (mixup), smoothed labels, the votes of several experts. Several classes that are present at once
    are not a distribution; see `binary_cross_entropy`.

    Args:
        logits, where: see `topk_jax.losses`.
        plausibilities: the probability of each class to be the label, `[..., L]`: at least 0, with
            sum 1 over the classes; booleans, integers or floats. Rounding may change the sum by
            1e-4, or by twice the eps of their type if that is more, as in half precision.
        loss: a function of logits `[..., L]` and integer labels `[...]` to one loss per example,
            `[...]`, as `functools.partial(losses.top_k_hinge, k=5)`.
        num_labels: the static number of labels that the loss is computed for, the most plausible
            ones of each example: 1 for one-hot targets, 2 for mixtures of two images; `None` for
            all L. Those that count must add up to 1.

    Returns:
        One loss per example, `[...]`; NaN where a traced plausibility is negative or NaN, where
        the `num_labels` largest ones do not add up to 1, or where the loss of a plausible label is
        NaN.

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
    # 0 times an infinite loss, of a label that is not plausible, is NaN.
    losses = jnp.where(weights > 0, weights * of_labels, 0).sum(axis=-1)
    rounding = _checks.rounding_of_sum(jnp.asarray(plausibilities).dtype)
    is_one = jnp.abs(weights.sum(axis=-1) - 1) <= rounding
    losses = nan_unless((plausible >= 0).all(axis=-1) & is_one, losses)
    return zero_left_out(losses, where)
