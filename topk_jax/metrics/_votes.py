"""Hits of sets whose true label is a distribution: the votes of several people."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes

__all__ = ["expected_hits"]


@_class_axis.allow_split()
def expected_hits(
    chosen: ArrayLike, plausibilities: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The probability that a set has a label drawn from the votes for the example.

    .. math:: h(S, \lambda) = \sum_{y \in S} \lambda_y

    The mean over examples is the expected coverage of the sets. For sets of the class with the
    largest score it is the accuracy that is weighted by plausibilities, and for the sets of
    `sets.top_k_set` the top-K accuracy against votes. If each example has all its votes in one
    class, these are the coverage and the accuracies of labels.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        plausibilities: the part of the votes that each class has, `[..., L]`: at least 0, with sum
            1 over the classes, up to 1e-4, or twice the eps of their type if that is more.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Floats in [0, 1], `[...]`, for `tally`; NaN where traced plausibilities are not a
        distribution.

    Raises:
        TypeError: `chosen` is not boolean or `plausibilities` is not real.
        ValueError: the shapes do not match, or concrete plausibilities are negative or do not add
            up to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics, sets
        >>> votes = jnp.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
        >>> scores = jnp.array([[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
        >>> hits = metrics.expected_hits(sets.top_k_set(scores, k=2), votes)
        >>> print(hits, metrics.tally(hits).mean())
        [0.75 1.  ] 0.875

    See Also:
        `top_k_hits`, `tally`, `vote_quantile`, `expect_over_labels`.

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth", section 2.
    """
    members = _checks.boolean_array(chosen, "chosen")
    if members.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {members.shape}.")
    votes = _checks.distributions(
        plausibilities,
        "plausibilities",
        members.shape,
        jnp.result_type(float),
        class_axis_name,
    )
    found = jnp.where(members | jnp.isnan(votes), votes, 0)
    # Rounding could make the sum of all votes more than 1.
    return jnp.minimum(_classes.sum_classes(found, class_axis_name), 1)
