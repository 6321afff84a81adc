"""New classes: how unusual an example is, p-values for it, and sets with a symbol for them."""

import math
from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _sharding
from topk_jax._classes import add_by_group, map_rows
from topk_jax.operators import _top_k
from topk_jax.sets._quantiles import vector_of_scores

__all__ = [
    "class_gaussian",
    "good_turing_p_value",
    "mahalanobis_scores",
    "neighbor_scores",
    "new_class_p_values",
    "new_class_threshold",
    "open_set",
    "outlier_scores",
]

# About as many distances are in memory at a time.
_BLOCK = 2**22
# The vectors whose distances are computed besides the k that are asked for.
_SPARE = 4


@_sharding.allow_split()
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
        >>> print(outlier_scores(jnp.array([[4.0, 1.0], [0.0, 0.0]]), kind="logit"))
        [-4. -0.]

    Source: Liu et al. (2020), energy; Hendrycks and Gimpel (2017); Vaze et al. (2022), logit.
    """
    values = _checks.floating_array(logits, "logits")
    kind = _checks.choice(kind, "kind", ("energy", "logit", "probability"))
    found = _outlier_scores(values, kind, class_axis_name)
    return _classes.nan_where_invalid_scores(found, values, class_axis_name)


def neighbor_scores(features: ArrayLike, known_features: ArrayLike, *, k: int) -> jax.Array:
    r"""How unusual an example is, from the distances of its features to known ones.

    .. math:: u(x) = \text{the } k\text{-th smallest of } \lVert x - x_j \rVert, \; j = 1, \dots, m

    An example that is among the known ones is its own nearest neighbour.

    Args:
        features: see `topk_jax.sets`; often divided by their lengths before.
        known_features: features of examples of known classes, `[m, d]`.
        k: static number of neighbours, from 1 to m.

    Returns:
        One distance for each example, `[...]`; NaN where a feature is NaN. All are NaN if a known
        feature is NaN.

    Example:
        >>> known = jnp.array([[0.0, 0.0], [0.0, 2.0], [8.0, 0.0]])
        >>> print(neighbor_scores(jnp.array([[0.0, 1.0], [8.0, 8.0]]), known, k=2))
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

    Args:
        features, labels, num_classes: see `topk_jax.sets`.
        shrinkage: :math:`\rho`, a scalar in [0, 1]; above 0 with fewer examples than features.

    Returns:
        The means, `[L, d]`, infinity for a class without examples, and the whitening W, a lower
        triangular matrix `[d, d]`, NaN if no inverse exists. All are NaN if a feature is NaN or a
        label is outside [0, L).

    Example:
        >>> features, labels = jnp.array([[1.0], [3.0], [4.0], [8.0]]), jnp.array([0, 0, 1, 1])
        >>> means, whitening = class_gaussian(features, labels, num_classes=2, shrinkage=0.0)
        >>> print(means.T, whitening)
        [[2. 6.]] [[0.6324555]]

    Source: Lee et al. (2018), "A simple unified framework for detecting out-of-distribution [...]".
    """
    values, labels = _example.logits_and_labels(features, labels, name="features")
    _checks.some_examples(values, "features")
    num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    share = _checks.scalar(shrinkage, "shrinkage", values.dtype, at_least=0, at_most=1)
    return _class_gaussian(num_classes, values, labels, share)


def mahalanobis_scores(features: ArrayLike, means: ArrayLike, whitening: ArrayLike) -> jax.Array:
    r"""How unusual an example is, from the distances of its features to the means of the classes.

    .. math:: u(x) = \min_c \lVert W (x - \mu_c) \rVert

    Args:
        features: see `topk_jax.sets`.
        means: the means of the classes, `[L, d]`. A class whose mean is infinity has no distance.
        whitening: the matrix W, `[d, d]`.

    Returns:
        One distance for each example, `[...]`; infinity without any class, and NaN where a feature
        is NaN. All are NaN if a mean or an entry of W is NaN.

    Example:
        >>> means, whitening = jnp.array([[0.0, 0.0], [0.0, 8.0]]), jnp.diag(jnp.array([2.0, 0.5]))
        >>> print(mahalanobis_scores(jnp.array([[0.0, 2.0], [1.0, 8.0]]), means, whitening))
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


