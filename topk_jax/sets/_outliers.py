"""How unusual an example is: from its logits, or from its features and the training features."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics, _sharding
from topk_jax._entries import add_by_group, map_rows
from topk_jax.operators import _top_k

__all__ = ["class_gaussian", "mahalanobis_scores", "neighbor_scores", "outlier_scores"]

_KINDS = ("energy", "logit", "probability")
# About as many distances are in memory at a time.
_BLOCK = 2**22
# The vectors whose distances are computed besides the k that are asked for.
_SPARE = 4


@_class_axis.allow_split()
def outlier_scores(
    logits: ArrayLike, *, kind: str, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""How unusual an example is, from its logits.

    .. math::
        \text{energy:} \quad & -\log \sum_l e^{s_l} \\
        \text{logit:} \quad & -\max_l s_l \\
        \text{probability:} \quad & 1 - \max_l p_l, \quad p = \mathrm{softmax}(s)

    Args:
        class_axis_name: see `topk_jax.sets`.
        logits: floating-point scores, larger for likelier classes, `[..., L]`.
        kind: "energy", "logit" or "probability".

    Returns:
        One score for each example, `[...]`; NaN where a logit is NaN or +inf.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.outlier_scores(jnp.array([[4.0, 1.0], [0.0, 0.0]]), kind="logit"))
        [-4. -0.]

    Source: Liu et al. (2020), "Energy-based out-of-distribution detection"; Hendrycks and Gimpel
    (2017), "A baseline for detecting misclassified and out-of-distribution examples", for the
    probability; Vaze et al. (2022), "Open-set recognition: a good closed-set classifier is all you
    need?", for the logit.
    """
    values = _checks.floating_array(logits, "logits")
    kind = _checks.choice(kind, "kind", _KINDS)
    found = _outlier_scores(values, kind, class_axis_name)
    return _numerics.nan_where_invalid_scores(found, values, class_axis_name)


def neighbor_scores(features: ArrayLike, known_features: ArrayLike, *, k: int) -> jax.Array:
    r"""How unusual an example is, from the distances of its features to known ones.

    .. math:: u(x) = \text{the } k\text{-th smallest of } \lVert x - x_j \rVert, \; j = 1, \dots, m

    An example that is among the known ones is its own nearest neighbour. A block of the distances
    is in memory at a time. In groups of features that are a thousand times as far from each other
    as their own members are, float32 may take another member for the neighbour.

    Args:
        features: floating-point, `[..., d]`; often divided by their lengths before.
        known_features: features of examples of known classes, `[m, d]`.
        k: static number of neighbours, from 1 to m.

    Returns:
        One distance for each example, `[...]`; NaN where a feature is NaN. All are NaN if a known
        feature is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> known = jnp.array([[0.0, 0.0], [0.0, 2.0], [8.0, 0.0]])
        >>> print(sets.neighbor_scores(jnp.array([[0.0, 1.0], [8.0, 8.0]]), known, k=2))
        [ 1. 10.]

    Source: Sun et al. (2022), "Out-of-distribution detection with deep nearest neighbors".
    """
    values = _checks.floating_array(features, "features")
    known = _vectors(known_features, "known_features", values)
    k = _checks.rank(k, known.shape[0], reason="the number of known examples")
    return _distances(values, known, jnp.ones(known.shape[0], jnp.bool_), k)


