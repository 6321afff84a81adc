"""Sets for groups of examples, as the photographs of one plant: one answer for all of them."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _selection, _sharding
from topk_jax._entries import add_by_group
from topk_jax.sets._calibration import calibration_of

__all__ = ["combine", "group_labels", "group_weights", "hierarchical_quantile"]

Combination = Literal["log_probabilities", "probabilities", "maximum"]

# The weight of a group of one example is searched up to this number.
_LARGEST_WEIGHT = 2.0**20
_MOST_PASSES = 100


class _Search(NamedTuple):
    """A search for two weights `[2]` with the loss there, and the damping of the next step."""

    weights: jax.Array
    loss: jax.Array
    damping: jax.Array
    step: jax.Array
    passes: jax.Array


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
    are normalized. The sum of log-probabilities, w(n) = n, would be right for examples that are
    independent given their class, and overconfident for photographs of one plant. The mean counts a
    group as a single example. `group_weights` finds weights between the two.

    The rows of the result are examples of their own. Give them, with `group_labels`, to the
    functions that calibrate sets: then a coverage is of groups.

    Args:
        log_probabilities: floating-point logarithms of probabilities, at most 0, as from
            `jax.nn.log_softmax`, `[..., L]`; -inf for a class that is masked.
        groups: the integer group of each example, `[...]`. An example whose group is outside [0,
            num_groups) is in no group.
        num_groups: static number of groups G.
        by: what is combined: "log_probabilities", "probabilities" or "maximum".
        weights: with "log_probabilities", the numbers :math:`w_0` and :math:`w_1`, `[2]`, finite;
            as from `group_weights`. May be traced.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        Log-probabilities `[G, L]`, in the dtype of the given ones (float32 or float64). The row of
        a group is NaN if it has no example, if a log-probability of its examples is NaN or a traced
        one is above 0, or if every class has -inf. With "log_probabilities", a class that is -inf
        for one example is -inf for the group.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: the shapes do not match, a concrete log-probability is above 0, `num_groups` is
            less than 1, `by` is unknown, or `weights` is given for another `by` or is not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logs = jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1], [0.25, 0.75]]))
        >>> of_groups = sets.combine(logs, jnp.array([0, 0, 1]), num_groups=2)
        >>> print((100 * jnp.exp(of_groups)).round())
        [[75. 25.]
         [25. 75.]]

    See Also:
        `group_labels`, `group_weights`, `hierarchical_quantile`.

    Source: Kittler et al. (1998), "On combining classifiers", for the product, sum and max rules;
    Genest and Zidek (1986), "Combining probability distributions", for the logarithmic pool. The
    weight by the number of examples is ours.
    """
    values = _checks.log_probabilities(log_probabilities, "log_probabilities")
    batch, dtype = values.shape[:-1], values.dtype
    index, num_groups = _indices(groups, batch, num_groups, where)
    if by not in get_args(Combination):
        raise ValueError(f"by must be one of {', '.join(get_args(Combination))}, got {by!r}.")
    of_size = None
    if weights is not None:
        if by != "log_probabilities":
            raise ValueError(f"weights must be None for by {by!r}, got an array.")
        of_size = _checks.finite_vector(weights, "weights", 2, dtype)
    return _combine(num_groups, by, index, values, of_size)