def good_turing_p_value(class_counts: ArrayLike) -> jax.Array:
    r"""A p-value for "the next label is of a new class", from how often each class was seen.

    .. math:: p = \frac{M_1 + 1}{n + 1}

    Here :math:`M_1` is the number of classes that were seen once, and n the number of labels.

    Args:
        class_counts: the number of labels of each class, integers of at least 0, `[L]`.

    Returns:
        The p-value, a scalar; NaN if a traced count is negative.

    Example:
        >>> print(good_turing_p_value([4, 1, 3, 1, 0]))
        0.3

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification".
    """
    counts = _checks.training_counts(class_counts, "class_counts")
    dtype = jnp.result_type(float)
    p_value = ((counts == 1).sum() + 1).astype(dtype) / (counts.astype(dtype).sum() + 1)
    return _classes.nan_unless((counts >= 0).all(), p_value)


def new_class_p_values(
    outlier_scores: ArrayLike, calibration_outlier_scores: ArrayLike, seen_once: ArrayLike
) -> jax.Array:
    r"""P-values for "this example is of a new class", from scores of how unusual it is.

    .. math::
        p(x) = \frac{1 + |\{ i : y_i \text{ was seen once}, \; u(x_i) \le u(x) \}|}{n + 1}

    u must not depend on the examples of classes that were seen once: fit it with the others.

    Args:
        outlier_scores: u, floating-point and smaller for usual examples, `[...]`.
        calibration_outlier_scores: u of the n calibration examples, `[n]`.
        seen_once: whether no other calibration example has the class of this one, booleans `[n]`.

    Returns:
        One p-value per example, `[...]`; NaN where a score is NaN. All are NaN if a calibration
        score is NaN.

    Example:
        >>> known, once = jnp.array([0.1, 0.9, 0.7]), jnp.array([False, True, True])
        >>> print(new_class_p_values(jnp.array([0.3, 0.8, 1.0]), known, once))
        [0.25 0.5  0.75]

    Source: Xie et al. (2025), section 3.
    """
    values = _checks.floating_numbers(outlier_scores, "outlier_scores")
    ascending, number, valid = _seen_once(calibration_outlier_scores, seen_once)
    ascending = ascending.astype(values.dtype)

    def count_below(values: jax.Array, ascending: jax.Array) -> jax.Array:
        return jnp.searchsorted(ascending, values, side="right")

    below = _sharding.map_examples(count_below, values.ndim, values, shared=(ascending,))
    p_values = (jnp.minimum(below, number.astype(below.dtype)) + 1).astype(values.dtype) / (
        ascending.shape[0] + 1
    )
    return _classes.nan_unless(~jnp.isnan(values) & valid, p_values)


def new_class_threshold(
    calibration_outlier_scores: ArrayLike, seen_once: ArrayLike, *, error: float
) -> jax.Array:
    r"""The smallest outlier score of an example that may be of a new class.

    .. math::
        \tau = \text{the } \lfloor \varepsilon (n + 1) \rfloor
        \text{-th smallest } u(x_i) \text{ of the examples seen once}

    The scores of at least tau are those whose `new_class_p_values` exceed :math:`\varepsilon`. Tau
    is minus infinity if labels are too few to exclude a new class, and infinity if new classes are
    rarer than the error.

    Args:
        error: see `topk_jax.sets`; the rate of new classes that may be missed.
        calibration_outlier_scores, seen_once: as for `new_class_p_values`, `[n]`.

    Returns:
        A scalar for `open_set`.

    Example:
        >>> known, once = jnp.array([0.125, 0.875, 0.75]), jnp.array([False, True, True])
        >>> print(new_class_threshold(known, once, error=0.5))
        0.875

    Source: Xie et al. (2025), section 3.
    """
    ascending, _, valid = _seen_once(calibration_outlier_scores, seen_once)
    rank = math.floor(_checks.static_error(error) * (ascending.shape[0] + 1))
    from_rank_0 = jnp.pad(ascending, (1, 0), constant_values=-jnp.inf)
    return jnp.where(valid, from_rank_0[rank], jnp.nan)


