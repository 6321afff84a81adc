"""Conformal quantiles of clusters of classes with similar scores."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis
from topk_jax.sets import _quantiles

__all__ = ["clustered_quantiles"]

# A class is described by these quantiles of its scores.
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
_NUM_STARTS = 10
_MOST_STEPS = 300


@_class_axis.refuse_split
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

    A random part of the examples describes the classes, each by five quantiles of its scores, from
    0.5 to 0.9, of which a k-means with class weights :math:`\sqrt{n_c}` makes clusters. A class
    with an infinite one or with fewer than :math:`1 / \varepsilon - 1` examples in this part gets
    the quantile of all other examples. So do all classes if the remaining ones do not outnumber the
    clusters. The sets miss the examples of each cluster at a rate of at most :math:`\varepsilon`.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        key: one key of `jax.random.key`, for the part of the examples and the starts of k-means.
        num_clusters: the static number of clusters, at least 1. By default it is the authors'
            choice for the given labels, which then must not be traced: m K / (75 + K) / 2 rounded
            down, where m is the size of the smallest class, but at least 1 / error - 1, and K is
            the number of classes with m examples.
        clustering_part: the scalar part of the examples that describes the classes, in [0, 1); by
            default m K / (75 + K) rounded down, divided by m (the authors take K / (75 + K)), or 0
            if there are fewer than two clusters. It is given if and only if `num_clusters` is.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`; infinity for a cluster
        with too few examples; all are NaN if a traced `clustering_part` is outside [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import sets
        >>> labels = jnp.arange(400) % 4
        >>> scores = jax.random.uniform(jax.random.key(0), (400,))
        >>> scores = jnp.where(labels < 2, scores, scores + 1.0)
        >>> quantiles = sets.clustered_quantiles(
        ...     scores, labels, key=jax.random.key(1), error=0.1, num_clusters=2,
        ...     clustering_part=0.5, num_classes=4)
        >>> print((10 * quantiles).round())
        [ 9.  9. 19. 19.]

    Source: Ding et al. (2023), "Class-conditional conformal prediction with many classes".
    """
    calibration, num_classes = _quantiles.calibration_by_class(scores, labels, num_classes)
    key = _checks.random_keys(key, "key", ())
    rate = _checks.static_error(error)
    if (num_clusters is None) != (clustering_part is None):
        only = "clustering_part" if num_clusters is None else "num_clusters"
        raise ValueError(
            f"num_clusters and clustering_part must be given both or not at all, got only {only}."
        )
    if num_clusters is None or clustering_part is None:
        num_clusters, clustering_part = _authors_choice(labels, num_classes, rate)
    part = _checks.scalar(
        clustering_part, "clustering_part", calibration.scores.dtype, at_least=0, below=1
    )
    num_clusters = _checks.static_integer(num_clusters, "num_clusters", minimum=1)
    covered = _quantiles.covered_of_each_size(calibration.size, rate)
    return _clustered_quantiles(calibration, key, part, covered, num_clusters, num_classes)


def _authors_choice(labels: ArrayLike, num_classes: int, error: Fraction) -> tuple[int, float]:
    """The number of clusters and the part of the examples that describes the classes."""
    if isinstance(labels, jax.core.Tracer):
        raise TypeError(
            "num_clusters must be given under jit, because its default depends on the labels."
        )
    values = np.asarray(labels).reshape(-1)
    counts = np.bincount(values[(values >= 0) & (values < num_classes)], minlength=num_classes)
    if error == 0:
        return 1, 0.0
    smallest = max(int(counts.min()), math.ceil(1 / error - 1))
    num_described = int((counts >= smallest).sum())
    num_describing = smallest * num_described // (75 + num_described)
    return (num_describing // 2, num_describing / smallest) if num_describing >= 4 else (1, 0.0)


@partial(jax.jit, static_argnames=("num_clusters", "num_classes"))
def _clustered_quantiles(
    calibration: _quantiles.Calibration,
    key: jax.Array,
    part: jax.Array,
    covered: jax.Array,
    num_clusters: int,
    num_classes: int,
) -> jax.Array:
    """The quantiles of the classes. The cluster of the classes without one has the last number."""
    split_key, means_key = jax.random.split(key)
    labels = calibration.labels
    describes = jax.random.uniform(split_key, labels.shape, part.dtype) < part
    classes = _quantiles.group_scores(
        calibration, jnp.where(describes, labels, num_classes), num_classes
    )
    # With fewer examples the quantile of the class would be infinite.
    points = _descriptions(classes)
    # Infinite scores do not have distances: one such class would put all classes into one cluster.
    described = (covered[classes.sizes] <= classes.sizes) & jnp.isfinite(points).all(axis=-1)
    points = jnp.where(described[:, None], points, 0.0)
    weights = jnp.where(described, jnp.sqrt(classes.sizes.astype(points.dtype)), 0.0)
    clusters = _k_means(means_key, points, weights, num_clusters)
    enough = (num_clusters > 1) & (described.sum() > num_clusters)
    clusters = jnp.where(described & enough, clusters, num_clusters)

    beyond = num_clusters + 1
    of_examples = jnp.where(describes, beyond, clusters.at[labels].get(mode="clip"))
    of_clusters = _quantiles.group_scores(calibration, of_examples, num_clusters)
    quantiles = _quantiles.value_of_rank(of_clusters, covered[of_clusters.sizes])
    others = _quantiles.group_scores(calibration, describes.astype(int), 1)
    of_others = _quantiles.value_of_rank(others, covered[others.sizes])
    by_class = jnp.append(quantiles, of_others)[clusters]
    return jnp.where(calibration.valid & ~jnp.isnan(part), by_class, jnp.nan)


def _descriptions(classes: _quantiles.Groups) -> jax.Array:
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
    """The cluster of each weighted point [N, D] in the best of ten k-means from random starts.

    No dependency of the library has a k-means that can be compiled.
    """
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
        # All points have been drawn if none has a distance.
        odds = jnp.where(odds.sum() > 0.0, odds, weights)
        center = points[jax.random.categorical(key, jnp.log(odds))]
        return jnp.minimum(distances, ((points - center[None]) ** 2).sum(axis=-1)), center

    keys = jax.random.split(key, num_clusters)
    first = points[jax.random.categorical(keys[0], jnp.log(weights))]
    distances = ((points - first[None]) ** 2).sum(axis=-1)
    _, others = jax.lax.scan(draw, distances, keys[1:])
    return jnp.concatenate([first[None], others])
