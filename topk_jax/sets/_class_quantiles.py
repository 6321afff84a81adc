"""Conformal quantiles of each class, and of clusters of classes with similar scores."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax._classes import add_by_group
from topk_jax.sets import _quantiles

__all__ = [
    "class_conditional_quantiles",
    "clustered_quantiles",
    "interpolated_quantiles",
    "rank_calibrated_quantiles",
]

# A class is described by these quantiles of its scores.
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
_NUM_STARTS = 10
_MOST_STEPS = 300


def class_conditional_quantiles(
    scores: ArrayLike, labels: ArrayLike, *, error: float, num_classes: int | None = None
) -> jax.Array:
    r"""A conformal quantile for each class: the sets miss each class at a given rate.

    .. math::
        \hat q_c = \text{the } \lceil (n_c + 1)(1 - \varepsilon) \rceil
        \text{-th smallest score of the } n_c \text{ examples of class } c

    It is infinity for a class with fewer than :math:`1 / \varepsilon - 1` examples.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.

    Returns:
        One quantile per class, `[L]`.

    Example:
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(class_conditional_quantiles(scores, labels, error=0.25, num_classes=2))
        [0.75  inf]

    Source: Vovk (2012), "Conditional validity of inductive conformal predictors".
    """
    calibration = _quantiles.calibration_by_class(scores, labels, num_classes)
    covered = _covered_of_each_size(calibration.labels.size, _checks.static_error(error))
    return _class_conditional_quantiles(calibration, covered)


def interpolated_quantiles(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    weight: ArrayLike,
    largest_score: ArrayLike = 1.0,
    num_classes: int | None = None,
) -> jax.Array:
    r"""Quantiles between the quantiles of the classes and the quantile of all examples: Interp-Q.

    .. math:: q_c = t \, \min(\hat q_c, s_{\max}) + (1 - t) \, \hat q

    Here :math:`\hat q` is the `conformal_quantile` and :math:`\hat q_c` are the
    `class_conditional_quantiles`. A label is missed with a probability of at most
    :math:`2 \varepsilon`.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        weight: a scalar in [0, 1], the weight of the class (t above).
        largest_score: a finite scalar that no score exceeds; 1 for "lac" and "aps".

    Returns:
        One quantile per class, `[L]`.

    Example:
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(interpolated_quantiles(
        ...     scores, labels, error=0.25, weight=0.5, num_classes=2))
        [0.75  0.875]

    Source: Ding et al. (2025), "Conformal prediction for long-tailed classification".
    """
    calibration = _quantiles.calibration_by_class(scores, labels, num_classes)
    dtype, rate = calibration.scores.dtype, _checks.static_error(error)
    weight = _checks.scalar(weight, "weight", dtype, at_least=0, at_most=1)
    largest = _checks.scalar(largest_score, "largest_score", dtype)
    rank = _quantiles.num_covered(calibration.labels.size, rate)
    of_all = calibration.mark(_quantiles.value_of_rank(calibration.scores, rank))
    covered = _covered_of_each_size(calibration.labels.size, rate)
    of_classes = jnp.minimum(_class_conditional_quantiles(calibration, covered), largest)
    between = weight * of_classes + (1.0 - weight) * of_all
    # The mean of equal numbers can round below them, and would leave out scores that equal them.
    low, high = jnp.minimum(of_classes, of_all), jnp.maximum(of_classes, of_all)
    between = jnp.clip(between, low, high)
    # 0 times an infinite quantile is NaN.
    between = jnp.where(weight == 0.0, of_all, between)
    return jnp.where(weight == 1.0, of_classes, between)


def rank_calibrated_quantiles(
    scores: ArrayLike,
    ranks: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    num_classes: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    r"""Quantiles of the scores and of the ranks of each class: RC3P.

    With :math:`e_c^k` the part of the examples of class c whose label has a rank greater than k:

    .. math::
        k_c = \min \{ k : e_c^k < \varepsilon \}, \qquad
        \hat q_c = \text{the } \lceil (n_c + 1)(1 - \varepsilon + e_c^{k_c}) \rceil
        \text{-th smallest score}

    The sets are smaller than with `class_conditional_quantiles`, but :math:`e_c^k` is the rate of
    these examples and not of all: with 11 of a class, an error of 0.1 can become 2/12.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        ranks: their ranks, scores of kind "rank", of the same shape.

    Returns:
        The quantiles of the scores and of the ranks, both `[L]`, for
        `score_set(scores, quantiles) & score_set(ranks, rank_quantiles)`.

    Example:
        >>> scores, ranks = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([1.0, 1.0, 2.0, 1.0])
        >>> labels = jnp.array([0, 0, 0, 1])
        >>> print(*rank_calibrated_quantiles(scores, ranks, labels, error=0.5, num_classes=2))
        [inf 0.5] [1. 1.]

    Source: Shi et al. (2024), "Conformal prediction for class-wise coverage [...]", option II.
    """
    calibration = _quantiles.calibration_by_class(scores, labels, num_classes)
    if np.shape(ranks) != np.shape(scores):
        raise ValueError(
            f"ranks must have shape {np.shape(scores)}, as scores has, got {np.shape(ranks)}."
        )
    places = _quantiles.calibration_of(ranks, labels, name="ranks")
    rate, sizes = _checks.static_error(error), range(calibration.labels.size + 1)
    # Tables of exact integers by the size n of a class, because sums of floats can round to the
    # other side of an integer: the greatest m with m / n < error, and, as m beyond the rank make
    # ceil((n + 1)(1 - error) + m + m / n), the greatest m whose m / n adds nothing to the ceiling.
    part, whole = rate.numerator, rate.denominator
    allowed = np.array([-(-n * part // whole) - 1 for n in sizes])
    room = np.array([n * ((n + 1) * part % whole) // whole for n in sizes])
    covered = _covered_of_each_size(calibration.labels.size, rate)
    return _rank_calibrated_quantiles(calibration, places, covered, allowed, room)


def clustered_quantiles(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    key: jax.Array,
    error: float,
    num_clusters: int | None = None,
    clustering_part: float | None = None,
    num_classes: int | None = None,
) -> jax.Array:
    r"""A conformal quantile for each cluster of classes whose scores are distributed alike.

    .. math:: \hat q_c = \hat q \text{ of the other examples of the cluster of class } c

    A random part of the examples describes the classes by quantiles of their scores, for a k-means.
    A class with an infinite one or with fewer than :math:`1 / \varepsilon - 1` examples there gets
    the quantile of all other examples. So do all classes if the remaining ones do not outnumber the
    clusters.

    Args:
        scores, labels, error, num_classes, key: see `topk_jax.sets`.
        num_clusters: the static number of clusters, at least 1; by default, for labels that are not
            traced, m K / (75 + K) / 2 rounded down. Here m is the size of the smallest class, but
            at least 1 / error - 1, and K is the number of classes with m examples.
        clustering_part: the scalar part of the examples that describes the classes, in [0, 1), if
            and only if `num_clusters` is given; by default about K / (75 + K).

    Returns:
        One quantile per class, `[L]`; infinity for a cluster with too few examples.

    Example:
        >>> labels = jnp.arange(400) % 4
        >>> scores = jax.random.uniform(jax.random.key(0), (400,)) + (labels > 1).astype(float)
        >>> quantiles = clustered_quantiles(scores, labels, error=0.1, key=jax.random.key(1),
        ...     num_clusters=2, clustering_part=0.5, num_classes=4)
        >>> print((10 * quantiles).round())
        [ 9.  9. 19. 19.]

    Source: Ding et al. (2023), "Class-conditional conformal prediction with many classes".
    """
    calibration = _quantiles.calibration_by_class(scores, labels, num_classes)
    key = _checks.random_keys(key, "key", ())
    rate = _checks.static_error(error)
    if (num_clusters is None) != (clustering_part is None):
        only = "clustering_part" if num_clusters is None else "num_clusters"
        raise ValueError(
            f"num_clusters and clustering_part must be given both or not at all, got only {only}."
        )
    if num_clusters is None or clustering_part is None:
        num_clusters, clustering_part = _authors_choice(labels, calibration.num_classes, rate)
    dtype = calibration.scores.dtype
    part = _checks.scalar(clustering_part, "clustering_part", dtype, at_least=0, below=1)
    num_clusters = _checks.static_integer(num_clusters, "num_clusters", minimum=1)
    covered = _covered_of_each_size(calibration.labels.size, rate)
    return _clustered_quantiles(calibration, key, part, covered, num_clusters)


class _Groups(NamedTuple):
    """Scores by group: in ascending order within each, [n], and each group's start and size."""

    ascending: jax.Array
    starts: jax.Array
    sizes: jax.Array

    @classmethod
    def of(cls, scores: jax.Array, groups: jax.Array, num_groups: int) -> "_Groups":
        """The scores by group [n], none of them negative; those from `num_groups` up come last."""
        sizes = add_by_group(num_groups, groups, 1)
        _, ascending = jax.lax.sort((groups, scores), num_keys=2)
        return cls(ascending, jnp.cumsum(sizes) - sizes, sizes)

    def values_of_rank(self, ranks: jax.Array) -> jax.Array:
        """The `ranks`-th smallest score of each group, or infinity if it has fewer."""
        places = jnp.clip(self.starts + ranks - 1, 0, self.ascending.size - 1)
        return jnp.where(ranks > self.sizes, jnp.inf, self.ascending[places])


