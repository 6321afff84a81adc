"""Groups of examples with one answer, as the photographs of one plant: their scores and labels."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding
from topk_jax._entries import add_by_group

__all__ = ["combine", "group_labels"]

Combination = Literal["log_probabilities", "probabilities", "maximum"]


@_class_axis.refuse_split
def combine(
    log_probabilities: ArrayLike,
    groups: ArrayLike,
    *,
    num_groups: int,
    by: Combination = "log_probabilities",
    weights: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The log-probabilities of groups of examples, from the log-probabilities of the examples.

    With :math:`n_g` the number of examples of group g:

    .. math::
        \ell_g = \log \mathrm{softmax} \Big( w(n_g) \, \frac{1}{n_g} \sum_{i \in g} \log p_i \Big),
        \qquad w(n) = w_0 + w_1 \log_2 n

    Here :math:`w` is 1 without `weights`. With `by="probabilities"` it is the logarithm of the mean
    of the probabilities, and with `by="maximum"` the largest log-probability of each class; both
    are normalized. The sum, w(n) = n, would be overconfident for photographs of one plant, and the
    mean counts a group as a single example: `group_weights` finds weights between the two.

    Give the rows of the result, with `group_labels`, to the functions that calibrate sets: then a
    coverage is of groups.

    Args:
        log_probabilities: floating-point logarithms of probabilities, at most 0, as from
            `jax.nn.log_softmax`, `[..., L]`; -inf for a class that is masked.
        groups: the integer group of each example, `[...]`. An example whose group is outside [0,
            num_groups) is in no group.
        num_groups: static number of groups G.
        by: what is combined: "log_probabilities", "probabilities" or "maximum".
        weights: with "log_probabilities", the numbers :math:`w_0` and :math:`w_1`, `[2]`, finite;
            as from `group_weights`.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        Log-probabilities `[G, L]`. The row of a group is NaN if it has no example, if a
        log-probability of its examples is NaN or a traced one is above 0, or if every class has
        -inf. With "log_probabilities", a class that is -inf for one example is -inf for the group.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logs = jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1], [0.25, 0.75]]))
        >>> of_groups = sets.combine(logs, jnp.array([0, 0, 1]), num_groups=2)
        >>> print((100 * jnp.exp(of_groups)).round())
        [[75. 25.]
         [25. 75.]]

    Source: Kittler et al. (1998), "On combining classifiers", for the product, sum and max rules;
    Genest and Zidek (1986), "Combining probability distributions", for the logarithmic pool. The
    weight by the number of examples is ours.
    """
    values = _checks.log_probabilities(log_probabilities, "log_probabilities")
    index, num_groups = group_indices(groups, values.shape[:-1], num_groups, where)
    _checks.choice(by, "by", get_args(Combination))
    if weights is not None:
        if by != "log_probabilities":
            raise ValueError(f"weights must be None for by {by!r}, got an array.")
        weights = _checks.numbers(weights, "weights", values.dtype, ((2,),))
    return _combine(num_groups, by, index, values, weights)


def group_labels(
    labels: ArrayLike, groups: ArrayLike, *, num_groups: int, where: ArrayLike | None = None
) -> jax.Array:
    r"""The label of each group of examples, if its examples have one.

    .. math:: y_g = y \text{ if } y_i = y \ge 0 \text{ for all } i \in g, \text{ else } -1

    Args:
        labels: integer classes of the examples, `[...]`.
        groups, num_groups, where: as for `combine`.

    Returns:
        Integers `[G]`; -1 for a group without examples, and for one whose examples have different
        labels or a negative one. Leave such groups out before you calibrate: with a label of -1,
        thresholds and quantiles are NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> labels, groups = jnp.array([2, 2, 1, 0]), jnp.array([0, 0, 1, 1])
        >>> print(sets.group_labels(labels, groups, num_groups=3))
        [ 2 -1 -1]

    Source: the definition of a group that has one answer.
    """
    values = _checks.integer_array(labels, "labels", jnp.shape(labels))
    index, num_groups = group_indices(groups, values.shape, num_groups, where)
    if jnp.issubdtype(values.dtype, jnp.unsignedinteger):
        values = values.astype(f"int{8 * values.dtype.itemsize}")
    return _group_labels(num_groups, index, values)


