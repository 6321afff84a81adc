"""Masked and weighted sums and counts, which add up over batches and devices, and their means."""

import dataclasses
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax._classes import add_by_group
from topk_jax._sums import Sum

__all__ = ["Tally", "shot_groups", "tally", "tally_by_class"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tally:
    """Sums and counts of values, over all examples (`[]`) or per class (`[L]`).

    Tallies of parts of the data add up to the tally of all data, in any order: with `+` or `sum`
    over batches, and with `jax.lax.psum` over devices. They do not drift. With weights, or of real
    values, the numbers are floats. Others are integers, exact below 2^47; `total` and `count` have
    the largest integer of 32 bits (64 in JAX's 64-bit mode) for all that are larger.

    Example:
        >>> first = tally(jnp.array([True, True, False]))
        >>> print((first + tally(jnp.array([False]))).mean())
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

    def __add__(self, other: "Tally") -> "Tally":
        """The tally of both parts."""
        if not isinstance(other, Tally):
            return NotImplemented
        own, others = (
            (each._total.shape, each._total.dtype.name, each._count.dtype.name)
            for each in (self, other)
        )
        if own != others:
            raise ValueError(
                "other must be a tally of shape {}, of sums in {} and counts in {}; ".format(*own)
                + "got {}, {} and {}; counts with weights are floats.".format(*others)
            )
        return Tally(self._total + other._total, self._count + other._count)

    def __radd__(self, other: int) -> Self:
        """The tally itself, for the 0 that the function `sum` starts with."""
        if not isinstance(other, int) or other != 0:
            return NotImplemented
        return self

    def mean(self) -> jax.Array:
        r"""The mean over examples, a scalar; NaN without examples. Of hits, it is the accuracy.

        .. math:: \frac{\sum_i w_i v_i}{\sum_i w_i}
        """
        return _mean(self._total, self._count)

    def macro_mean(self, classes: ArrayLike | None = None) -> jax.Array:
        r"""The mean of the means of the classes that have examples; NaN if none has.

        .. math::
            \frac{1}{|C|} \sum_{c \in C} \frac{1}{n_c} \sum_{i : y_i = c} w_i v_i, \qquad
            n_c = \sum_{i : y_i = c} w_i, \qquad C = \{ c : n_c > 0 \}

        Args:
            classes: booleans, `[L]`, the classes to include, as from `shot_groups`; `None` for all.
        """
        if classes is not None:
            classes = _checks.boolean_array(classes, "classes", self._count.shape)
        return _macro_mean(self._total, self._count, classes)


def tally(
    values: ArrayLike, where: ArrayLike | None = None, *, weights: ArrayLike | None = None
) -> Tally:
    """The sum and the count of the examples' values, for `mean`.

    Args:
        values: hits (booleans), set sizes (integers) or real values such as `example_f1`, `[...]`.
        where, weights: see `topk_jax.metrics`.

    Returns:
        A `Tally` of scalars.

    Example:
        >>> hits, where = jnp.array([True, False, True]), jnp.array([True, True, False])
        >>> print(tally(hits, where).mean())
        0.5

    Source: Garcin (2023), thesis, equations 5.16 and 5.17, for accuracies.
    """
    totals, counts = _totals_and_counts(values, where, weights)
    return _tally(totals, counts)


def tally_by_class(
    values: ArrayLike,
    labels: ArrayLike,
    *,
    num_classes: int,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Tally:
    """The sum and the count of the values of each class, for `macro_mean`.

    Args:
        values: see `tally`.
        labels, where, weights: see `topk_jax.metrics`. A label outside [0, L) counts nowhere.
        num_classes: static number of classes L.

    Returns:
        A `Tally` with one sum and one count per class, `[L]`.

    Example:
        >>> hits, labels = jnp.array([True, False, True]), jnp.array([0, 0, 2])
        >>> counts = tally_by_class(hits, labels, num_classes=3)
        >>> print(counts.count, counts.macro_mean())
        [2 0 1] 0.75

    Source: Garcin (2023), thesis, section 3.3.1, for macro accuracies.
    """
    totals, counts = _totals_and_counts(values, where, weights)
    labels = _checks.integer_array(labels, "labels", totals.shape)
    num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    has_class = (labels >= 0) & (labels < num_classes)
    # Other labels get an index past the end and are dropped. JAX would wrap -1 to the last class.
    index = jnp.where(has_class, labels, num_classes)
    return _tally_by_class(num_classes, index, totals, counts)


def shot_groups(class_counts: ArrayLike, *, few: int = 20, many: int = 100) -> dict[str, jax.Array]:
    r"""Groups of the classes with few, medium and many training examples, for `Tally.macro_mean`.

    .. math::
        n_l < n_{\text{few}}, \qquad n_{\text{few}} \le n_l \le n_{\text{many}}, \qquad
        n_l > n_{\text{many}}

    Args:
        class_counts: integers, `[L]`, the number of training examples of each class.
        few: static; a class with fewer training examples is few-shot.
        many: static, at least `few`; a class with more training examples is many-shot.

    Returns:
        A dictionary of boolean masks, `[L]`, with the keys "few", "medium" and "many". Each class
        is in exactly one group; in none if a traced count is negative.

    Example:
        >>> print(shot_groups(jnp.array([5, 20, 300]))["few"])
        [ True False False]

    Source: Garcin (2023), thesis, tables 4.5 and 5.2.
    """
    counts = _checks.training_counts(class_counts, "class_counts")
    few = _checks.static_integer(few, "few", minimum=0)
    many = _checks.static_integer(many, "many", minimum=few)
    valid = (counts >= 0).all()
    return {
        "few": valid & (counts < few),
        "medium": valid & (counts >= few) & (counts <= many),
        "many": valid & (counts > many),
    }


@jax.jit
def _tally(totals: jax.Array, counts: jax.Array) -> Tally:
    return Tally(Sum.over(totals, jnp.sum), Sum.of(counts.sum()))


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
    counts = weights_of(numbers.shape, where, weights)
    if weights is not None:
        is_real = jnp.issubdtype(numbers.dtype, jnp.floating)
        counts = counts.astype(numbers.dtype if is_real else float)
        numbers = numbers.astype(counts.dtype) * counts
    # A product is not enough: the value of an example that is left out may be NaN.
    return jnp.where(counts == 0, jnp.zeros_like(numbers), numbers), counts


def weights_of(
    shape: tuple[int, ...], where: ArrayLike | None, weights: ArrayLike | None
) -> jax.Array:
    """The weights of examples [...], 0 for those left out; integers without `weights`."""
    if weights is None:
        counts = jnp.ones(shape, int)
    else:
        counts = _checks.weights_of_examples(weights, "weights", shape)
    if where is None:
        return counts
    return jnp.where(_checks.boolean_array(where, "where", shape), counts, 0)


@jax.jit
def _mean(total: Sum, count: Sum) -> jax.Array:
    return ratio(*_floats(total.total(), count.total()))


@jax.jit
def _macro_mean(total: Sum, count: Sum, classes: jax.Array | None) -> jax.Array:
    totals, counts = _floats(total, count)
    # The count of wrong weights is NaN, which counts as present.
    present = counts != 0
    if classes is not None:
        present &= classes
    # Absent classes count 1, because even an unused NaN would trigger JAX's NaN checks.
    means = jnp.where(present, ratio(totals, jnp.where(present, counts, 1)), 0.0)
    return ratio(means.sum(), present.sum().astype(means.dtype))


def _floats(total: Sum, count: Sum) -> tuple[jax.Array, jax.Array]:
    """Both as floats of the type that one of them has, or of the default type."""
    given = (each.dtype for each in (total, count))
    real = (dtype for dtype in given if jnp.issubdtype(dtype, jnp.floating))
    dtype = next(real, jnp.result_type(float))
    return total.as_floats(dtype), count.as_floats(dtype)


def ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    """The quotient of floats; NaN where the count is 0, without a division by 0."""
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), jnp.nan)