@_class_axis.refuse_split
def group_weights(log_probabilities: ArrayLike, sizes: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The weights of groups by their sizes, with the smallest mean cross-entropy.

    .. math::
        \arg\min_{w_0, w_1 \ge 0} \sum_g
        -\log \mathrm{softmax}_{y_g} \big( (w_0 + w_1 \log_2 n_g) \, \ell_g \big)

    A group of one example has the inverse temperature :math:`w_0`, and each doubling of the number
    of examples adds :math:`w_1`. The problem is convex. The logarithm has the right value for pairs
    whatever their dependence is, and does not trust thousands of photographs of one plant as
    thousands of independent ones. If all groups have one size, only the weight of this size is
    determined. The order of the classes of a group does not change.

    If the groups are split over devices, each device gets several numbers per group of the other
    devices in each step, so that sums are rounded as on one device.

    Args:
        log_probabilities: of groups, as `combine` returns them without weights, `[..., L]`; at
            least one group.
        sizes: the integer number of examples of each group, at least 1, `[...]`.
        labels: the integer class of each group, `[...]`.

    Returns:
        The weights `[2]` for `combine`, in the dtype of the log-probabilities (float32 or float64);
        NaN if a log-probability is NaN or a traced one is above 0, a label is outside [0, L) or a
        size is less than 1. If
        every label has the largest probability, there is no minimum, and the result is large.

    Raises:
        TypeError: `log_probabilities` is not floating-point, or `sizes` or `labels` is not integer.
        ValueError: the shapes do not match, there is no group, or a concrete log-probability is
            above 0.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logs = jnp.log(jnp.array([[0.75, 0.25]] * 4 + [[0.6, 0.4]] * 5))
        >>> sizes, labels = jnp.array([1] * 4 + [2] * 5), jnp.array([0, 0, 0, 1] + [0, 0, 0, 0, 1])
        >>> print((100 * sets.group_weights(logs, sizes, labels)).round())
        [100. 242.]

    See Also:
        `combine`, `temperature`.

    Source: ours. For groups of one size it is the temperature of Guo et al. (2017), "On calibration
    of modern neural networks".
    """
    values = _checks.log_probabilities(log_probabilities, "log_probabilities")
    values, labels = _checks.logits_and_labels(values, labels, name="log_probabilities")
    _checks.some_examples(values, "log_probabilities")
    counts = _checks.integer_array(
        sizes, "sizes", labels.shape, of=("log_probabilities", values.shape)
    )
    num_classes = values.shape[-1]
    return _group_weights(values.reshape(-1, num_classes), counts.reshape(-1), labels.reshape(-1))


def group_labels(
    labels: ArrayLike, groups: ArrayLike, *, num_groups: int, where: ArrayLike | None = None
) -> jax.Array:
    r"""The label of each group of examples, if its examples have one.

    .. math:: y_g = y \text{ if } y_i = y \ge 0 \text{ for all } i \in g, \text{ else } -1

    Args:
        labels: integer classes of the examples, `[...]`.
        groups: the integer group of each example, `[...]`. An example whose group is outside [0,
            num_groups) is in no group.
        num_groups: static number of groups G.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        Integers `[G]`; -1 for a group without examples, and for one whose examples have different
        labels or a negative one. Leave such groups out before you calibrate: with a label of -1,
        thresholds and quantiles are NaN.

    Raises:
        TypeError: `labels` or `groups` is not integer, `num_groups` is not a static integer, or
            `where` is not boolean.
        ValueError: the shapes do not match, or `num_groups` is less than 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> labels, groups = jnp.array([2, 2, 1, 0]), jnp.array([0, 0, 1, 1])
        >>> print(sets.group_labels(labels, groups, num_groups=3))
        [ 2 -1 -1]

    See Also:
        `combine`, `hierarchical_quantile`.

    Source: the definition of a group that has one answer.
    """
    values = _checks.integer_array(labels, "labels", jnp.shape(labels))
    index, num_groups = _indices(groups, values.shape, num_groups, where)
    if jnp.issubdtype(values.dtype, jnp.unsignedinteger):
        values = values.astype(f"int{8 * values.dtype.itemsize}")
    return _group_labels(num_groups, index, values)


@_class_axis.refuse_split
def hierarchical_quantile(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike, *, error: float, num_groups: int
) -> jax.Array:
    r"""The conformal quantile for one example of a new group, from groups of several examples.

    .. math::
        \hat q = \min \Big\{ s : \sum_g \frac{1}{n_g} \#\{ i \in g : s_i \le s \}
        \ge (G + 1)(1 - \varepsilon) \Big\},

    or infinity if there is none; G is the number of groups with examples. Groups count alike,
    however many examples they have. If groups are exchangeable, and the examples of a group too,
    the set of an example that is drawn at random from a new group misses its label with a
    probability of at most :math:`\varepsilon`. With one example in each group it is the
    `conformal_quantile`. That quantile, of all examples alike, promises nothing for groups of
    several examples, because these are not exchangeable with an example of a new group.

    If the examples are split over devices, each device gets the scores of all labels, the labels
    and the groups, because a quantile needs them in one order.

    Args:
        scores: floating-point scores that are smaller for classes that fit better, of all classes,
            `[..., L]`, or of the labels alone, a vector `[n]`; at least one example.
        labels: integer classes, `[...]`; `[n]` with scores of the labels alone.
        groups: the integer group of each example, of the labels' shape. An example whose group is
            outside [0, num_groups) is left out.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        num_groups: static largest number of groups.

    Returns:
        A scalar for `conformal_set` or `score_set`, in the scores' dtype (float32 or float64); NaN
        if a score is NaN or a label is outside [0, L). The shares of examples are added up in this
        dtype: a sum within 16 roundings of the required one suffices.

    Raises:
        TypeError: an argument has a wrong type, or `error` is not a static real number.
        ValueError: the shapes do not match, there is no example, or `error` or `num_groups` is
            outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.5, 0.25, 0.25, 0.25, 0.75]), jnp.zeros(5, int)
        >>> groups = jnp.array([0, 1, 1, 1, 2])
        >>> print(sets.hierarchical_quantile(
        ...     scores, labels, groups, error=0.5, num_groups=3))
        0.5

    See Also:
        `conformal_quantile`, `combine`.

    Source: Lee, Barber and Willett (2023), "Distribution-free inference with hierarchical data",
    theorem 1; Dunn, Wasserman and Ramdas (2022), "Distribution-free prediction sets for two-layer
    hierarchical models".
    """
    calibration = calibration_of(scores, labels, None)
    index, num_groups = _indices(groups, jnp.shape(labels), num_groups, None)
    rate = _checks.static_error(error)
    of_examples = _sharding.gather(index).reshape(-1)
    return _hierarchical_quantile(
        num_groups, float(1 - rate), calibration.scores, of_examples, calibration.valid
    )


def _indices(
    groups: ArrayLike, shape: tuple[int, ...], num_groups: int, where: ArrayLike | None
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

    counts, wrong = _sharding.sum_examples(counts_of, index, valid)
    numbers = jnp.maximum(counts, 1).astype(dtype)[:, None]
    if by == "log_probabilities":
        # Finite masks of several examples would overflow.
        floored = jnp.where(values > -jnp.inf, jnp.maximum(values, _numerics.FLOOR), values)
        sums = _sharding.sum_examples(sums_of, index, floored)
        # Hazard: XLA may divide again for each use, with different rounding. Beside large sums, as
        # of masks, the largest class would not be at 0. Choice: subtract the largest sum before the
        # division; the difference of equal numbers is 0 exactly. Cost: one maximum.
        logs = (sums - _numerics.finite_scores(sums.max(axis=-1, keepdims=True))) / numbers
        if weights is not None:
            factors = weights[0] + weights[1] * jnp.log2(numbers)
            # 0 times -inf is NaN. A factor of NaN stays.
            logs = jnp.where(logs > -jnp.inf, factors * logs, factors - jnp.inf)
    else:
        logs = _sharding.max_examples(maxima_of, index, values)
    if by == "probabilities":

        def shares_of(index: jax.Array, values: jax.Array, largest: jax.Array) -> jax.Array:
            # Relative to the largest of the group, so that small probabilities do not become 0.
            return sums_of(index, jnp.exp(values - largest.at[index].get(mode="clip")))

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


@partial(jax.jit, static_argnums=0)
def _hierarchical_quantile(
    num_groups: int, coverage: jax.Array, scores: jax.Array, index: jax.Array, valid: jax.Array
) -> jax.Array:
    sizes = add_by_group(num_groups, index, 1)
    shares = 1.0 / jnp.maximum(sizes, 1).astype(scores.dtype)
    of_examples = jnp.where(index < num_groups, shares.at[index].get(mode="clip"), 0)
    ascending, of_examples = jax.lax.sort((scores, of_examples), num_keys=1)
    # As in `label_shift_quantiles`: the sums are rounded.
    spare = 1.0 - _numerics.rounding_to_spare(scores.dtype)
    present = (sizes > 0).sum().astype(scores.dtype)
    required = coverage.astype(scores.dtype) * (present + 1.0) * spare
    place = jnp.searchsorted(jnp.cumsum(of_examples), required)
    return jnp.where(valid, jnp.append(ascending, jnp.inf)[place], jnp.nan)


@jax.jit
def _group_weights(logs: jax.Array, sizes: jax.Array, labels: jax.Array) -> jax.Array:
    """The minimum by damped Newton steps that stay within the bounds.

    Identity: the cross-entropy of a group is convex in its weight w, with the slope E[s] - s_y and
    the curvature var s; w is linear in the two numbers. Hazard: the slope decays exponentially for
    large weights, so that Newton's steps overshoot, and with one size the curvature is singular.
    Choice: a multiple of the curvature's trace is added (Levenberg and Marquardt), more after a
    step that does not improve. Cost: one pass of exponentials for each step.
    """
    scores = _numerics.finite_scores(logs)
    scores = scores - scores.max(axis=-1, keepdims=True)
    of_labels = _numerics.score_of_label(scores, labels)
    doublings = jnp.log2(jnp.maximum(sizes, 1).astype(scores.dtype))
    basis = jnp.stack([jnp.ones_like(doublings), doublings])
    epsilon = float(jnp.finfo(scores.dtype).eps)

    def mean(values: jax.Array) -> jax.Array:
        return _selection.sum_in_blocks(values) / values.size

    def at(weights: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The loss, its slope [2] and its curvature [2, 2]."""
        of_groups = weights[0] + weights[1] * doublings
        exponentials = jnp.exp(of_groups[:, None] * scores)
        total = exponentials.sum(axis=-1)
        # A masked class has a weight of 0 and a score whose square overflows.
        finite = jnp.where(exponentials > 0.0, scores, 0.0)
        first = (exponentials * finite).sum(axis=-1) / total
        around = exponentials * (finite - first[:, None]) ** 2
        slopes, curvatures = first - of_labels, around.sum(axis=-1) / total
        loss = mean(jnp.log(total) - of_groups * of_labels)
        slope = jnp.stack([mean(slopes * basis[0]), mean(slopes * basis[1])])
        crossed = mean(curvatures * basis[1])
        squared = mean(curvatures * basis[1] ** 2)
        curvature = jnp.stack([mean(curvatures), crossed, crossed, squared]).reshape(2, 2)
        return loss, slope, curvature

    def unfinished(search: _Search) -> jax.Array:
        moves = (jnp.abs(search.step) > 4.0 * epsilon * (1.0 + search.weights)).any()
        return moves & (search.passes < _MOST_PASSES)

    def advance(search: _Search) -> _Search:
        _, slope, curvature = at(search.weights)
        # A weight at 0 that would fall further stays there.
        free = (search.weights > 0.0) | (slope < 0.0)
        both = free[:, None] & free[None, :]
        trace = jnp.where(both, curvature, 0.0).trace()
        ridge = search.damping * trace + float(jnp.finfo(scores.dtype).tiny)
        damped = jnp.where(both, curvature, 0.0) + jnp.diag(jnp.where(free, ridge, 1.0))
        determinant = damped[0, 0] * damped[1, 1] - damped[0, 1] * damped[1, 0]
        slope = jnp.where(free, slope, 0.0)
        step = jnp.stack(
            [
                damped[0, 1] * slope[1] - damped[1, 1] * slope[0],
                damped[1, 0] * slope[0] - damped[0, 0] * slope[1],
            ]
        )
        step = jnp.where(determinant > 0.0, step / jnp.where(determinant > 0.0, determinant, 1), 0)
        tried = jnp.clip(search.weights + step, 0.0, _LARGEST_WEIGHT)
        loss, _, _ = at(tried)
        # Near the minimum, losses differ by their rounding only.
        better = loss <= search.loss + epsilon * jnp.abs(search.loss)
        return _Search(
            jnp.where(better, tried, search.weights),
            jnp.where(better, loss, search.loss),
            jnp.where(better, 0.125 * search.damping, jnp.maximum(8.0 * search.damping, epsilon)),
            jnp.where(better, tried - search.weights, step),
            search.passes + 1,
        )

    # Under shard_map the initial values of the loop must vary over the devices as the scores do.
    one = jnp.ones_like(of_labels.max())
    weights = jnp.stack([one, jnp.zeros_like(one)])
    start = _Search(weights, at(weights)[0], 0.001 * one, weights * jnp.inf, jnp.asarray(0))
    found = jax.lax.while_loop(unfinished, advance, start).weights
    valid = _numerics.valid_examples(logs, labels).all() & (sizes > 0).all()
    return jnp.where(valid, found, jnp.nan)
