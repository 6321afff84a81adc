"""Losses of the size of sets: at a given average error, over all errors, at a point-wise error."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics, _ordinals, _platforms, _search
from topk_jax._compilation import compiled
from topk_jax.losses._label_scores import log_probabilities, measure
from topk_jax.losses._softmax import compute_cross_entropy

__all__ = ["pointwise_error", "size_at_average_error", "size_over_errors"]

# The number of sigmoids in memory at a time on accelerators.
_SIGMOIDS_AT_ONCE = 2**28


@_class_axis.allow_split(of="batch")
def size_at_average_error(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    error: ArrayLike,
    temperature: ArrayLike,
    conformity: Literal["log_probability", "logit"] = "log_probability",
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The mean size of soft sets that miss the labels of the batch at a given rate.

    .. math::
        \ell(Z, y) = \frac1n \sum_i \sum_j u_{ij}, \qquad
        u_{ij} = \sigma\Bigl(\frac{s_{ij} - t}T\Bigr), \qquad
        \frac1n \sum_i u_{i, y_i} = 1 - \varepsilon

    The second equation determines the threshold t, which the gradient goes through. With
    :math:`u' = u (1 - u) / T`,

    .. math::
        \frac{\partial \ell}{\partial s_{ij}}
        = \frac1n u'_{ij} \bigl(1 - \Lambda \, \mathbb 1\{j = y_i\}\bigr), \qquad
        \Lambda = \frac{\sum_{ij} u'_{ij}}{\sum_i u'_{i, y_i}}

    The expectation of the bracket over the label is :math:`1 - \Lambda \, p_j(x)`. So the scores of
    the classes that are more likely than :math:`1 / \Lambda` rise, and the others fall. It is the
    dual of the average-K loss: the rate is given, and the size is minimised.
    [Losses of sets](../sets_losses.md) has the derivation and what is proven. The gradient vanishes
    if all sets are certain, so add it to a cross-entropy.

    Args:
        logits: floating-point scores Z, `[..., L]`; all axes but the last are the batch of n
            examples.
        labels: integer classes, `[...]`.
        error: scalar rate :math:`\varepsilon` of missed labels, in (0, 1). May be traced.
        temperature: positive scalar T, in the units of the scores. May be traced.
        conformity: "log_probability" for s = log softmax(Z), as in the sets of "lac", or "logit"
            for s = Z, whose sets can be empty for some examples.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch; see `average_k` for the
            gradients.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        The mean size, a scalar from 0 to L in float32 or float64; NaN if a logit is NaN or +inf, or
        a label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[4.0, 0.0, 0.0], [2.0, 1.0, -2.0], [0.0, 0.0, 3.0]])
        >>> labels = jnp.array([0, 1, 2])
        >>> for error in (0.1, 0.4):
        ...     size = losses.size_at_average_error(logits, labels, error=error, temperature=0.1)
        ...     print(f"{size:.3f}")
        1.233
        0.735

    See Also:
        `conformal_training`, `pointwise_error`, `average_k`.

    Source: here; the problem is the average error of Garcin (2023), thesis, sections 2.2.1 and 6.1,
    and of Sadinle, Lei and Wasserman (2019).
    """
    found = measure(logits, labels, conformity, axis_name, class_axis_name)
    dtype = found.scores.dtype
    error = _checks.scalar(error, "error", dtype, above=0, below=1)
    temperature = _checks.scalar(temperature, "temperature", dtype, above=0)
    origin, threshold = _threshold(found.of_labels, 1 - error, temperature)
    sizes = _soft_sizes(found.scores - origin, threshold, temperature, class_axis_name)
    sizes = _numerics.nan_where_invalid(sizes, found.logits, found.labels, class_axis_name)
    return _numerics.batch_mean(sizes, axis_name)


