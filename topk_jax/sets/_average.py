"""Thresholds for a mean set size or a mean error over all examples, without labels."""

import math
from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _selection, _sharding

__all__ = ["AverageKCalibrator", "average_error_threshold", "average_k_threshold"]


@_sharding.allow_split(of="batch")
def average_k_threshold(
    probabilities: ArrayLike, *, k: float, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The threshold for sets with k classes on average over the given examples, without labels.

    .. math:: \lambda = \tfrac12 \big( P_{[N]} + P_{[N+1]} \big), \qquad N = \lfloor k n \rfloor,

    where P are all n L probabilities in descending order. If the midpoint would keep more than N of
    them, because they tie, it is the smallest probability above it, or infinity: the mean size of
    the sets never exceeds k. For k = L it is minus infinity. Denormal numbers count as 0.

    Args:
        class_axis_name: see `topk_jax.sets`.
        probabilities: floating-point, `[..., L]`.
        k: static mean set size, a real number from 1 to L, taken as its shortest decimal.

    Returns:
        A scalar for `threshold_set`.

    Example:
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(average_k_threshold(probabilities, k=1.5))
        0.5

    Source: Garcin (2023), thesis, equations 2.29 to 2.31 and algorithm 1.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    num_classes = _classes.count(values, class_axis_name)
    size = _checks.mean_set_size(k, num_classes)
    num_examples = math.prod(values.shape[:-1])
    if num_examples * num_classes > jnp.iinfo(jnp.asarray(0).dtype).max:
        raise ValueError(
            "probabilities must be fewer than 2^31 in all, got "
            f"{num_examples} x {num_classes}: use AverageKCalibrator."
        )
    return _average_k_threshold(
        values.reshape(-1), math.floor(size * num_examples), class_axis_name
    )


class AverageKCalibrator:
    """`average_k_threshold` for a stream of batches, on the host, in O(k n) memory.

    Args:
        k: mean set size, a real number from 1 to L, taken as its shortest decimal.
        num_examples: the total number n of examples, at least 1.

    Example:
        >>> calibrator = AverageKCalibrator(1.5, num_examples=2)
        >>> for batch in ([[0.75, 0.125, 0.125]], [[0.5, 0.25, 0.25]]):
        ...     calibrator.update(jnp.array(batch))
        >>> print(calibrator.threshold())
        0.5

    Source: Garcin (2023), thesis, algorithm 1.
    """

    def __init__(self, k: float, num_examples: int) -> None:
        self._k = k
        self._num_examples = _checks.static_integer(num_examples, "num_examples", minimum=1)
        self._rank = math.floor(_checks.mean_set_size(k) * self._num_examples)
        self._num_classes: int | None = None
        self._num_seen = 0
        # The `rank + 1` largest so far, of which the smallest is known, and what came after them.
        self._stored: list[np.ndarray] = []
        self._num_stored = 0
        self._smallest = np.nan

    def update(self, batch: ArrayLike) -> None:
        """Adds the probabilities of a batch, `[..., L]`, without padding and not traced."""
        if isinstance(batch, jax.core.Tracer):
            raise TypeError(
                "batch must be a concrete array, got a traced value: update outside jit."
            )
        values = np.asarray(_checks.floating_array(batch, "batch"))
        num_classes = values.shape[-1]
        num_seen = self._num_seen + values.size // num_classes
        if self._num_classes is None:
            _checks.mean_set_size(self._k, num_classes)
        elif num_classes != self._num_classes:
            raise ValueError(
                f"batch must have {self._num_classes} classes, as before, got {num_classes}."
            )
        if num_seen > self._num_examples:
            raise ValueError(
                f"batch must not exceed num_examples = {self._num_examples} examples in total, "
                f"got {num_seen}."
            )
        self._num_classes, self._num_seen = num_classes, num_seen
        # A copy, because the caller may reuse the memory of the batch. NaN stays, and so does all
        # as long as the smallest is not known.
        values = values.reshape(-1)
        self._stored.append(values[~(values <= self._smallest)])
        self._num_stored += self._stored[-1].size
        if self._num_stored > 2 * self._rank + 1:
            self._reduce()

    def threshold(self) -> jax.Array:
        """The threshold of all examples, a scalar."""
        if self._num_seen < self._num_examples:
            raise ValueError(
                f"num_examples = {self._num_examples} examples must be given before the threshold, "
                f"got {self._num_seen}."
            )
        self._reduce()
        return _average_k_threshold(jnp.asarray(self._stored[0]), self._rank)

    def _reduce(self) -> None:
        """Reduces the stored values to the `rank + 1` largest."""
        values = np.concatenate(self._stored)
        surplus = values.size - (self._rank + 1)
        if surplus >= 0:
            values = np.partition(values, surplus)[surplus:]
            self._smallest = values[0]
        self._stored, self._num_stored = [values], values.size


def average_error_threshold(probabilities: ArrayLike, *, error: ArrayLike) -> jax.Array:
    r"""The largest threshold whose sets miss at most `error` on average, without labels.

    .. math::
        \lambda = \max \Big\{ t :
        \frac1n \sum_i \sum_l p_l(x_i) \mathbf 1[p_l(x_i) < t] \le \varepsilon \Big\}

    It is one of the probabilities, or infinity if the sets may miss all of them.

    Args:
        probabilities: see `topk_jax.sets`.
        error: a real scalar in [0, 1), the mean probability that the sets may miss.

    Returns:
        A scalar for `threshold_set`.

    Example:
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(average_error_threshold(probabilities, error=0.125))
        0.25

    Source: Garcin (2023), thesis, table 2.1, average error.
    """
    values = _checks.probabilities(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    error = _checks.scalar(error, "error", values.dtype, at_least=0.0, below=1.0)
    num_examples = values.size // values.shape[-1]
    rows = values.reshape(num_examples, values.shape[-1])
    return _average_error_threshold(rows, error * num_examples)


@partial(jax.jit, static_argnums=2)
def _average_k_threshold(
    values: jax.Array, rank: jax.Array | int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The threshold between the `rank` largest of the values [N] and the next, if they differ."""
    # Denormal numbers are 0, as for some XLA backends: they could keep too many values.
    normal = _classes.flush(_selection.compute_once(values))
    lower = _selection.largest_threshold(
        normal, lambda kept: _classes.sum_classes(kept, class_axis_name) > rank, class_axis_name
    )
    upper = _classes.min_values(jnp.where(normal > lower, normal, jnp.inf), class_axis_name)
    midpoint = _classes.flush((lower + upper) / 2.0)
    separates = (_classes.sum_classes(normal > lower, class_axis_name) == rank) & (midpoint > lower)
    threshold = jnp.where(separates, midpoint, upper)
    threshold = jnp.where(rank >= _classes.count(values, class_axis_name), -jnp.inf, threshold)
    has_nan = _classes.any_class(jnp.isnan(values), class_axis_name)
    return jnp.where(has_nan, jnp.nan, threshold)


@jax.jit
def _average_error_threshold(values: jax.Array, allowed: jax.Array) -> jax.Array:
    """The largest t of the values [n, L], or infinity, whose smaller ones sum to at most `allowed`.

    In a fixed tree of additions, the rounded sum never decreases when more values are missed.
    """
    values = _selection.compute_once(values)
    threshold = _selection.largest_threshold(
        values,
        lambda kept: _selection.sum_of_rows_in_blocks(jnp.where(kept, 0.0, values)) <= allowed,
    )
    return jnp.where(jnp.isnan(values).any() | jnp.isnan(allowed), jnp.nan, threshold)
