"""Sets of classes from probabilities, and the calibration of thresholds.

A set is a boolean mask over the classes. An example with a NaN score gets the empty set. A
threshold calibrated on a NaN is NaN, which keeps no class.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _selection
from topk_jax.operators import _top_k

__all__ = [
    "AverageKCalibrator",
    "adaptive_set",
    "average_error_threshold",
    "average_k_threshold",
    "conformal_threshold",
    "threshold_set",
    "top_k_set",
]


def top_k_set(scores: ArrayLike, *, k: int) -> jax.Array:
    r"""The k classes with the largest scores.

    .. math:: \Gamma(x) = \{ l : s_l \text{ is among } s_{[1]}, \dots, s_{[k]} \}

    Args:
        scores: floating-point scores or probabilities, `[..., L]`.
        k: static set size, from 1 to L.

    Returns:
        Booleans, `[..., L]`, exactly k of them true. Among equal scores, lower indices come first.
        None is true where a score is NaN.

    Raises:
        TypeError: `scores` is not floating-point or `k` is not a static integer.
        ValueError: `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.top_k_set(jnp.array([0.2, 0.4, 0.2, 0.2]), k=2))
        [ True  True False False]

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores = _checks.floating_array(scores, "scores")
    return _top_k_set(scores, _checks.rank(k, scores.shape[-1]))


def threshold_set(probabilities: ArrayLike, threshold: ArrayLike) -> jax.Array:
    r"""The classes whose probability reaches a threshold.

    .. math:: \Gamma(x) = \{ l : p_l \ge \lambda \}

    Args:
        probabilities: floating-point, `[..., L]`.
        threshold: a real scalar, converted to the probabilities' dtype (float32 or float64). All
            classes reach minus infinity; no class reaches infinity or NaN.

    Returns:
        Booleans, `[..., L]`; none is true where a probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point or `threshold` is not real.
        ValueError: `threshold` is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.threshold_set(jnp.array([0.5, 0.25, 0.25]), 0.25))
        [ True  True  True]

    Source: Garcin (2023), thesis, equation 2.31.
    """
    probabilities = _checks.floating_array(probabilities, "probabilities")
    reached = probabilities >= _checks.threshold(threshold, probabilities.dtype)
    return reached & _without_nan(probabilities)


def adaptive_set(probabilities: ArrayLike, *, error: ArrayLike) -> jax.Array:
    r"""The smallest set whose probabilities add up to at least `1 - error`, for each example.

    .. math::
        \Gamma(x) = \{ l : p_l \text{ is among } p_{[1]}, \dots, p_{[m]} \}, \qquad
        m = \min \Big\{ m : \sum_{j \le m} p_{[j]} \ge 1 - \varepsilon \Big\}

    Args:
        probabilities: floating-point, `[..., L]`, with sum 1 over the classes.
        error: a real scalar in [0, 1), the probability that a set may miss. May be traced.

    Returns:
        Booleans, `[..., L]`. Among equal probabilities, lower indices come first. All are true
        where the sum is less than `1 - error`; none is true where a probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point or `error` is not real.
        ValueError: `error` is not a scalar, or it is concrete and outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.adaptive_set(jnp.array([0.125, 0.5, 0.25, 0.125]), error=0.25))
        [False  True  True False]

    Source: Garcin (2023), thesis, table 2.1, point-wise error.
    """
    probabilities = _checks.floating_array(probabilities, "probabilities")
    error = _checks.scalar(error, "error", probabilities.dtype, at_least=0.0, below=1.0)
    return _adaptive_set(probabilities, error)


def average_k_threshold(probabilities: ArrayLike, *, k: float) -> jax.Array:
    r"""The threshold for sets with k classes on average over the given examples, without labels.

    .. math:: \lambda = \tfrac12 \big( P_{[N]} + P_{[N+1]} \big), \qquad N = \lfloor k n \rfloor,

    where P are all n L probabilities in descending order. If the two probabilities are equal, or so
    close that their midpoint rounds to the lower one, this threshold would keep more than N of
    them. Then the threshold is the smallest probability above it, or infinity if there is none. So
    the mean size of the sets never exceeds k. For k = L it is minus infinity, which keeps every
    class.

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example.
        k: static mean set size, a real number from 1 to L, interpreted as its shortest decimal.

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

    Source: Garcin (2023), thesis, equations 2.29 to 2.31 and algorithm 1.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    size = _checks.mean_set_size(k, values.shape[-1])
    _check_countable(values)
    return _average_k_threshold(
        values.reshape(-1), math.floor(size * (values.size // values.shape[-1]))
    )


class AverageKCalibrator:
    """`average_k_threshold` for a stream of batches, equal to the last bit, in O(k n) memory.

    It runs on the host and stores the k n + 1 largest probabilities so far, and up to as many
    more before it discards the smaller ones. It never stores all n L probabilities.

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
        self._num_examples = _checks.whole_number(num_examples, "num_examples", minimum=1)
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
            ValueError: the number of classes is less than k or differs from that of earlier
                batches, or there are more than `num_examples` examples. The calibrator does not
                change.
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

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example.
        error: a real scalar in [0, 1), the mean probability that the sets may miss. May be traced.

    Returns:
        A scalar for `threshold_set`, in the probabilities' dtype (float32 or float64); NaN if a
        probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point or `error` is not real.
        ValueError: `error` is not a scalar, or it is concrete and outside [0, 1); there is no
            example.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(sets.average_error_threshold(probabilities, error=0.125))
        0.25

    Source: Garcin (2023), thesis, table 2.1, average error.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    error = _checks.scalar(error, "error", values.dtype, at_least=0.0, below=1.0)
    return _average_error_threshold(values.reshape(-1), error * (values.size // values.shape[-1]))


def conformal_threshold(probabilities: ArrayLike, labels: ArrayLike, *, error: float) -> jax.Array:
    r"""The threshold of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \lambda = 1 - \hat q = \text{the } r\text{-th largest } p_{y_i}(x_i), \qquad
        r = \lceil (n + 1)(1 - \varepsilon) \rceil,

    because :math:`\hat q` is a quantile of :math:`1 - p_y`. If r exceeds n it is minus infinity,
    which keeps every class. For an example exchangeable with these,
    :math:`1 - \varepsilon \le P(p_y \ge \lambda)`. If no two examples tie, this probability is at
    most :math:`1 - \varepsilon + 1 / (n + 1)`.

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.

    Returns:
        A scalar for `threshold_set`, in the probabilities' dtype (float32 or float64); NaN if a
        probability is NaN or a label is outside [0, L).

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer, or `error` is not
            a static real number.
        ValueError: the shapes do not match, there is no example, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> print(sets.conformal_threshold(probabilities, jnp.array([0, 1, 1]), error=0.5))
        0.5

    Source: Garcin (2023), thesis, section 2.2.2, equation 2.5.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    _checks.some_examples(values, "probabilities")
    return _conformal_threshold(
        values, labels, math.ceil((labels.size + 1) * (1 - _checks.static_error(error)))
    )


@partial(jax.jit, static_argnames="k")
def _top_k_set(scores: jax.Array, k: int) -> jax.Array:
    scores = _selection.once(scores)
    return _largest_set(scores, _top_k.largest(scores, k)[0][..., -1], k)


@jax.jit
def _adaptive_set(probabilities: jax.Array, error: jax.Array) -> jax.Array:
    """The adaptive set, computed from the probability that it misses.

    Identity: the kept probability is the total minus the missed one. Hazard: near 1 float32 has
    steps of 6e-8, which is too coarse for many classes or a small error, and a softmax adds up to 1
    only up to rounding. Choice: add up from the smallest, which is precise at the cut, and treat a
    total within rounding of 1 as 1. Cost: one sort of the values, one cumulative sum.
    """
    probabilities = _selection.once(probabilities)
    num_classes = probabilities.shape[-1]
    ascending = jnp.sort(probabilities, axis=-1)
    missed = jnp.cumsum(ascending, axis=-1)
    excess = missed[..., -1:] - 1.0
    rounding = 16.0 * float(jnp.finfo(probabilities.dtype).eps)
    allowed = error + jnp.where(jnp.abs(excess) <= rounding, 0.0, excess)
    # The most likely class is always kept, even if rounding changes the total.
    num_missed = jnp.minimum((missed <= allowed).sum(axis=-1), num_classes - 1)
    smallest = num_missed[..., None]
    return _largest_set(
        probabilities,
        jnp.take_along_axis(ascending, smallest, axis=-1)[..., 0],
        num_classes - num_missed,
    )


def _average_k_threshold(values: jax.Array, rank: int) -> jax.Array:
    """The threshold that keeps at most `rank` of the values [N]. Only the largest ones matter."""
    if rank >= values.size:
        return jnp.where(jnp.isnan(values).any(), jnp.nan, -jnp.inf).astype(values.dtype)
    return _separating_threshold(values, rank)


@jax.jit
def _separating_threshold(values: jax.Array, rank: jax.Array) -> jax.Array:
    """The threshold between the `rank` largest of the values [N] and the next, if they differ.

    Hazard: some XLA backends treat denormal numbers as 0; others and NumPy do not. A denormal
    threshold could keep too many values. Choice: treat denormal values and midpoints as 0. Cost:
    two elementwise passes.
    """
    normal = _flushed(_selection.once(values))
    lower = _selection.largest_threshold(normal, lambda kept: kept.sum() > rank)
    upper = jnp.where(normal > lower, normal, jnp.inf).min()
    midpoint = _flushed((lower + upper) / 2.0)
    separates = ((normal > lower).sum() == rank) & (midpoint > lower)
    threshold = jnp.where(separates, midpoint, upper)
    return jnp.where(jnp.isnan(values).any(), jnp.nan, threshold)


@jax.jit
def _average_error_threshold(values: jax.Array, allowed: jax.Array) -> jax.Array:
    """The largest t of the values [N], or infinity, whose smaller values sum to at most `allowed`.

    The sum is a fixed tree of additions, so it never decreases when more values are missed, even
    with rounding.
    """
    values = _selection.once(values)
    threshold = _selection.largest_threshold(
        values, lambda kept: _selection.sum_in_blocks(jnp.where(kept, 0.0, values)) <= allowed
    )
    return jnp.where(jnp.isnan(values).any(), jnp.nan, threshold)


@jax.jit
def _conformal_threshold(probabilities: jax.Array, labels: jax.Array, rank: jax.Array) -> jax.Array:
    """The `rank`-th largest probability of a label, or minus infinity if there are fewer.

    Hazard: 1 - (1 - p) is rounded, so the threshold could exclude the example that it comes from.
    Choice: sort the probabilities themselves. Cost: none.
    """
    of_labels = _numerics.score_of_label(probabilities, labels).reshape(-1)
    ascending = jnp.concatenate([jnp.full(1, -jnp.inf, of_labels.dtype), jnp.sort(of_labels)])
    threshold = ascending[labels.size + 1 - rank]
    return jnp.where(_numerics.valid_examples(probabilities, labels).all(), threshold, jnp.nan)


def _largest_set(scores: jax.Array, smallest: jax.Array, size: jax.Array | int) -> jax.Array:
    """A mask of the `size` largest scores, given the smallest of them; empty with a NaN score."""
    above = scores > smallest[..., None]
    tied = scores == smallest[..., None]
    room = size - above.sum(axis=-1)
    chosen = above | (tied & (jnp.cumsum(tied, axis=-1) <= room[..., None]))
    return chosen & _without_nan(scores)


def _without_nan(scores: jax.Array) -> jax.Array:
    return ~jnp.isnan(scores).any(axis=-1, keepdims=True)


def _flushed(values: jax.Array) -> jax.Array:
    """The values with denormal numbers, and -0, replaced by 0."""
    return jnp.where(jnp.abs(values) < jnp.finfo(values.dtype).tiny, 0.0, values)


def _check_countable(values: jax.Array) -> None:
    """Raises for more values than the default integer type can count."""
    if values.size > jnp.iinfo(jnp.asarray(0).dtype).max:
        raise ValueError(
            f"probabilities must be fewer than 2^31 in all, got shape {values.shape}: use "
            "AverageKCalibrator."
        )