@_class_axis.allow_split(of="batch")
def size_over_errors(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    temperature: ArrayLike,
    conformity: Literal["log_probability", "logit"] = "log_probability",
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The mean size of soft sets over all errors: each label's score is a threshold.

    .. math::
        \ell(Z, y) = \frac1{n^2} \sum_{i, k} \sum_j
        \sigma\Bigl(\frac{s_{kj} - s_{i, y_i}}T\Bigr)

    For small T, a sum over j is the size of the set of example k at the threshold that just
    contains label i. It is also L times the chance that a random class of a random example
    conforms better than the label of another one. So it needs no error. Time grows with
    :math:`n^2 L`, memory with n L.

    With `scale_gaps` between a finished classifier and this loss it trains the adapter of
    C-Adapter, which keeps the order of the classes of each example; see
    [Losses of sets](../sets_losses.md).

    Args:
        logits: floating-point scores Z, `[..., L]`; all axes but the last are the batch of n
            examples.
        labels: integer classes, `[...]`.
        temperature: positive scalar T, in the units of the scores. May be traced.
        conformity: "log_probability" for s = log softmax(Z), as in the sets of "lac", or "logit"
            for s = Z.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch; see `average_k` for the
            gradients.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        The mean size, a scalar from 0 to L in float32 or float64; NaN if a logit is NaN or +inf, or
        a label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[4.0, 0.0, 0.0], [2.0, 1.0, -2.0], [0.0, 0.0, 3.0]])
        >>> print(losses.size_over_errors(logits, jnp.array([0, 1, 2]), temperature=0.1).round(2))
        0.63

    See Also:
        `size_at_average_error`, `scale_gaps`, `conformal_training`.

    Source: Liu et al. (2024), "C-Adapter: adapting deep classifiers for efficient conformal
    prediction sets".
    """
    found = measure(logits, labels, conformity, axis_name, class_axis_name)
    temperature = _checks.scalar(temperature, "temperature", found.scores.dtype, above=0)

    sizes = _sizes_over(found.scores, found.of_labels, temperature, class_axis_name)
    sizes = sizes / found.of_labels.size
    sizes = _numerics.nan_where_invalid(sizes, found.logits, found.labels, class_axis_name)
    return _numerics.batch_mean(sizes, axis_name)


@_class_axis.allow_split()
def pointwise_error(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    thresholds: ArrayLike,
    error: ArrayLike,
    weight: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy, and a quantile loss of thresholds that differ by example.

    .. math::
        \ell(z, t, y) = -\log p_y + w \, \rho_\varepsilon(\overline{\log p_y} - t), \qquad
        \rho_\varepsilon(u) = \max\bigl(\varepsilon u, (\varepsilon - 1) u\bigr), \qquad
        p = \mathrm{softmax}(z)

    No gradient flows through the logarithm under the bar. The gradient is

    .. math::
        \frac{\partial \ell}{\partial z_j} = p_j - \mathbb 1\{j = y\}, \qquad
        \frac{\partial \ell}{\partial t} = w \bigl(\mathbb 1\{\log p_y < t\} - \varepsilon\bigr)

    The set of an example is :math:`\{j : \log p_j \ge t(x)\}`. The expected loss is minimal if p is
    the law of the label and t(x) is the :math:`\varepsilon`-quantile of :math:`\log p_Y` under it.
    This set is the smallest one that misses the label with a probability of at most
    :math:`\varepsilon` for this x; see [Losses of sets](../sets_losses.md). `adaptive_set` computes
    its threshold from the probabilities instead, and is right only as far as they are. A threshold
    is learnt from the labels, by one more output of the network.

    Args:
        logits: floating-point scores z, `[..., L]`; -inf masks a class. The label of a masked class
            costs about 1e30.
        labels: integer classes, `[...]`.
        thresholds: real thresholds t(x) of the log-probabilities, `[...]`.
        error: scalar rate :math:`\varepsilon` of missed labels for each x, in (0, 1). May be
            traced.
        weight: scalar weight w of the quantile loss, at least 0.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits, threshold and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, the
        threshold is NaN, or the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, or shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
        >>> thresholds, labels = jnp.array([-2.0, -2.0]), jnp.array([0, 2])
        >>> loss = losses.pointwise_error(logits, labels, thresholds=thresholds, error=0.1)
        >>> print([f"{value:.3f}" for value in loss])
        ['0.567', '2.774']

    See Also:
        `size_at_average_error`, `adaptive_set`, `cross_entropy`.

    Source: here; the problem is the point-wise error of Garcin (2023), thesis, sections 2.2.1, 4.5
    and 6.1. Koenker and Bassett (1978), "Regression quantiles", for the quantile loss.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    dtype = scores.dtype
    thresholds = _checks.real_array(thresholds, "thresholds", labels.shape, dtype)
    _, thresholds = _checks.zero_elsewhere(where, scores, thresholds)
    error = _checks.scalar(error, "error", dtype, above=0, below=1)
    weight = _checks.scalar(weight, "weight", dtype, at_least=0)
    # The gradient of the cross-entropy does not depend on them, so the scores carry their NaN.
    scores = _numerics.nan_unless(~jnp.isnan(error + weight), scores)
    of_classes = log_probabilities(_numerics.finite_scores(scores), class_axis_name)
    of_label = _numerics.score_of_label(of_classes, labels, class_axis_name)
    gaps = jax.lax.stop_gradient(of_label) - thresholds
    quantile = jnp.where(gaps < 0, (error - 1) * gaps, error * gaps)
    losses = compute_cross_entropy(scores, labels, class_axis_name) + weight * quantile
    return _numerics.zero_left_out(losses, where)


@compiled
def _sizes_over(
    scores: jax.Array,
    thresholds: jax.Array,
    temperature: jax.Array,
    class_axis_name: Hashable | None,
) -> jax.Array:
    """The soft sizes of scores [..., L], summed over thresholds [n]: `[...]`.

    Hazard: for n thresholds there are n sigmoids of each score. Choice: one threshold at a time,
    whose sigmoids are computed again for the gradient. On accelerators several at a time, because a
    loop takes longer than its passes, and sums do not store their terms. Cost: a third.
    """

    @jax.checkpoint
    def sizes_at(threshold: jax.Array) -> jax.Array:
        gaps = scores - threshold
        return _soft_sizes(gaps, jnp.zeros_like(threshold), temperature, class_axis_name)

    def one_by_one(thresholds: jax.Array) -> jax.Array:
        def add(sizes: jax.Array, threshold: jax.Array) -> tuple[jax.Array, None]:
            return sizes + sizes_at(threshold), None

        return jax.lax.scan(add, jnp.zeros_like(sizes_at(thresholds[0])), thresholds)[0]

    def in_blocks(thresholds: jax.Array) -> jax.Array:
        of_block = jax.checkpoint(_sum_of_memberships)

        def add(sizes: jax.Array, block: jax.Array) -> tuple[jax.Array, None]:
            return sizes + of_block(scores, block, temperature), None

        size = max(1, min(_SIGMOIDS_AT_ONCE // scores.size, thresholds.size))
        left = thresholds.size % size
        sizes = of_block(scores, thresholds[:left], temperature)
        sizes = jax.lax.scan(add, sizes, thresholds[left:].reshape(-1, size))[0]
        return _classes.sum_devices(sizes, class_axis_name)

    # In a program of `jax.export` for any number of examples, the memory is not known.
    is_known = isinstance(scores.size, int) and isinstance(thresholds.size, int)
    return _platforms.choose(
        thresholds, cpu=one_by_one, default=in_blocks if is_known else one_by_one
    )


@jax.custom_jvp
def _sum_of_memberships(
    scores: jax.Array, thresholds: jax.Array, temperature: jax.Array
) -> jax.Array:
    """The soft memberships of scores [..., L], summed over thresholds [m] and classes: `[...]`."""
    gaps = scores[..., None] - _at_the_end(thresholds, scores.ndim)
    return jax.nn.sigmoid(gaps / temperature).sum(axis=(-2, -1))


@_sum_of_memberships.defjvp
def _sum_of_memberships_jvp(
    primals: tuple[jax.Array, jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The derivatives as sums over one axis each.

    Hazard: XLA stores the slopes of all sigmoids if several sums use them. Choice: compute them
    again for each sum; a barrier keeps XLA from noticing. Cost: one sigmoid for each.
    """
    scores, thresholds, temperature = primals

    def slopes(gaps: jax.Array, temperature: jax.Array) -> jax.Array:
        memberships = jax.nn.sigmoid(gaps / temperature)
        return memberships * (1 - memberships) / temperature

    def hidden() -> tuple[jax.Array, jax.Array, jax.Array]:
        again: tuple[jax.Array, jax.Array, jax.Array] = jax.lax.optimization_barrier(primals)
        return again

    gaps = scores[..., None] - _at_the_end(thresholds, scores.ndim)
    tangent = (slopes(gaps, temperature).sum(axis=-1) * tangents[0]).sum(axis=-1)
    scores, thresholds, temperature = hidden()
    # One row for each threshold: XLA takes half a minute to compile the other order for a GPU.
    columns = (-1, *[1] * scores.ndim)
    of_thresholds = slopes(scores[None] - thresholds.reshape(columns), temperature).sum(axis=-1)
    tangent -= (of_thresholds * tangents[1].reshape(columns[:-1])).sum(axis=0)
    scores, thresholds, temperature = hidden()
    gaps = scores[..., None] - _at_the_end(thresholds, scores.ndim)
    of_temperature = (slopes(gaps, temperature) * gaps / temperature).sum(axis=(-2, -1))
    return _sum_of_memberships(*primals), tangent - of_temperature * tangents[2]


