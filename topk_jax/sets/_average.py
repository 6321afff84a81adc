"""Thresholds for a mean set size or a mean error over all examples, without labels."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics, _selection

__all__ = ["AverageKCalibrator", "average_error_threshold", "average_k_threshold"]


@_class_axis.allow_split(of="batch")
def average_k_threshold(
    probabilities: ArrayLike, *, k: float, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The threshold for sets with k classes on average over the given examples, without labels.

    .. math:: \lambda = \tfrac12 \big( P_{[N]} + P_{[N+1]} \big), \qquad N = \lfloor k n \rfloor,

    where P are all n L probabilities in descending order. If the two probabilities are equal, or so
    close that their midpoint rounds to the lower one, this threshold would keep more than N of
    them. Then the threshold is the smallest probability above it, or infinity if there is none. So
    the mean size of the sets never exceeds k. For k = L it is minus infinity, which keeps every
    class.

    If the examples are split over devices, these exchange a count for each bit of the threshold.

    The memory is O(n L). Denormal numbers count as 0.

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example.
        k: static mean set size, a real number from 1 to L, interpreted as its shortest decimal.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        A scalar for `threshold_set`, in the probabilities' dtype (float32 or float64); NaN if a
        probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point or `k` is not a static real number.
        ValueError: `k` is outside [1, L], there is no example, or there are more probabilities
            than can be counted; `AverageKCalibrator` takes them in batches.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(sets.average_k_threshold(probabilities, k=1))
        0.375
        >>> print(sets.average_k_threshold(probabilities, k=1.5))
        0.5

    See Also:
        `threshold_set`, `class_average_k_thresholds`, `macro_average_k_thresholds`.

    Source: Garcin (2023), thesis, equations 2.29 to 2.31 and algorithm 1.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    num_classes = _classes.count(values, class_axis_name)
    size = _checks.mean_set_size(k, num_classes)
    check_countable(values, num_classes)
    num_examples = values.size // values.shape[-1]
    return _average_k_threshold(
        values.reshape(-1), math.floor(size * num_examples), class_axis_name
    )


class AverageKCalibrator:
    """`average_k_threshold` for a stream of batches, equal to the last bit, in O(k n) memory.

    It runs on the host and stores the k n + 1 largest probabilities so far, and up to k n + 1 more
    before it discards the smaller ones. It never stores all n L probabilities.

    Args:
        k: mean set size, a real number from 1 to L, interpreted as its shortest decimal.
        num_examples: the total number n of examples, at least 1.

    Raises:
        TypeError: `k` is not a real number or `num_examples` is not an integer.
        ValueError: `k` or `num_examples` is less than 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> calibrator = sets.AverageKCalibrator(1, num_examples=2)
        >>> calibrator.update(jnp.array([[0.75, 0.125, 0.125]]))
        >>> calibrator.update(jnp.array([[0.5, 0.25, 0.25]]))
        >>> print(calibrator.threshold())
        0.375

    Source: Garcin (2023), thesis, algorithm 1.
    """

    def __init__(self, k: float, num_examples: int) -> None:
        self._k = k
        self._num_examples = _checks.static_integer(num_examples, "num_examples", minimum=1)
        self._rank = math.floor(_checks.mean_set_size(k) * self._num_examples)
        self._num_classes: int | None = None
        self._num_seen = 0
        self._seen_nan = False
        self._largest = np.empty(0, np.float32)
        self._pending: list[np.ndarray] = []
        self._num_pending = 0

    def update(self, batch: ArrayLike) -> None:
        """Adds the probabilities of more examples.

        Args:
            batch: floating-point, `[..., L]`, of any size, without padding. A NumPy or JAX array;
                it must not be traced.

        Raises:
            TypeError: `batch` is not floating-point, or it is traced.
            ValueError: the number of classes is less than k or differs from earlier batches, or
                there are more than `num_examples` examples. The calibrator does not change.
        """
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
        self._seen_nan = self._seen_nan or bool(np.isnan(values).any())
        self._store(values.reshape(-1))

    def threshold(self) -> jax.Array:
        """The threshold of all examples.

        Returns:
            A scalar, equal to `average_k_threshold` of all examples together.

        Raises:
            ValueError: fewer than `num_examples` examples were given.
        """
        if self._num_seen < self._num_examples:
            raise ValueError(
                f"num_examples = {self._num_examples} examples must be given before the threshold, "
                f"got {self._num_seen}."
            )
        self._reduce()
        if self._seen_nan:
            return jnp.asarray(jnp.nan, self._largest.dtype)
        return _average_k_threshold(jnp.asarray(self._largest), self._rank)

    def _store(self, values: np.ndarray) -> None:
        """Stores values that may be among the `rank + 1` largest; discards others when needed."""
        # After the first reduction, only values above the smallest stored one matter. Both branches
        # copy, because the caller may reuse the memory of the batch.
        full = self._largest.size > 0
        values = values[values > self._largest[0]] if full else values.copy()
        self._pending.append(values)
        self._num_pending += values.size
        if self._num_pending > self._rank:
            self._reduce()

    def _reduce(self) -> None:
        """Reduces the stored values to the `rank + 1` largest, with the smallest of them first."""
        kept = np.concatenate([*([self._largest] if self._largest.size else []), *self._pending])
        surplus = kept.size - (self._rank + 1)
        self._largest = np.partition(kept, surplus)[surplus:] if surplus >= 0 else kept
        self._pending, self._num_pending = [], 0


def average_error_threshold(probabilities: ArrayLike, *, error: ArrayLike) -> jax.Array:
    r"""The largest threshold whose sets miss at most `error` on average, without labels.

    .. math::
        \lambda = \max \Big\{ t :
        \frac1n \sum_i \sum_l p_l(x_i) \mathbf 1[p_l(x_i) < t] \le \varepsilon \Big\}

    It is one of the probabilities, or infinity if the sets may miss all of them.

    If the examples are split over devices, each device gets one sum per example of the other
    devices, for each bit of the threshold. The total of these sums is rounded differently than on
    one device.

    In float32, the sums are right to a relative 7e-6.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`, with at least one example.
        error: a real scalar in [0, 1), the mean probability that the sets may miss. May be traced.

    Returns:
        A scalar for `threshold_set`, in the probabilities' dtype (float32 or float64); NaN if a
        probability is NaN, or a traced one is not from 0 to 1.

    Raises:
        TypeError: `probabilities` is not floating-point or `error` is not real.
        ValueError: `error` is not a scalar, or it is concrete and outside [0, 1); there is no
            example, or a concrete probability is not from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(sets.average_error_threshold(probabilities, error=0.125))
        0.25

    See Also:
        `adaptive_set`, `average_k_threshold`.

    Source: Garcin (2023), thesis, table 2.1, average error.
    """
    values = _checks.probabilities(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    error = _checks.scalar(error, "error", values.dtype, at_least=0.0, below=1.0)
    num_examples = values.size // values.shape[-1]
    rows = values.reshape(num_examples, values.shape[-1])
    return _average_error_threshold(rows, error * num_examples)


def _average_k_threshold(
    values: jax.Array, rank: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The threshold that keeps at most `rank` of the values [N]. Only the largest ones matter."""
    if rank >= _classes.count(values, class_axis_name):
        has_nan = _classes.any_class(jnp.isnan(values), class_axis_name)
        return jnp.where(has_nan, jnp.nan, -jnp.inf).astype(values.dtype)
    return separating_threshold(values, rank, class_axis_name)


@partial(jax.jit, static_argnums=2)
def separating_threshold(
    values: jax.Array, rank: jax.Array | int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The threshold between the `rank` largest of the values [N] and the next, if they differ.

    Hazard: some XLA backends treat denormal numbers as 0; others and NumPy do not. A denormal
    threshold could keep too many values. Choice: treat denormal values and midpoints as 0. Cost:
    two elementwise passes.
    """
    normal = _numerics.flush(_selection.compute_once(values))
    lower = _selection.largest_threshold(
        normal, lambda kept: _classes.sum_classes(kept, class_axis_name) > rank, class_axis_name
    )
    upper = _classes.min_values(jnp.where(normal > lower, normal, jnp.inf), class_axis_name)
    midpoint = _numerics.flush((lower + upper) / 2.0)
    separates = (_classes.sum_classes(normal > lower, class_axis_name) == rank) & (midpoint > lower)
    threshold = jnp.where(separates, midpoint, upper)
    has_nan = _classes.any_class(jnp.isnan(values), class_axis_name)
    return jnp.where(has_nan, jnp.nan, threshold)


@jax.jit
def _average_error_threshold(values: jax.Array, allowed: jax.Array) -> jax.Array:
    """The largest t of the values [n, L], or infinity, whose smaller ones sum to at most `allowed`.

    The sum is a fixed tree of additions, so it never decreases when more values are missed, even
    with rounding.
    """
    values = _selection.compute_once(values)
    threshold = _selection.largest_threshold(
        values,
        lambda kept: _selection.sum_of_rows_in_blocks(jnp.where(kept, 0.0, values)) <= allowed,
    )
    return jnp.where(jnp.isnan(values).any() | jnp.isnan(allowed), jnp.nan, threshold)


def check_countable(values: jax.Array, num_classes: int) -> None:
    """Raises for more values than the default integer type can count."""
    shape = (*values.shape[:-1], num_classes)
    if math.prod(shape) > jnp.iinfo(jnp.asarray(0).dtype).max:
        raise ValueError(
            f"probabilities must be fewer than 2^31 in all, got shape {shape}: use "
            "AverageKCalibrator."
        )