def class_gaussian(
    features: ArrayLike, labels: ArrayLike, *, num_classes: int, shrinkage: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    r"""The means of the features of the classes, and a whitening of the covariance they share.

    .. math::
        \mu_c = \frac{1}{n_c} \sum_{i : y_i = c} x_i, \qquad
        \Sigma = \frac{1}{n} \sum_i (x_i - \mu_{y_i})(x_i - \mu_{y_i})^\top, \qquad
        W^\top W = \Big( (1 - \rho) \Sigma + \rho \frac{\mathrm{tr}\, \Sigma}{d} I \Big)^{-1}

    With fewer examples than features, only a shrinkage :math:`\rho` above 0 has an inverse.

    Args:
        labels: see `topk_jax.sets`.
        features: floating-point features of examples of known classes, `[..., d]`.
        num_classes: the static number L of classes.
        shrinkage: :math:`\rho`, a real scalar, at least 0 and at most 1.

    Returns:
        The means, `[L, d]`, and the whitening W, a lower triangular matrix `[d, d]`. The mean of a
        class without examples is infinity. All are NaN if a feature is NaN or a label is outside
        [0, L); W is NaN if no inverse exists.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> features = jnp.array([[1.0, 0.0], [3.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
        >>> means, whitening = sets.class_gaussian(
        ...     features, jnp.array([0, 0, 1, 1]), num_classes=2, shrinkage=0.0)
        >>> print(means, whitening.diagonal())
        [[2. 0.]
         [0. 6.]] [1.4142135  0.70710677]

    Source: Lee et al. (2018), "A simple unified framework for detecting out-of-distribution samples
    and adversarial attacks", section 2.1.
    """
    values, labels = _checks.logits_and_labels(features, labels, name="features")
    _checks.some_examples(values, "features")
    num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    share = _checks.scalar(shrinkage, "shrinkage", values.dtype, at_least=0, at_most=1)
    return _class_gaussian(num_classes, values, labels, share)


def mahalanobis_scores(features: ArrayLike, means: ArrayLike, whitening: ArrayLike) -> jax.Array:
    r"""How unusual an example is, from the distances of its features to the means of the classes.

    .. math:: u(x) = \min_c \lVert W (x - \mu_c) \rVert

    Args:
        features: floating-point, `[..., d]`.
        means: the means of the classes, `[L, d]`. A class whose mean is infinity has no distance.
        whitening: the matrix W, `[d, d]`.

    Returns:
        One distance for each example, `[...]`; infinity without any class, and NaN where a feature
        is NaN. All are NaN if a mean or an entry of W is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> means, whitening = jnp.array([[0.0, 0.0], [0.0, 8.0]]), jnp.diag(jnp.array([2.0, 0.5]))
        >>> print(sets.mahalanobis_scores(jnp.array([[0.0, 2.0], [1.0, 8.0]]), means, whitening))
        [1. 2.]

    Source: Lee et al. (2018), section 2.1.
    """
    values = _checks.floating_array(features, "features")
    centres = _vectors(means, "means", values)
    matrix = _vectors(whitening, "whitening", values)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"whitening must be a square matrix, got shape {matrix.shape}.")
    present = ~jnp.isinf(centres).any(axis=-1)
    # Differences before the product: features far from 0 would lose their last digits in it.
    number = jnp.maximum(present.sum(dtype=centres.dtype), 1)
    origin = jnp.where(present[:, None], centres, 0).sum(axis=0) / number

    def whiten(vectors: jax.Array) -> jax.Array:
        differences = vectors - jnp.broadcast_to(origin, vectors.shape)
        return jnp.dot(differences, matrix.T, precision=jax.lax.Precision.HIGHEST)

    centres = whiten(jnp.where(present[:, None], centres, 0))
    return _distances(whiten(values), centres, present, 1)


@partial(jax.jit, static_argnums=(1, 2))
def _outlier_scores(logits: jax.Array, kind: str, name: Hashable | None) -> jax.Array:
    scores = _numerics.finite_scores(logits)
    if kind == "energy":
        return -_classes.log_sum_exp(scores, name)
    largest = jax.lax.stop_gradient(_classes.max_classes(scores, name, keepdims=True))
    is_largest = scores == largest
    ties = _classes.sum_classes(is_largest, name, keepdims=True, dtype=scores.dtype)
    # A maximum over devices does not have a gradient. This 0 has it, and equal logits share it.
    own = jnp.where(is_largest, scores - largest, 0)
    largest += _classes.sum_classes(own, name, keepdims=True) / jnp.maximum(ties, 1)
    if kind == "logit":
        return -largest[..., 0]
    # 1 - p = r / (1 + r), with r the sum of exp(s - max) of all classes but one largest: for
    # confident examples p is 1 in float32.
    others = jnp.where(is_largest, 0, jnp.exp(scores - largest))
    rest = _classes.sum_classes(others, name) + (ties[..., 0] - 1)
    return rest / (1 + rest)


