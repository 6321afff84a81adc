"""Masked and weighted sums and counts, which add up over batches and devices."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax._entries import add_by_group
from topk_jax._sums import Sum
from topk_jax.metrics._shots import shot_groups

__all__ = ["Tally", "tally", "tally_by_class"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tally:
    """Sums and counts of values, over all examples (`[]`) or per class (`[L]`).

    Tallies of parts of the data add up to the tally of all data, in any order: with `+` or `sum`
    over batches, and with `jax.lax.psum` over devices. They do not drift, however many parts there
    are. Counts without weights, and sums of hits and sizes, are integers and exact below 2^47. With
    weights, or of real values, the numbers are floats. What an addition rounds away is added later.

    `total` and `count` have the integers of 32 bits (64 in JAX's 64-bit mode), of which the largest
    one also stands for all that are larger. The means use the exact numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> first = metrics.tally(jnp.array([True, True, False]))
        >>> second = metrics.tally(jnp.array([False, True]), where=jnp.array([True, False]))
        >>> print((first + second).mean())
        0.5
    """

    _total: Sum
    _count: Sum

    @property
    def total(self) -> jax.Array:
        """The sum of the values, each times its weight."""
        return self._total.value()

    @property
    def count(self) -> jax.Array:
        """The number of examples, or the sum of their weights."""
        return self._count.value()

    def __add__(self, other: Tally) -> Tally:
        """The tally of both parts."""
        if not isinstance(other, Tally):
            return NotImplemented
        if self._total.shape != other._total.shape:
            raise ValueError(
                f"other must be a tally of shape {self._total.shape}, got shape "
                f"{other._total.shape}."
            )
        own, others = ((each._total.dtype, each._count.dtype) for each in (self, other))
        if own != others:
            raise TypeError(
                "other must be a tally with weights if and only if this one is, and of the same "
                f"type of values: {own[0]} and counts in {own[1]}, got {others[0]} and {others[1]}."
            )
        return Tally(self._total + other._total, self._count + other._count)

    def __radd__(self, other: int) -> Tally:
        """The tally itself, for the 0 that the function `sum` starts with."""
        if not isinstance(other, int) or other != 0:
            return NotImplemented
        return self

    def mean(self) -> jax.Array:
        """The mean over examples, a scalar; NaN without examples."""
        return _ratio(*_floats(self._total.total(), self._count.total()))

    def macro_mean(self) -> jax.Array:
        """The mean of the class means, over classes with examples; NaN without such classes."""
        return self._mean_over(jnp.ones(self._count.shape, jnp.bool_))

    def shot_means(
        self, *, class_counts: ArrayLike, few: int = 20, many: int = 100
    ) -> dict[str, jax.Array]:
        """`macro_mean` over few-shot, medium-shot and many-shot classes, as in `shot_accuracy`."""
        groups = shot_groups(class_counts, few=few, many=many)
        shape = groups["few"].shape
        if shape != self._count.shape:
            raise ValueError(
                f"class_counts must have one value for each of the classes in the tally, shape "
                f"{self._count.shape}, got shape {shape}."
            )
        return {name: self._mean_over(classes) for name, classes in groups.items()}

    def _mean_over(self, classes: jax.Array) -> jax.Array:
        totals, counts = _floats(self._total, self._count)
        # The count of wrong weights is NaN, which counts as present.
        present = classes & (counts != 0)
        # Absent classes count 1, because even an unused NaN would trigger JAX's NaN checks.
        means = jnp.where(present, _ratio(totals, jnp.where(present, counts, 1)), 0.0)
        return _ratio(means.sum(), present.sum().astype(means.dtype))


def tally(
    values: ArrayLike, where: ArrayLike | None = None, *, weights: ArrayLike | None = None
) -> Tally:
    """The sum and the count of the examples' values, for `mean`.

    Args:
        values: hits (booleans), set sizes (integers) or real values such as `example_f1`, `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.
            An example with a weight of 0 counts as one that is left out, whatever its value is.

    Returns:
        A `Tally` of scalars: integers, or floats of real values or weights. Its means are NaN if a
        traced weight is negative or not finite.

    Raises:
        TypeError: `values` or `weights` is not real, or `where` is not boolean.
        ValueError: the shapes do not match, or a concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> sizes = metrics.set_sizes(jnp.array([[True, True, False], [True, False, False]]))
        >>> print(metrics.tally(sizes).mean())
        1.5

    See Also:
        `tally_by_class`, `accuracy`.

    Source: masked sums and counts, so padding and streaming do not change the result.
    """
    totals, counts = _totals_and_counts(values, where, weights)
    return Tally(Sum.over(totals, jnp.sum), Sum.of(counts.sum()))


def tally_by_class(
    values: ArrayLike,
    labels: ArrayLike,
    *,
    num_classes: int,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Tally:
    """The sum and the count of the values of each class, for `macro_mean` and `shot_means`.

    Args:
        values: hits (booleans), set sizes (integers) or real values, `[...]`.
        labels: integer classes, `[...]`. An example whose label is outside [0, L) is left out.
        num_classes: static number of classes L.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.
            An example with a weight of 0 counts as one that is left out, whatever its value is.

    Returns:
        A `Tally` with one sum and one count per class, `[L]`; see `tally`.

    Raises:
        TypeError: `values` or `weights` is not real, `labels` is not integer, `num_classes` is not
            a static integer, or `where` is not boolean.
        ValueError: the shapes do not match, `num_classes` is less than 1, or a concrete weight is
            negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, labels = jnp.array([True, False, True]), jnp.array([0, 0, 2])
        >>> counts = metrics.tally_by_class(hits, labels, num_classes=3)
        >>> print(counts.total, counts.count, counts.macro_mean())
        [1 0 1] [2 0 1] 0.75

    See Also:
        `tally`, `macro_accuracy`.

    Source: masked sums and counts, so padding and streaming do not change the result.
    """
    totals, counts = _totals_and_counts(values, where, weights)
    labels = _checks.integer_array(labels, "labels", totals.shape)
    num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    has_class = (labels >= 0) & (labels < num_classes)
    # Other labels get an index past the end and are dropped. JAX would wrap -1 to the last class.
    index = jnp.where(has_class, labels, num_classes)
    return _tally_by_class(num_classes, index, totals, counts)


@partial(jax.jit, static_argnums=0)
def _tally_by_class(
    num_classes: int, index: jax.Array, totals: jax.Array, counts: jax.Array
) -> Tally:
    def tally_of(index: jax.Array, totals: jax.Array, counts: jax.Array) -> Tally:
        by_class = partial(add_by_group, num_classes, index.reshape(-1))
        return Tally(Sum.over(totals.reshape(-1), by_class), Sum.of(by_class(counts.reshape(-1))))

    return _sharding.sum_examples(tally_of, index, totals, counts)


def _totals_and_counts(
    values: ArrayLike, where: ArrayLike | None, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array]:
    """What each example adds to the total and to the count, `[...]` both."""
    numbers = _checks.counting_or_real_array(values, "values")
    if where is None and weights is None:
        # Like the values, on the devices that they are on.
        return numbers, jnp.ones_like(numbers, dtype=int)
    counts = compute_weights(numbers.shape, where, weights)
    if weights is not None:
        dtype = jnp.result_type(float)
        if jnp.issubdtype(numbers.dtype, jnp.floating):
            dtype = numbers.dtype
        counts = counts.astype(dtype)
        numbers = numbers.astype(dtype) * counts
    # A product is not enough: the value of an example that is left out may be NaN.
    return jnp.where(counts == 0, jnp.zeros_like(numbers), numbers), counts


def compute_weights(
    shape: tuple[int, ...], where: ArrayLike | None, weights: ArrayLike | None
) -> jax.Array:
    """The weights of examples [...], 0 for those left out; integers without `weights`.

    Raises if `where` or `weights` is neither an array of this shape nor `None`.
    """
    counts = (
        jnp.ones(shape, int)
        if weights is None
        else _checks.weights_of_examples(weights, "weights", shape)
    )
    if where is None:
        return counts
    return jnp.where(_checks.boolean_array(where, "where", shape), counts, 0)


def _floats(total: Sum, count: Sum) -> tuple[jax.Array, jax.Array]:
    """Both as floats of the type that one of them has, or of the default type."""
    given = (each.dtype for each in (total, count))
    real = (dtype for dtype in given if jnp.issubdtype(dtype, jnp.floating))
    dtype = next(real, jnp.result_type(float))
    return total.as_floats(dtype), count.as_floats(dtype)


def _ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    """The quotient of floats; NaN where the count is 0, without a division by 0."""
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), jnp.nan)
