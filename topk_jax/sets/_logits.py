"""Logits after training: their temperature, groups of examples, and the frequencies of classes."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _sharding, _sums

__all__ = ["adjust_logits", "combine", "group_labels", "group_weights", "temperature"]

Combination = Literal["log_probabilities", "probabilities", "maximum"]
# Inverse temperatures are searched from 2^-20, weights from 0, up to this number.
_LARGEST = 2.0**20
_MOST_PASSES = 100


def temperature(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The temperature with the smallest mean cross-entropy of the scaled logits.

    .. math:: T = \arg\min_T \frac1n \sum_i -\log \mathrm{softmax}_{y_i}(s_i / T)

    Compute the probabilities as `softmax(logits / T)` before you calibrate a threshold or quantile.
    Use examples that the classifier was not trained on.

    Args:
        labels: see `topk_jax.sets`.
        logits: floating-point scores, `[..., L]`.

    Returns:
        A scalar from 2^-20 to 2^20; a small one if every label has the largest logit.

    Example:
        >>> logits = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> found = temperature(logits, jnp.array([0, 0, 0, 1]))
        >>> print((100 * jax.nn.softmax(logits / found)[0]).round())
        [75. 25.]

    Source: Guo et al. (2017), "On calibration of modern neural networks", section 4.2.
    """
    scores, labels = _example.logits_and_labels(logits, labels)
    _checks.some_examples(scores, "logits")
    return _temperature(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))