@partial(jax.jit, static_argnums=0)
def _class_gaussian(
    num_classes: int, features: jax.Array, labels: jax.Array, shrinkage: jax.Array
) -> tuple[jax.Array, jax.Array]:
    size = features.shape[-1]
    is_class = (labels >= 0) & (labels < num_classes)
    index = jnp.where(is_class, labels, num_classes)

    def counts_of(index: jax.Array) -> jax.Array:
        return add_by_group(num_classes, index.reshape(-1), 1)

    def differences(index: jax.Array, features: jax.Array, means: jax.Array) -> jax.Array:
        return features.reshape(-1, size) - means.at[index.reshape(-1)].get(mode="clip")

    def sums_of(index: jax.Array, features: jax.Array, means: jax.Array) -> jax.Array:
        rows = differences(index, features, means)
        return jnp.zeros_like(means).at[index.reshape(-1)].add(rows, mode="drop")

    def products_of(index: jax.Array, features: jax.Array, means: jax.Array) -> jax.Array:
        rows = differences(index, features, means)
        return jnp.matmul(rows.T, rows, precision=jax.lax.Precision.HIGHEST)

    counts = _sharding.sum_examples(counts_of, index)
    number = jnp.maximum(counts, 1)[:, None].astype(features.dtype)
    # The sum of a million features in float32 loses three digits: once more the sum of what differs
    # from the mean.
    means = jnp.zeros((num_classes, size), features.dtype)
    for _ in range(2):
        means += _sharding.sum_examples(sums_of, index, features, shared=(means,)) / number
    # Products of features minus a product of means would cancel.
    products = _sharding.sum_examples(products_of, index, features, shared=(means,))
    covariance = products / counts.sum().astype(features.dtype)
    # If features are constant within classes, the distance is the distance of the plain features.
    trace = jnp.trace(covariance)
    spread = shrinkage * jnp.where(trace == 0, 1, trace / size)
    shrunk = (1 - shrinkage) * covariance + spread * jnp.eye(size, dtype=covariance.dtype)
    valid = is_class.all() & ~jnp.isnan(shrunk).any()
    means = jnp.where(counts[:, None] > 0, means, jnp.inf)
    return _numerics.nan_unless(valid, means), _numerics.nan_unless(valid, _whitening(shrunk))


def _whitening(matrix: jax.Array) -> jax.Array:
    """The inverse W of the Cholesky factor, so that W^T W is the inverse of the matrix.

    By Gauss elimination: kernels of factorizations belong to one platform each.
    """
    size = matrix.shape[0]

    def eliminate(step: jax.Array, both: jax.Array) -> jax.Array:
        root = jnp.sqrt(both[step, step])
        row = both[step] / root
        factors = jnp.where(jnp.arange(size) > step, both[:, step] / root, 0)
        return (both - factors[:, None] * row[None]).at[step].set(row)

    both = jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1)
    return jax.lax.fori_loop(0, size, eliminate, both)[:, size:]


def _vectors(array: ArrayLike, name: str, features: jax.Array) -> jax.Array:
    """Returns a matrix with one column for each feature, on each device, or raises."""
    rows = _checks.floating_array(array, name)
    if rows.ndim != 2 or rows.shape[1] != features.shape[-1]:
        raise ValueError(
            f"{name} must be a matrix of {features.shape[-1]} columns, got shape {rows.shape}."
        )
    return _sharding.gather(rows.astype(features.dtype))


def _distances(values: jax.Array, known: jax.Array, present: jax.Array, k: int) -> jax.Array:
    """The k-th smallest distance of values [..., d] to the rows [m, d] that are present."""
    found = _sharding.map_examples(
        partial(_kth_distances, k), values.ndim - 1, values, shared=(known, present)
    )
    valid = ~jnp.isnan(values).any(axis=-1) & ~jnp.isnan(known).any()
    return _numerics.nan_unless(valid, found)


@partial(jax.jit, static_argnums=0)
def _kth_distances(k: int, values: jax.Array, known: jax.Array, present: jax.Array) -> jax.Array:
    """The same on one device.

    A product of matrices, |y|^2 - 2 x y, has the order of the distances, but its terms cancel near
    0 and far from the mean. So it only chooses a few more vectors than are asked for, whose
    distances are computed from differences.
    """
    rows = values.reshape(-1, values.shape[-1])
    number, size = known.shape
    origin = known.sum(axis=0) / number
    candidates = min(number, k + _SPARE)
    vectors = known - origin[None]
    squares = jnp.where(present, (vectors**2).sum(axis=-1), jnp.inf)

    def of_row(row: jax.Array) -> jax.Array:
        product = jnp.matmul(vectors, row - origin, precision=jax.lax.Precision.HIGHEST)
        nearness, places = _top_k.select_largest(2 * product - squares, candidates)
        distances = ((row[None] - known[places]) ** 2).sum(axis=-1)
        distances = jnp.where(nearness == -jnp.inf, jnp.inf, distances)
        return jnp.sqrt(-_top_k.select_largest(-distances, k)[0][-1])

    # A program of `jax.export` for any number of rows does not have blocks.
    is_any_number = not isinstance(rows.size, int)
    block = max(1, _BLOCK // max(number, candidates * size))
    in_blocks = partial(jax.lax.map, of_row, batch_size=block)
    of_rows = partial(map_rows, of_row) if is_any_number else in_blocks
    return of_rows(rows).reshape(values.shape[:-1])