def _covered_of_each_size(num_examples: int, error: Fraction) -> np.ndarray:
    """How many of m examples a quantile must cover, for m from 0 to n."""
    part, whole = error.numerator, error.denominator
    return np.array([m - m * part // whole for m in range(1, num_examples + 2)])


@jax.jit
def _class_conditional_quantiles(
    calibration: _quantiles.Calibration, covered: jax.Array
) -> jax.Array:
    classes = _Groups.of(calibration.scores, calibration.labels, calibration.num_classes)
    return calibration.mark(classes.values_of_rank(covered[classes.sizes]))


@jax.jit
def _rank_calibrated_quantiles(
    calibration: _quantiles.Calibration,
    places: _quantiles.Calibration,
    covered: jax.Array,
    allowed: jax.Array,
    room: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The quantiles of scores and ranks, by tables of n + 1 integers."""
    labels, num_classes = calibration.labels, calibration.num_classes
    classes = _Groups.of(calibration.scores, labels, num_classes)
    of_ranks = places.scores.astype(calibration.scores.dtype)
    ranks = _Groups.of(of_ranks, labels, num_classes)
    sizes = classes.sizes
    # If not even 0 labels may be beyond a rank, -1 labels are allowed, and the limit is infinite.
    limits = ranks.values_of_rank(sizes - allowed[sizes])
    is_beyond = of_ranks > _classes.value_of_class(limits, labels)
    num_beyond = add_by_group(num_classes, labels, is_beyond.astype(sizes.dtype))
    rounded_up = (num_beyond > room[sizes]).astype(sizes.dtype)
    quantiles = classes.values_of_rank(num_beyond + covered[sizes] + rounded_up)
    both = replace(calibration, no_nan=calibration.no_nan & places.no_nan)
    return both.mark(quantiles), both.mark(limits)


def _authors_choice(labels: ArrayLike, num_classes: int, error: Fraction) -> tuple[int, float]:
    """The number of clusters and the part of the examples that describes the classes."""
    if isinstance(labels, jax.core.Tracer):
        raise TypeError(
            "num_clusters must be given under jit, because its default depends on the labels."
        )
    values = np.asarray(labels)
    counts = np.bincount(values[(values >= 0) & (values < num_classes)], minlength=num_classes)
    if error == 0:
        return 1, 0.0
    smallest = max(int(counts.min()), math.ceil(1 / error - 1))
    num_described = int((counts >= smallest).sum())
    num_describing = smallest * num_described // (75 + num_described)
    return (num_describing // 2, num_describing / smallest) if num_describing >= 4 else (1, 0.0)


@partial(jax.jit, static_argnames="num_clusters")
def _clustered_quantiles(
    calibration: _quantiles.Calibration,
    key: jax.Array,
    part: jax.Array,
    covered: jax.Array,
    num_clusters: int,
) -> jax.Array:
    """The quantiles of the classes. The cluster of the classes without one has the last number."""
    split_key, means_key = jax.random.split(key)
    scores, labels, num_classes = calibration.scores, calibration.labels, calibration.num_classes
    describes = jax.random.uniform(split_key, labels.shape, part.dtype) < part
    classes = _Groups.of(scores, jnp.where(describes, labels, num_classes), num_classes)
    # With fewer examples the quantile of the class would be infinite.
    points = _descriptions(classes)
    # Infinite scores do not have distances: one such class would put all classes into one cluster.
    described = (covered[classes.sizes] <= classes.sizes) & jnp.isfinite(points).all(axis=-1)
    points = jnp.where(described[:, None], points, 0.0)
    weights = jnp.where(described, jnp.sqrt(classes.sizes.astype(points.dtype)), 0.0)
    clusters = _k_means(means_key, points, weights, num_clusters)
    enough = (num_clusters > 1) & (described.sum() > num_clusters)
    clusters = jnp.where(described & enough, clusters, num_clusters)
    of_examples = jnp.where(describes, num_clusters + 1, clusters.at[labels].get(mode="clip"))
    of_clusters = _Groups.of(scores, of_examples, num_clusters)
    others = _Groups.of(scores, describes.astype(int), 1)
    quantiles = [each.values_of_rank(covered[each.sizes]) for each in (of_clusters, others)]
    by_class = jnp.concatenate(quantiles)[clusters]
    return calibration.mark(jnp.where(jnp.isnan(part), jnp.nan, by_class))


def _descriptions(classes: _Groups) -> jax.Array:
    """The quantiles of the scores of each class, linear between two scores, `[L, levels]`."""
    last = jnp.maximum(classes.sizes - 1, 0)[:, None]
    dtype = classes.ascending.dtype
    place = last.astype(dtype) * jnp.array(_LEVELS, dtype)[None]
    below = jnp.floor(place).astype(int)
    above = jnp.minimum(below + 1, last)
    lower, upper = (
        classes.ascending.at[classes.starts[:, None] + one].get(mode="clip")
        for one in (below, above)
    )
    part = place - below.astype(dtype)
    # 0 times an infinite difference is NaN.
    return jnp.where(part > 0, lower + part * (upper - lower), lower)


def _k_means(key: jax.Array, points: jax.Array, weights: jax.Array, num_clusters: int) -> jax.Array:
    """The cluster of each weighted point [N, D] in the best of ten k-means from random starts."""
    starts = jax.random.split(key, _NUM_STARTS)
    run = partial(_one_k_means, points=points, weights=weights, num_clusters=num_clusters)
    clusters, costs = jax.lax.map(run, starts)
    return clusters[costs.argmin()]


def _one_k_means(
    key: jax.Array, points: jax.Array, weights: jax.Array, num_clusters: int
) -> tuple[jax.Array, jax.Array]:
    """Lloyd's steps until no point changes its cluster; the clusters and their cost."""

    def distances(centers: jax.Array) -> jax.Array:
        return ((points[:, None] - centers[None]) ** 2).sum(axis=-1)

    def unfinished(state: tuple[jax.Array, ...]) -> jax.Array:
        _, clusters, before, steps = state
        return (clusters != before).any() & (steps < _MOST_STEPS)

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        centers, clusters, _, steps = state
        totals = jnp.zeros(num_clusters, weights.dtype).at[clusters].add(weights)[:, None]
        sums = jnp.zeros_like(centers).at[clusters].add(weights[:, None] * points)
        # A cluster without points stays where it is.
        centers = jnp.where(totals > 0.0, sums / jnp.where(totals > 0.0, totals, 1.0), centers)
        return centers, distances(centers).argmin(axis=-1), clusters, steps + 1

    centers = _spread_centers(key, points, weights, num_clusters)
    clusters = distances(centers).argmin(axis=-1)
    start: Any = (centers, clusters, jnp.full_like(clusters, -1), jnp.asarray(0))
    centers, clusters, _, _ = jax.lax.while_loop(unfinished, step, start)
    return clusters, (weights * distances(centers).min(axis=-1)).sum()


def _spread_centers(
    key: jax.Array, points: jax.Array, weights: jax.Array, num_clusters: int
) -> jax.Array:
    """Points drawn by weight and squared distance from those drawn before: k-means++."""

    def draw(distances: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        odds = weights * distances
        total = odds.sum()
        # No point was drawn before, or all.
        odds = jnp.where((total > 0.0) & (total < jnp.inf), odds, weights)
        center = points[jax.random.categorical(key, jnp.log(odds))]
        return jnp.minimum(distances, ((points - center[None]) ** 2).sum(axis=-1)), center

    farthest = jnp.full_like(weights, jnp.finfo(weights.dtype).max)
    _, centers = jax.lax.scan(draw, farthest, jax.random.split(key, num_clusters))
    return centers