def _at_the_end(numbers: jax.Array, batch_ndim: int) -> jax.Array:
    """The numbers [m] with an axis of size 1 in front for each axis of the batch."""
    return numbers.reshape(*[1] * batch_ndim, -1)


def _soft_sizes(
    scores: jax.Array,
    threshold: jax.Array,
    temperature: jax.Array,
    class_axis_name: Hashable | None,
) -> jax.Array:
    """The sum over the classes of the soft memberships of scores [..., L], `[...]`."""
    memberships = jax.nn.sigmoid((scores - threshold) / temperature)
    return _classes.sum_classes(memberships, class_axis_name)


def _threshold(
    of_labels: jax.Array, coverage: jax.Array, temperature: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The threshold as an origin and a rest; the gradient goes through the rest.

    Hazard: at scores of 1e4, a threshold in float32 is rounded by more than a small temperature.
    Choice: a first search finds the threshold up to rounding. A second one among the differences to
    it finds the rest, with all digits. Cost: two searches.
    """
    origin = _root(*jax.lax.stop_gradient((of_labels, coverage, temperature)))
    return origin, _root(of_labels - origin, coverage, temperature)


@jax.custom_jvp
@compiled
def _root(gaps: jax.Array, coverage: jax.Array, temperature: jax.Array) -> jax.Array:
    """The t at which the mean of sigmoid((gaps - t) / T) of gaps [n] is the coverage.

    The mean falls in t, and the root is between the smallest and the largest gap, both minus T
    logit of the coverage. It is searched in the order of the floats.
    """
    shift = temperature * (jnp.log(coverage) - jnp.log1p(-coverage))
    slack = 1 + 8 * float(jnp.finfo(gaps.dtype).eps)
    lower, upper = gaps.min() - shift, gaps.max() - shift
    reach = (slack - 1) * jnp.maximum(jnp.abs(lower), jnp.abs(upper))
    bounds = tuple(_ordinals.to_ordinals(bound) for bound in (lower - reach, upper + reach))

    def covers(ordinal: jax.Array) -> jax.Array:
        threshold = _ordinals.to_floats(ordinal, gaps.dtype)
        return jax.nn.sigmoid((gaps - threshold) / temperature).mean() >= coverage

    # Under shard_map the bounds vary as the gaps do.
    return _ordinals.to_floats(_search.last_where(covers, *bounds), gaps.dtype)


@_root.defjvp
def _root_jvp(
    primals: tuple[jax.Array, jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The derivative of the implicit function, in closed form.

    With the slopes v of the sigmoids and their shares w of the sum of v, dt = sum w (dgap -
    (gap - t) dT / T) - n T dcoverage / sum v. Hazard: if all sigmoids are 0 or 1, all slopes round
    to 0, and so does their sum. Choice: the softmax of their logarithms; a finite number for an
    infinite slope in the coverage. Cost: two logarithms per example.
    """
    gaps, _, temperature = primals
    slope, of_coverage, of_temperature = tangents
    threshold = _root(*primals)
    scaled = (gaps - threshold) / temperature
    log_slopes = jax.nn.log_sigmoid(scaled) + jax.nn.log_sigmoid(-scaled)
    moved = (jax.nn.softmax(log_slopes) * (slope - scaled * of_temperature)).sum()
    per_slope = jnp.exp(-jax.nn.logsumexp(log_slopes))
    per_slope = jnp.minimum(per_slope, float(jnp.finfo(gaps.dtype).max) / gaps.size)
    return threshold, moved - gaps.size * per_slope * temperature * of_coverage