def open_set(
    members: ArrayLike,
    outlier_scores: ArrayLike,
    *,
    known_to: ArrayLike,
    new_from: ArrayLike = jnp.inf,
) -> jax.Array:
    r"""Sets of classes and of one more symbol, which stands for a class that is not among them.

    .. math::
        \Gamma'(x) = \{ l \in \Gamma(x) : u(x) \le \kappa \} \cup
        \{ \text{new} : u(x) \ge \tau \text{ or } u(x) > \kappa \}

    A set with "new" is right for an example of an unseen class. Sets are wrong at the sum of three
    rates, at most: of :math:`\Gamma`, of the `conformal_quantile` :math:`\kappa` of outlier scores,
    and of the `new_class_threshold` :math:`\tau`.

    Args:
        members: whether each class is in the set of an example, booleans, `[..., L]`.
        outlier_scores: floating-point and smaller for usual examples, `[...]`.
        known_to: :math:`\kappa`, a real scalar; infinity for no limit.
        new_from: :math:`\tau`, a real scalar; with infinity nothing is promised for new classes.

    Returns:
        Booleans, `[..., L + 1]`; the last one is "new". A set is empty beside a NaN.

    Example:
        >>> members, scores = jnp.array([[True, False], [True, True]]), jnp.array([0.25, 2.0])
        >>> print(open_set(members, scores, known_to=1.0, new_from=0.5))
        [[ True False False]
         [False False  True]]

    Source: Xie et al. (2025), section 3; Bates et al. (2023), for the limit of known examples.
    """
    chosen = _checks.boolean_array(members, "members")
    values = _checks.floating_numbers(outlier_scores, "outlier_scores")[..., None]
    if chosen.ndim == 0 or values.shape[:-1] != chosen.shape[:-1]:
        raise ValueError(
            f"outlier_scores must have the shape of members {chosen.shape} without its classes, "
            f"got shape {values.shape[:-1]}."
        )
    most = _checks.real_array(known_to, "known_to", values.dtype, ())
    least = _checks.real_array(new_from, "new_from", values.dtype, ())
    is_number = ~(jnp.isnan(values) | jnp.isnan(most) | jnp.isnan(least))
    is_known, may_be_new = values <= most, (values >= least) | (values > most)
    return jnp.concatenate([chosen & is_known & is_number, may_be_new & is_number], axis=-1)


def _seen_once(scores: ArrayLike, seen_once: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The ascending scores of classes seen once, then infinity, [n]; their number; no NaN."""
    known = vector_of_scores(scores, "calibration_outlier_scores")
    once = _sharding.gather(_checks.boolean_array(seen_once, "seen_once", known.shape))
    return jnp.sort(jnp.where(once, known, jnp.inf)), once.sum(), ~jnp.isnan(known).any()


@partial(jax.jit, static_argnums=(1, 2))
def _outlier_scores(logits: jax.Array, kind: str, name: Hashable | None) -> jax.Array:
    scores = _classes.finite_scores(logits)
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
    factor = jnp.linalg.cholesky(shrunk, symmetrize_input=False)
    whitening = solve_triangular(factor, jnp.eye(size, dtype=factor.dtype), lower=True)
    return _classes.nan_unless(valid, means), _classes.nan_unless(valid, whitening)


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
    return _classes.nan_unless(valid, found)


@partial(jax.jit, static_argnums=0)
def _kth_distances(k: int, values: jax.Array, known: jax.Array, present: jax.Array) -> jax.Array:
    """The same on one device."""
    # A product of matrices, |y|^2 - 2 x y, has the order of the distances, but its terms cancel
    # near 0 and far from the mean. So it only chooses a few more vectors than are asked for, whose
    # distances are computed from differences.
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

    block = _BLOCK // max(number, candidates * size)
    found: jax.Array = map_rows(of_row, rows, block=block)
    return found.reshape(values.shape[:-1])
