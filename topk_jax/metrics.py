"""Hits and accuracies: over examples, over classes, and over groups of classes by size.

All of them are computed from masked sums and counts (`Tally`), which add up over batches and
devices. A mean of batch means would give padded batches and rare classes a wrong weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics, _selection, _sharding
from topk_jax._anytime import anytime_interval
from topk_jax._intervals import cluster_interval
from topk_jax._label_quality import confident_classes, confident_joint, label_margins
from topk_jax._taxonomic_metrics import (
    ancestor_hits,
    ancestor_ranks,
    mistake_heights,
    name_counts,
    node_counts,
    set_heights,
)

__all__ = [
    "Tally",
    "accuracy",
    "ancestor_hits",
    "ancestor_ranks",
    "anytime_interval",
    "cluster_interval",
    "confident_classes",
    "confident_joint",
    "label_margins",
    "label_ranks",
    "macro_accuracy",
    "mistake_heights",
    "name_counts",
    "node_counts",
    "set_heights",
    "set_sizes",
    "shot_accuracy",
    "shot_groups",
    "tally",
    "tally_by_class",
    "threshold_hits",
    "top_k_hits",
]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tally:
    """Sums and counts of values, over all examples (`[]`) or per class (`[L]`).

    Tallies of parts of the data add up exactly to the tally of all data, in any order: with `+` or
    `sum` over batches, and with `jax.lax.psum` over devices. The numbers are integers with 32 bits
    (64 in JAX's 64-bit mode), so each total must stay below 2^31, which is about two million sets
    of a thousand classes. `mean` adds up the totals of all classes, and this sum may be larger.

    Attributes:
        total: the sum of the values, integers.
        count: the number of examples, integers.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> first = metrics.tally(jnp.array([True, True, False]))
        >>> second = metrics.tally(jnp.array([False, True]), where=jnp.array([True, False]))
        >>> print((first + second).mean())
        0.5
    """

    total: jax.Array
    count: jax.Array

    def __add__(self, other: Tally) -> Tally:
        """The tally of both parts."""
        if not isinstance(other, Tally):
            return NotImplemented
        if self.total.shape != other.total.shape:
            raise ValueError(
                f"other must be a tally of shape {self.total.shape}, got shape {other.total.shape}."
            )
        return Tally(self.total + other.total, self.count + other.count)

    def __radd__(self, other: int) -> Tally:
        """The tally itself, for the 0 that the function `sum` starts with."""
        if not isinstance(other, int) or other != 0:
            return NotImplemented
        return self

    def mean(self) -> jax.Array:
        """The mean over examples, a scalar; NaN without examples."""
        return _ratio(_sum(self.total), _sum(self.count))

    def macro_mean(self) -> jax.Array:
        """The mean of the class means, over classes with examples; NaN without such classes."""
        return self._mean_over(jnp.ones(self.count.shape, jnp.bool_))

    def shot_means(
        self, *, class_counts: ArrayLike, few: int = 20, many: int = 100
    ) -> dict[str, jax.Array]:
        """`macro_mean` over few-shot, medium-shot and many-shot classes, as in `shot_accuracy`."""
        groups = shot_groups(class_counts, few=few, many=many)
        shape = groups["few"].shape
        if shape != self.count.shape:
            raise ValueError(
                f"class_counts must have one value for each of the classes in the tally, shape "
                f"{self.count.shape}, got shape {shape}."
            )
        return {name: self._mean_over(classes) for name, classes in groups.items()}

    def _mean_over(self, classes: jax.Array) -> jax.Array:
        present = classes & (self.count > 0)
        # Absent classes count 1, because even an unused NaN would trigger JAX's NaN checks.
        means = jnp.where(present, _ratio(self.total, jnp.where(present, self.count, 1)), 0.0)
        return _ratio(means.sum(), present.sum())


def tally(values: ArrayLike, where: ArrayLike | None = None) -> Tally:
    """The sum and the count of the examples' values, for `mean`.

    Args:
        values: hits (booleans) or set sizes (integers), `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        A `Tally` of scalars.

    Raises:
        TypeError: `values` is neither boolean nor integer, or `where` is not boolean.
        ValueError: the shapes do not match.

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
    values, where = _values_and_where(values, where)
    return Tally(jnp.where(where, values, 0).sum(), where.sum())


def tally_by_class(
    values: ArrayLike, labels: ArrayLike, *, num_classes: int, where: ArrayLike | None = None
) -> Tally:
    """The sum and the count of the values of each class, for `macro_mean` and `shot_means`.

    Args:
        values: hits (booleans) or set sizes (integers), `[...]`.
        labels: integer classes, `[...]`. An example whose label is outside [0, L) is left out.
        num_classes: static number of classes L.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        A `Tally` with one sum and one count per class, `[L]`.

    Raises:
        TypeError: `values` is neither boolean nor integer, `labels` is not integer, `num_classes`
            is not a static integer, or `where` is not boolean.
        ValueError: the shapes do not match, or `num_classes` is less than 1.

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
    values, where = _values_and_where(values, where)
    labels = _checks.integer_array(labels, "labels", values.shape)
    num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    has_class = where & (labels >= 0) & (labels < num_classes)
    # Other labels get an index past the end and are dropped. JAX would wrap -1 to the last class.
    index = jnp.where(has_class, labels, num_classes)
    return _tally_by_class(num_classes, index, values)


@_class_axis.allow_split()
def label_ranks(
    scores: ArrayLike, labels: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""How many classes come before the true class when they are ordered by their scores.

    .. math::
        r(s, y) = \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}

    The true class is among the k classes with the largest scores if its rank is less than k. So the
    ranks give `top_k_hits` for every k.

    Args:
        scores: floating-point scores or probabilities, `[..., L]`.
        labels: integer classes, `[...]`.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Integers, `[...]`, from 0 to L - 1. The rank is L, which is not less than any k, where a
        score is NaN or the label is outside [0, L).

    Raises:
        TypeError: `scores` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(metrics.label_ranks(scores, jnp.array([0, 2])))
        [0 2]

    See Also:
        `top_k_hits`, `rank_calibrated_quantiles`.

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores, labels = _checks.logits_and_labels(scores, labels, name="scores")
    return _label_ranks(scores, labels, class_axis_name)


@_class_axis.allow_split()
def top_k_hits(
    scores: ArrayLike, labels: ArrayLike, *, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""Whether the true class is among the k classes with the largest scores.

    .. math::
        h(s, y) = \mathbf 1 \big[ \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}
        < k \big]

    Ties go to the class with the lower index, as in `sets.top_k_set`. So constant scores do not hit
    every class.

    Args:
        scores: floating-point scores or probabilities, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Booleans, `[...]`. NaN scores and labels outside [0, L) are misses.

    Raises:
        TypeError: `scores` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match or `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(metrics.top_k_hits(scores, jnp.array([1, 2]), k=2))
        [ True False]

    See Also:
        `accuracy`, `label_ranks`, `top_k_set`.

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores, labels = _checks.logits_and_labels(scores, labels, name="scores")
    k = _checks.rank(k, _classes.count(scores, class_axis_name))
    return _label_ranks(scores, labels, class_axis_name) < k


@_class_axis.allow_split()
def threshold_hits(
    probabilities: ArrayLike,
    labels: ArrayLike,
    threshold: ArrayLike,
    *,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""Whether the probability of the true class reaches a threshold.

    .. math:: h(p, y) = \mathbf 1[p_y \ge \lambda]

    Args:
        probabilities: floating-point, `[..., L]`.
        labels: integer classes, `[...]`.
        threshold: a real scalar, as for `sets.threshold_set`.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Booleans, `[...]`. NaN probabilities, labels outside [0, L) and a NaN threshold are misses.

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer or `threshold` is
            not real.
        ValueError: the shapes do not match or `threshold` is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
        >>> print(metrics.threshold_hits(probabilities, jnp.array([1, 2]), 0.25))
        [ True False]

    See Also:
        `accuracy`, `threshold_set`.

    Source: Garcin (2023), thesis, equations 5.16 and 5.17.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    threshold = _checks.threshold(threshold, values.dtype)
    reached = _numerics.score_of_label(values, labels, class_axis_name) >= threshold
    return reached & _numerics.valid_examples(values, labels, class_axis_name)


@_class_axis.allow_split()
def set_sizes(chosen: ArrayLike, *, class_axis_name: Hashable | None = None) -> jax.Array:
    """The number of classes in each set; `tally` gives their mean.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Integers, `[...]`.

    Raises:
        TypeError: `chosen` is not boolean.
        ValueError: `chosen` has no axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> print(metrics.set_sizes(jnp.array([[True, True, False], [True, False, False]])))
        [2 1]

    See Also:
        `threshold_hits`, `tally`.

    Source: Garcin (2023), thesis, equation 2.1.
    """
    chosen = _checks.boolean_array(chosen, "chosen")
    if chosen.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {chosen.shape}.")
    return _classes.sum_classes(chosen, class_axis_name)


def accuracy(hits: ArrayLike, where: ArrayLike | None = None) -> jax.Array:
    r"""The share of hits among the examples.

    .. math:: \frac{1}{n} \sum_i h_i

    Args:
        hits: booleans, `[...]`.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        A float scalar in [0, 1]; NaN if no example is included.

    Raises:
        TypeError: `hits` or `where` is not boolean.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, where = jnp.array([True, False, True]), jnp.array([True, True, False])
        >>> print(metrics.accuracy(hits), metrics.accuracy(hits, where))
        0.6666667 0.5

    See Also:
        `macro_accuracy`, `shot_accuracy`.

    Source: Garcin (2023), thesis, equations 5.16 and 5.17.
    """
    return tally(_checks.boolean_array(hits, "hits"), where).mean()


def macro_accuracy(
    hits: ArrayLike, labels: ArrayLike, *, num_classes: int, where: ArrayLike | None = None
) -> jax.Array:
    r"""The mean over classes of the share of hits in each class.

    .. math::
        \frac{1}{|C|} \sum_{c \in C} \frac{1}{n_c} \sum_{i : y_i = c} h_i, \qquad
        C = \{ c : n_c > 0 \}

    Args:
        hits: booleans, `[...]`.
        labels: integer classes, `[...]`. An example whose label is outside [0, L) is left out.
        num_classes: static number of classes L.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        A float scalar in [0, 1]; NaN if no class has an example.

    Raises:
        TypeError: `hits` or `where` is not boolean, `labels` is not integer, or `num_classes` is
            not a static integer.
        ValueError: the shapes do not match, or `num_classes` is less than 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, labels = jnp.array([True, False, True]), jnp.array([0, 0, 2])
        >>> print(metrics.macro_accuracy(hits, labels, num_classes=3))
        0.75

    See Also:
        `accuracy`, `shot_accuracy`.

    Source: Garcin (2023), thesis, section 3.3.1.
    """
    hits = _checks.boolean_array(hits, "hits")
    return tally_by_class(hits, labels, num_classes=num_classes, where=where).macro_mean()


def shot_accuracy(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    class_counts: ArrayLike,
    few: int = 20,
    many: int = 100,
    where: ArrayLike | None = None,
) -> dict[str, jax.Array]:
    r"""Macro accuracy over the classes with few, medium and many training examples.

    Each is the mean over the classes of its group, as `macro_accuracy` is over all classes. The
    thesis does not state this, but its numbers imply it: in table 5.2 (cross-entropy, K = 5) all
    three groups are below the accuracy over all examples, which is impossible for means over
    examples.

    Args:
        hits: booleans, `[...]`.
        labels: integer classes, `[...]`. An example whose label is outside [0, L) is left out.
        class_counts: integers, `[L]`, the number of training examples of each class.
        few: static; a class with fewer training examples is few-shot.
        many: static, at least `few`; a class with more training examples is many-shot. All other
            classes are medium-shot.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        A dictionary of float scalars in [0, 1] with the keys "few", "medium" and "many"; NaN if no
        class of the group has an example.

    Raises:
        TypeError: `hits` or `where` is not boolean, `labels` or `class_counts` is not integer, or
            `few` or `many` is not a static integer.
        ValueError: the shapes do not match, `few` is negative, or `many` is less than `few`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, labels = jnp.array([True, False, True, True]), jnp.array([0, 0, 1, 2])
        >>> by_shot = metrics.shot_accuracy(hits, labels, class_counts=jnp.array([5, 20, 300]))
        >>> print({name: float(value) for name, value in by_shot.items()})
        {'few': 0.5, 'medium': 1.0, 'many': 1.0}

    See Also:
        `shot_groups`, `macro_accuracy`.

    Source: Garcin (2023), thesis, tables 4.5 and 5.2.
    """
    hits = _checks.boolean_array(hits, "hits")
    num_classes = _checks.training_counts(class_counts, "class_counts").shape[0]
    counts = tally_by_class(hits, labels, num_classes=num_classes, where=where)
    return counts.shot_means(class_counts=class_counts, few=few, many=many)


def shot_groups(class_counts: ArrayLike, *, few: int = 20, many: int = 100) -> dict[str, jax.Array]:
    r"""Groups of the classes with few, medium and many training examples.

    .. math::
        n_l < n_{\text{few}}, \qquad n_{\text{few}} \le n_l \le n_{\text{many}}, \qquad
        n_l > n_{\text{many}}

    Args:
        class_counts: integers, `[L]`, the number of training examples of each class.
        few: static; a class with fewer training examples is few-shot.
        many: static, at least `few`; a class with more training examples is many-shot. All other
            classes are medium-shot.

    Returns:
        A dictionary of boolean masks, `[L]`, with the keys "few", "medium" and "many". Each class
        is in exactly one group; in none if a traced count is negative.

    Raises:
        TypeError: `class_counts` is not integer, or `few` or `many` is not a static integer.
        ValueError: `class_counts` is not `[L]` or is negative, `few` is negative, or `many` is less
            than `few`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> for name, classes in metrics.shot_groups(jnp.array([5, 20, 300])).items():
        ...     print(name, classes)
        few [ True False False]
        medium [False  True False]
        many [False False  True]

    See Also:
        `shot_accuracy`.

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


@partial(jax.jit, static_argnums=0)
def _tally_by_class(num_classes: int, index: jax.Array, values: jax.Array) -> Tally:
    def tally_of(index: jax.Array, values: jax.Array) -> Tally:
        index = index.reshape(-1)
        zeros = jnp.zeros(num_classes, values.dtype)
        return Tally(
            zeros.at[index].add(values.reshape(-1), mode="drop"),
            zeros.at[index].add(1, mode="drop"),
        )

    return _sharding.sum_examples(tally_of, index, values)


@partial(jax.jit, static_argnums=2)
def _label_ranks(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    """Ranks in one pass and without a sort.

    Hazard: XLA may compute a score again for each use, with different rounding. A class could then
    rank before itself. Choice: compute the scores once. Cost: they are stored.
    """
    scores = _selection.compute_once(scores)
    score = _numerics.score_of_label(scores, labels, class_axis_name)[..., None]
    larger = scores > score
    own_labels = _classes.localize(labels, scores.shape[-1], class_axis_name)
    classes = jax.lax.broadcasted_iota(own_labels.dtype, scores.shape, scores.ndim - 1)
    tied_before = (scores == score) & (classes < own_labels[..., None])
    rank = _classes.sum_classes(larger | tied_before, class_axis_name)
    valid = _numerics.valid_examples(scores, labels, class_axis_name)
    return jnp.where(valid, rank, _classes.count(scores, class_axis_name))


def _values_and_where(values: ArrayLike, where: ArrayLike | None) -> tuple[jax.Array, jax.Array]:
    """Returns the values as integers and the mask, of the same shape, or raises."""
    values = _checks.counting_array(values, "values")
    if where is None:
        return values, jnp.ones(values.shape, jnp.bool_)
    return values, _checks.boolean_array(where, "where", values.shape)


def _sum(integers: jax.Array) -> jax.Array:
    """The sum in the default float type.

    Hazard: the sum of the classes may be beyond the integers. Choice: add up each byte of the
    numbers, which is exact for up to 2^23 classes. Cost: a pass for each byte.
    """
    if integers.ndim == 0:
        return integers.astype(float)
    # From the highest byte, which has the sign. The sum of the bytes is exact below 2^24.
    *lower, highest = range(0, 8 * integers.dtype.itemsize, 8)
    sums = (integers >> highest).sum().astype(float) * 2.0**highest
    for shift in reversed(lower):
        sums += ((integers >> shift) & 255).sum().astype(float) * 2.0**shift
    return sums


def _ratio(total: Any, count: jax.Array) -> jax.Array:
    """The quotient in the default float type; NaN where the count is 0, without a division by 0."""
    quotient = total.astype(float) / jnp.maximum(count, 1).astype(float)
    return jnp.where(count > 0, quotient, jnp.nan)