def group_weights(log_probabilities: ArrayLike, sizes: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The weights of groups by their sizes, with the smallest mean cross-entropy.

    .. math::
        \arg\min_{w_0, w_1 \ge 0} \sum_g
        -\log \mathrm{softmax}_{y_g} \big( (w_0 + w_1 \log_2 n_g) \, \ell_g \big)

    If all groups have one size, only the weight of this size is determined.

    Args:
        log_probabilities: of groups, as `combine` returns them without weights, `[..., L]`.
        sizes: the integer number of examples of each group, at least 1, `[...]`.
        labels: the integer class of each group, `[...]`.

    Returns:
        The weights `[2]` for `combine`; large ones if every label has the largest probability. NaN
        if a traced log-probability is above 0 or a size is less than 1.

    Example:
        >>> logs = jnp.log(jnp.array([[0.75, 0.25]] * 4 + [[0.6, 0.4]] * 5))
        >>> sizes, labels = jnp.array([1] * 4 + [2] * 5), jnp.array([0, 0, 0, 1] + [0, 0, 0, 0, 1])
        >>> print((100 * group_weights(logs, sizes, labels)).round())
        [100. 242.]

    Source: ours. For groups of one size it is the temperature of Guo et al. (2017).
    """
    values = _checks.log_probabilities(log_probabilities, "log_probabilities")
    values, labels = _example.logits_and_labels(values, labels, name="log_probabilities")
    _checks.some_examples(values, "log_probabilities")
    counts = _checks.integer_array(
        sizes, "sizes", labels.shape, of=("log_probabilities", values.shape)
    )
    rows = values.reshape(-1, values.shape[-1])
    return _group_weights(rows, counts.reshape(-1), labels.reshape(-1))


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

    .. math::
        \ell_g = \log \mathrm{softmax} \Big( w(n_g) \, \frac{1}{n_g} \sum_{i \in g} \log p_i \Big),
        \qquad w(n) = w_0 + w_1 \log_2 n

    Without `weights`, :math:`w` is 1. With `by="probabilities"` it is the logarithm of the mean of
    the probabilities, and with `by="maximum"` the largest log-probability of each class; both are
    normalized. A calibration with the rows and `group_labels` is one of groups.

    Args:
        groups, num_groups: see `topk_jax.sets`.
        log_probabilities: floating-point logarithms of probabilities, at most 0, as from
            `jax.nn.log_softmax`, `[..., L]`; -inf for a class that is masked.
        by: what is combined: "log_probabilities", "probabilities" or "maximum".
        weights: with "log_probabilities": w, `[2]`, finite, as from `group_weights`.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        Log-probabilities `[G, L]`. The row of a group is NaN if it has no example, if a
        log-probability of its examples is NaN or a traced one is above 0, or if every class has
        -inf. With "log_probabilities", a class that is -inf for one example is -inf for the group.

    Example:
        >>> logs = jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1]]))
        >>> print((100 * jnp.exp(combine(logs, jnp.array([0, 0]), num_groups=1))).round())
        [[75. 25.]]

    Source: Kittler et al. (1998), "On combining classifiers". The weight by the number is ours.
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
        labels, groups, num_groups: see `topk_jax.sets`.
        where: booleans, `[...]`, the examples to include; all if `None`.

    Returns:
        Integers `[G]`; -1 also for a group without examples. Leave such groups out before you
        calibrate.

    Example:
        >>> labels, groups = jnp.array([2, 2, 1, 0]), jnp.array([0, 0, 1, 1])
        >>> print(group_labels(labels, groups, num_groups=3))
        [ 2 -1 -1]

    Source: the definition of a group that has one answer.
    """
    values = _checks.integer_array(labels, "labels", jnp.shape(labels))
    index, num_groups = group_indices(groups, values.shape, num_groups, where)
    if jnp.issubdtype(values.dtype, jnp.unsignedinteger):
        values = values.astype(f"int{8 * values.dtype.itemsize}")
    return _group_labels(num_groups, index, values)


def adjust_logits(logits: ArrayLike, *, class_counts: ArrayLike, tau: ArrayLike = 1.0) -> jax.Array:
    r"""Subtracts the logarithms of the class frequencies from the logits of a trained classifier.

    .. math:: s_l - \tau \log \pi_l, \qquad \pi_l = \frac{n_l}{\sum_j n_j}

    Args:
        logits: floating-point scores, `[..., L]`; logarithms of probabilities, too.
        class_counts: the number of training examples of each class, positive, `[L]`.
        tau: scalar strength of the adjustment, at least 0; 0 returns the logits.

    Returns:
        Adjusted logits, `[..., L]`. A logit of -inf stays -inf, and NaN stays NaN.

    Example:
        >>> logits = jnp.log(jnp.array([0.6, 0.3, 0.1]))
        >>> print(jnp.exp(adjust_logits(logits, class_counts=[80, 15, 5])).round(2))
        [0.75 2.   2.  ]

    Source: Menon et al. (2021), "Long-tail learning via logit adjustment", equation 9.
    """
    scores = _checks.floating_array(logits, "logits")
    shapes = (scores.shape[-1:],)
    counts = _checks.numbers(class_counts, "class_counts", scores.dtype, shapes, above=0)
    tau = _checks.scalar(tau, "tau", scores.dtype, at_least=0)
    return scores - jnp.broadcast_to(tau * jnp.log(counts / counts.sum()), scores.shape)


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
    # A NaN may be lost in a maximum.
    valid = ~jnp.isnan(values).any(axis=-1)
    values = jnp.where(valid[..., None], values, 0)

    def by_group(
        reduce: Callable[..., jax.Array], index: jax.Array, values: jax.Array
    ) -> jax.Array:
        return reduce(values.reshape(-1, values.shape[-1]), index.reshape(-1), num_groups)

    sums_of = partial(by_group, jax.ops.segment_sum)

    def shares_of(index: jax.Array, values: jax.Array, largest: jax.Array) -> jax.Array:
        # Relative to the largest of the group, so that small probabilities do not become 0.
        return sums_of(index, jnp.exp(values - largest.at[index].get(mode="clip")))

    ones = jnp.stack([jnp.ones_like(valid), ~valid], axis=-1).astype(int)
    counts, wrong = _sharding.sum_examples(sums_of, index, ones).T
    numbers = jnp.maximum(counts, 1).astype(values.dtype)[:, None]
    if by == "log_probabilities":
        # Finite masks of several examples would overflow.
        floored = jnp.where(values > -jnp.inf, jnp.maximum(values, _classes.FLOOR), values)
        sums = _sharding.sum_examples(sums_of, index, floored)
        # Before the division, which XLA may round differently for each use: beside large sums, as
        # of masks, the largest class would not be at 0.
        logs = (sums - _classes.finite_scores(sums.max(axis=-1, keepdims=True))) / numbers
        if weights is not None:
            factors = weights[0] + weights[1] * jnp.log2(numbers)
            # 0 times -inf is NaN. A factor of NaN stays.
            logs = jnp.where(logs > -jnp.inf, factors * logs, factors - jnp.inf)
    else:
        logs = _sharding.max_examples(partial(by_group, jax.ops.segment_max), index, values)
    if by == "probabilities":
        largest = _classes.finite_scores(logs)
        sums = _sharding.sum_examples(shares_of, index, values, shared=(largest,))
        logs = logs + jnp.log(jnp.maximum(sums, 1)) - jnp.log(numbers)
    has_value = (counts > 0) & (wrong == 0) & (logs > -jnp.inf).any(axis=-1)
    logs = jnp.where(has_value[:, None], logs, 0)
    return jnp.where(has_value[:, None], jax.nn.log_softmax(logs), jnp.nan)


@partial(jax.jit, static_argnums=0)
def _group_labels(num_groups: int, index: jax.Array, labels: jax.Array) -> jax.Array:
    def largest_of(index: jax.Array, labels: jax.Array) -> jax.Array:
        return jax.ops.segment_max(labels.reshape(-1), index.reshape(-1), num_groups)

    largest = _sharding.max_examples(largest_of, index, labels)
    # The complement of an integer reverses the order, without an overflow.
    smallest = ~_sharding.max_examples(largest_of, index, ~labels)
    return jnp.where((largest == smallest) & (largest >= 0), largest, -1)


def _terms(
    inverses: jax.Array, scores: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The cross-entropy of each example, [n], and its two derivatives in the inverse temperature.

    It is convex: its slope is E[s] - s_y, and its curvature the variance of s. The largest of the
    scores [n, L] of each example is 0.
    """
    of_labels = _classes.score_of_label(scores, labels)
    weights = jnp.exp(inverses[:, None] * scores)
    # A masked class has a weight of 0 and a score whose square overflows.
    finite = jnp.where(weights > 0.0, scores, 0.0)
    total = weights.sum(axis=-1)
    first = (weights * finite).sum(axis=-1) / total
    second = (weights * (finite - first[:, None]) ** 2).sum(axis=-1) / total
    return jnp.log(total) - inverses * of_labels, first - of_labels, second


def _below_0(logits: jax.Array) -> jax.Array:
    scores = _classes.finite_scores(logits)
    return scores - scores.max(axis=-1, keepdims=True)


def _mean(values: jax.Array) -> jax.Array:
    return _sums.sum_in_blocks(values) / values.size


def _search(advance: Callable[..., Any], start: jax.Array, least: float, *others: Any) -> jax.Array:
    """The position where `advance(position, step, *others)` makes steps of rounding only."""
    # Rounding is that of the position, or of `least` if it is smaller.
    tolerance = 4.0 * float(jnp.finfo(start.dtype).eps)

    def unfinished(state: Any) -> jax.Array:
        passes, position, step, *_ = state
        moves = (jnp.abs(step) > tolerance * (least + position)).any()
        return moves & (passes < _MOST_PASSES)

    def next_of(state: Any) -> Any:
        return state[0] + 1, *advance(*state[1:])

    state = (jnp.asarray(0), start, jnp.full_like(start, jnp.inf), *others)
    found: jax.Array = jax.lax.while_loop(unfinished, next_of, state)[1]
    return found


@jax.jit
def _temperature(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The inverse of the root of the slope of the mean cross-entropy in the inverse temperature."""
    # Newton's steps hardly shrink where the slope decays exponentially: a bisection of the bounds'
    # logarithms takes the place of a step that leaves them or is not half as long as the last one.
    scores = _below_0(logits)

    def advance(
        inverse: jax.Array, step: jax.Array, lower: jax.Array, upper: jax.Array
    ) -> tuple[jax.Array, ...]:
        _, slopes, curvatures = _terms(jnp.broadcast_to(inverse, labels.shape), scores, labels)
        slope = _mean(slopes)
        lower = jnp.where(slope <= 0.0, inverse, lower)
        upper = jnp.where(slope >= 0.0, inverse, upper)
        newton = inverse - slope / _mean(curvatures)
        trusted = (newton > lower) & (newton < upper)
        trusted &= jnp.abs(newton - inverse) <= 0.5 * jnp.abs(step)
        # If the slope is 0, both bounds are at this position, and so is their mean.
        chosen = jnp.where(trusted, newton, jnp.sqrt(lower) * jnp.sqrt(upper))
        return chosen, chosen - inverse, lower, upper

    # Under shard_map the initial values of the loop must vary over the devices as the scores do.
    one = jnp.ones_like(_classes.score_of_label(scores, labels).max())
    found = _search(advance, one, 0.0, one / _LARGEST, one * _LARGEST)
    return jnp.where(_classes.valid_examples(logits, labels).all(), 1.0 / found, jnp.nan)


@jax.jit
def _group_weights(logs: jax.Array, sizes: jax.Array, labels: jax.Array) -> jax.Array:
    """The minimum by Newton's steps within the bounds, damped as by Levenberg and Marquardt."""
    # Undamped ones overshoot, and with groups of one size the curvature is singular.
    scores = _below_0(logs)
    doublings = jnp.log2(jnp.maximum(sizes, 1).astype(scores.dtype))
    limits = jnp.finfo(scores.dtype)
    epsilon, tiny = float(limits.eps), float(limits.tiny)

    def terms_at(weights: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return _terms(weights[0] + weights[1] * doublings, scores, labels)

    def advance(
        weights: jax.Array, step: jax.Array, loss: jax.Array, damping: jax.Array
    ) -> tuple[jax.Array, ...]:
        _, slopes, curvatures = terms_at(weights)
        slope = jnp.stack([_mean(slopes), _mean(slopes * doublings)])
        one, crossed, other = (_mean(curvatures * doublings**power) for power in range(3))
        # A weight at 0 that would fall further stays there.
        free = (weights > 0.0) | (slope < 0.0)
        crossed = jnp.where(free.all(), crossed, 0.0)
        diagonal = jnp.where(free, jnp.stack([one, other]), 0.0)
        diagonal = jnp.where(free, diagonal + damping * diagonal.sum() + tiny, 1.0)
        slope = jnp.where(free, slope, 0.0)
        determinant = diagonal.prod() - crossed**2
        newton = crossed * slope[::-1] - diagonal[::-1] * slope
        newton = newton / jnp.where(determinant > 0.0, determinant, jnp.inf)
        tried = jnp.clip(weights + newton, 0.0, _LARGEST)
        found = _mean(terms_at(tried)[0])
        # Near the minimum, losses differ by their rounding only.
        better = found <= loss + epsilon * jnp.abs(loss)
        return (
            jnp.where(better, tried, weights),
            jnp.where(better, tried - weights, step),
            jnp.where(better, found, loss),
            jnp.where(better, 0.125 * damping, jnp.maximum(8.0 * damping, epsilon)),
        )

    one = jnp.ones_like(_classes.score_of_label(scores, labels).max())
    weights = jnp.stack([one, jnp.zeros_like(one)])
    found = _search(advance, weights, 1.0, _mean(terms_at(weights)[0]), 0.001 * one)
    valid = _classes.valid_examples(logs, labels).all() & (sizes > 0).all()
    return jnp.where(valid, found, jnp.nan)