def group_indices(
    groups: ArrayLike, shape: tuple[int, ...], num_groups: int, where: ArrayLike | None = None
) -> tuple[jax.Array, int]:
    """The groups, with `num_groups` for an example in none, and the number of groups; or raises."""
    num_groups = _checks.static_integer(num_groups, "num_groups", minimum=1)
    of_examples = _checks.integer_array(groups, "groups", shape)
    has_group = (of_examples >= 0) & (of_examples < num_groups)
    if where is not None:
        has_group &= _checks.boolean_array(where, "where", shape)
    # JAX would wrap -1 to the last group. A scatter drops what is past the end.
    return jnp.where(has_group, of_examples, num_groups), num_groups


@partial(jax.jit, static_argnums=(0, 1))
def _combine(
    num_groups: int, by: str, index: jax.Array, values: jax.Array, weights: jax.Array | None
) -> jax.Array:
    dtype, num_classes = values.dtype, values.shape[-1]
    # A NaN may be lost in a maximum.
    valid = ~jnp.isnan(values).any(axis=-1)
    values = jnp.where(valid[..., None], values, 0)

    def counts_of(index: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        index, wrong = index.reshape(-1), (~valid).reshape(-1).astype(int)
        return add_by_group(num_groups, index, 1), add_by_group(num_groups, index, wrong)

    def sums_of(index: jax.Array, values: jax.Array) -> jax.Array:
        zeros = jnp.zeros((num_groups, num_classes), dtype)
        return zeros.at[index.reshape(-1)].add(values.reshape(-1, num_classes), mode="drop")

    def maxima_of(index: jax.Array, values: jax.Array) -> jax.Array:
        lowest = jnp.full((num_groups, num_classes), -jnp.inf, dtype)
        return lowest.at[index.reshape(-1)].max(values.reshape(-1, num_classes), mode="drop")

    def shares_of(index: jax.Array, values: jax.Array, largest: jax.Array) -> jax.Array:
        # Relative to the largest of the group, so that small probabilities do not become 0.
        return sums_of(index, jnp.exp(values - largest.at[index].get(mode="clip")))

    counts, wrong = _sharding.sum_examples(counts_of, index, valid)
    numbers = jnp.maximum(counts, 1).astype(dtype)[:, None]
    if by == "log_probabilities":
        # Finite masks of several examples would overflow.
        floored = jnp.where(values > -jnp.inf, jnp.maximum(values, _numerics.FLOOR), values)
        sums = _sharding.sum_examples(sums_of, index, floored)
        # Before the division, which XLA may round differently for each use: beside large sums, as
        # of masks, the largest class would not be at 0.
        logs = (sums - _numerics.finite_scores(sums.max(axis=-1, keepdims=True))) / numbers
        if weights is not None:
            factors = weights[0] + weights[1] * jnp.log2(numbers)
            # 0 times -inf is NaN. A factor of NaN stays.
            logs = jnp.where(logs > -jnp.inf, factors * logs, factors - jnp.inf)
    else:
        logs = _sharding.max_examples(maxima_of, index, values)
    if by == "probabilities":
        largest = _numerics.finite_scores(logs)
        sums = _sharding.sum_examples(shares_of, index, values, shared=(largest,))
        logs = logs + jnp.log(jnp.maximum(sums, 1)) - jnp.log(numbers)
    has_value = (counts > 0) & (wrong == 0) & (logs > -jnp.inf).any(axis=-1)
    logs = jnp.where(has_value[:, None], logs, 0)
    return jnp.where(has_value[:, None], jax.nn.log_softmax(logs), jnp.nan)


@partial(jax.jit, static_argnums=0)
def _group_labels(num_groups: int, index: jax.Array, labels: jax.Array) -> jax.Array:
    lowest, highest = jnp.iinfo(labels.dtype).min, jnp.iinfo(labels.dtype).max

    def largest_of(index: jax.Array, labels: jax.Array) -> jax.Array:
        start = jnp.full(num_groups, lowest, labels.dtype)
        return start.at[index.reshape(-1)].max(labels.reshape(-1), mode="drop")

    largest = _sharding.max_examples(largest_of, index, labels)
    # The complement of an integer reverses the order, without an overflow.
    smallest = ~_sharding.max_examples(largest_of, index, ~labels)
    return jnp.where((largest == smallest) & (largest >= 0) & (largest < highest), largest, -1)
