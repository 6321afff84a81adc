"""Thresholds of each class for a mean set size."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _ordinals, _selection, _sharding
from topk_jax._entries import add_by_group
from topk_jax.sets import _average

__all__ = ["class_average_k_thresholds", "macro_average_k_thresholds"]


def macro_average_k_thresholds(
    probabilities: ArrayLike, *, k: float, class_counts: ArrayLike
) -> jax.Array:
    r"""A threshold for each class, for sets with k classes on average that also cover rare classes.

    .. math:: \lambda_l = \lambda \, \pi_l

    with :math:`\pi_l` the frequency of class l in training, and one :math:`\lambda` for all
    classes, such that the sets of the given examples have k classes on average, but never more. No
    other sets of this mean size have a greater macro coverage, the mean over the classes of the
    probability that the set of an example of the class has its label, if the probabilities and the
    frequencies are the true ones of the examples. `average_k_threshold` does the same for the
    coverage of all examples.

    If the examples are split over devices, these exchange a count for each bit of the thresholds.

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example, not negative.
        k: static mean set size, a real number from 1 to L, interpreted as its shortest decimal.
        class_counts: the number of training examples of each class, `[L]`, positive.

    Returns:
        One threshold per class, `[L]`, for `threshold_set`, in the probabilities' dtype (float32 or
        float64); all are NaN if a probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point, `k` is not a static real number, or
            `class_counts` is not real.
        ValueError: `k` is outside [1, L], there is no example, there are more probabilities than
            can be counted, or `class_counts` has a wrong shape or a value that is not positive and
            finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.875, 0.125], [0.5, 0.5]])
        >>> thresholds = sets.macro_average_k_thresholds(
        ...     probabilities, k=1, class_counts=jnp.array([3, 1]))
        >>> print(sets.threshold_set(probabilities, thresholds))
        [[ True False]
         [False  True]]

    See Also:
        `average_k_threshold`, `class_average_k_thresholds`.

    Source: Ding, Fermanian and Salmon (2025), "Conformal prediction for long-tailed
    classification", for the form of the best sets; Garcin (2023), thesis, algorithm 1, for the mean
    set size.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    num_classes = values.shape[-1]
    size = _checks.mean_set_size(k, num_classes)
    _average.check_countable(values, values.shape[-1])
    counts = _checks.class_counts(class_counts, "class_counts")
    if counts.shape != (num_classes,):
        raise ValueError(
            f"class_counts must have shape ({num_classes},) for probabilities of shape "
            f"{values.shape}, got shape {counts.shape}."
        )
    rank = math.floor(size * (values.size // num_classes))
    rows = values.reshape(-1, num_classes)
    if rank >= values.size:
        return jnp.where(
            jnp.isnan(rows).any(), jnp.nan, jnp.full(num_classes, -jnp.inf, values.dtype)
        )
    return _macro_thresholds(rows, counts.astype(values.dtype), rank)


@_class_axis.refuse_split
def class_average_k_thresholds(
    probabilities: ArrayLike, labels: ArrayLike, *, k: float
) -> jax.Array:
    r"""A threshold for each class that puts it into k sets for each of its examples.

    .. math::
        \lambda_c = \tfrac12 \big( P^c_{[N_c]} + P^c_{[N_c + 1]} \big), \qquad
        N_c = \lfloor k n_c \rfloor,

    where P^c are the probabilities of class c of all examples in descending order, and :math:`n_c`
    is the number of examples of class c. Equal probabilities are treated as in
    `average_k_threshold`: a class is never in more than N_c sets. So the mean size of the sets
    never exceeds k, and no class takes the place of another. A class without examples is in no set.

    If the examples are split over devices, these exchange the labels, and a count per class for
    each bit of the thresholds.

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example.
        labels: integer classes, `[...]`.
        k: static mean set size, a real number from 1 to L, interpreted as its shortest decimal.

    Returns:
        One threshold per class, `[L]`, for `threshold_set`, in the probabilities' dtype (float32 or
        float64); all are NaN if a probability is NaN or a label is outside [0, L).

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer, or `k` is not a
            static real number.
        ValueError: the shapes do not match, `k` is outside [1, L], or there is no example.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.875, 0.125]])
        >>> print(sets.class_average_k_thresholds(probabilities, jnp.array([0, 1, 0]), k=1))
        [0.625 0.375]

    See Also:
        `average_k_threshold`, `macro_average_k_thresholds`.

    Source: ours; Garcin (2023), thesis, algorithm 1, within each class.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    _checks.some_examples(values, "probabilities")
    size = _checks.mean_set_size(k, values.shape[-1])
    num_examples = labels.size
    ranks = np.array([math.floor(size * m) for m in range(num_examples + 1)])
    rows = values.reshape(-1, values.shape[-1])
    return _class_thresholds(rows, labels.reshape(-1), np.minimum(ranks, num_examples))


@jax.jit
def _macro_thresholds(rows: jax.Array, counts: jax.Array, rank: jax.Array) -> jax.Array:
    """The thresholds that keep at most `rank` of the probabilities [n, L].

    Hazard: a quotient p / pi and a product with pi are rounded, so a threshold for the quotients
    may keep other classes. Choice: the factor is found bit by bit, by counting what its products
    keep. It is then moved halfway to the next quotient, unless that keeps others. Cost: one pass
    for each bit, and three more.
    """
    rows, counts = _selection.compute_once(rows), _selection.compute_once(counts)
    # Barriers: the thresholds that are returned are those that were counted.
    frequencies = _selection.compute_once(counts / counts.sum())

    def thresholds(factor: jax.Array) -> jax.Array:
        # A positive threshold that rounds to 0 would keep the zeros of some classes only.
        positive = jnp.maximum(factor * frequencies, jnp.finfo(rows.dtype).tiny)
        return _selection.compute_once(jnp.where(factor > 0.0, positive, 0.0))

    def num_kept(factor: jax.Array) -> jax.Array:
        return (rows >= thresholds(factor)[None]).sum()

    def try_bit(_: Any, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found, bit = state
        candidate = found | bit
        too_many = num_kept(_ordinals.to_floats(candidate, rows.dtype)) > rank
        return jnp.where(too_many, candidate, found), bit >> unsigned.type(1)

    unsigned = _ordinals.to_ordinals(rows).dtype
    # Under shard_map the initial value of the loop must vary over the devices as the rows do.
    nothing = jnp.zeros_like(rows.max(), dtype=unsigned)
    start = (nothing, jnp.asarray(_ordinals.highest_bit(unsigned)))
    found, _ = jax.lax.fori_loop(0, 8 * unsigned.itemsize, try_bit, start)
    lower = _ordinals.to_floats(found + unsigned.type(1), rows.dtype)
    quotients = jnp.where(rows >= thresholds(lower)[None], rows / frequencies[None], jnp.inf)
    middle = (lower + quotients.min()) / 2.0
    # Every factor below the lower one keeps too many.
    factor = jnp.where(num_kept(middle) == num_kept(lower), middle, lower)
    return jnp.where(jnp.isnan(rows).any(), jnp.nan, thresholds(factor))


@jax.jit
def _class_thresholds(rows: jax.Array, labels: jax.Array, ranks: jax.Array) -> jax.Array:
    num_classes = rows.shape[-1]
    labels_of_all = _sharding.gather(labels)
    sizes = add_by_group(num_classes, labels_of_all, 1)
    kept = ranks[sizes]
    between = jax.vmap(_average.separating_threshold, in_axes=(1, 0))(rows, kept)
    # Every example has the class.
    thresholds = jnp.where(kept == labels.size, -jnp.inf, between)
    return jnp.where(_numerics.valid_examples(rows, labels).all(), thresholds, jnp.nan)
