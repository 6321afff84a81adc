"""Rules that choose the classes of a set from scores or probabilities."""

from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _search, _sharding
from topk_jax._classes import take_along
from topk_jax.operators import _top_k

__all__ = ["adaptive_set", "set_utilities", "threshold_set", "top_k_set", "utility_set"]

# The parameters of each kind of utility.
_PARAMETERS: dict[str, set[str]] = {
    "precision": set(),
    "f_beta": {"beta"},
    "u65": set(),
    "u80": set(),
    "reject": {"alpha", "beta"},
}


@_sharding.allow_split(of="entries")
def top_k_set(scores: ArrayLike, *, k: int, class_axis_name: Hashable | None = None) -> jax.Array:
    r"""The k classes with the largest scores.

    .. math:: \Gamma(x) = \{ l : s_l \text{ is among } s_{[1]}, \dots, s_{[k]} \}

    Args:
        class_axis_name: see `topk_jax.sets`.
        scores: floating-point, larger for likelier classes, `[..., L]`.
        k: static set size, from 1 to L.

    Returns:
        Booleans, `[..., L]`. Among equal scores, lower indices come first.

    Example:
        >>> print(top_k_set(jnp.array([0.2, 0.4, 0.2, 0.2]), k=2))
        [ True  True False False]

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores = _checks.floating_array(scores, "scores")
    k = _checks.rank(k, _classes.count(scores, class_axis_name))
    if class_axis_name is not None:
        return _top_k_set_of_split(scores, k, class_axis_name)
    return _top_k_set(scores, k)


@_sharding.allow_split(of="entries")
def threshold_set(
    probabilities: ArrayLike, threshold: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The classes whose probability reaches a threshold.

    .. math:: \Gamma(x) = \{ l : p_l \ge \lambda_l \}

    Args:
        class_axis_name: see `topk_jax.sets`.
        probabilities: floating-point, `[..., L]`.
        threshold: one real number for all classes, or one for each, `[L]`.

    Returns:
        Booleans, `[..., L]`. All classes reach minus infinity, and none reaches infinity or NaN.

    Example:
        >>> print(threshold_set(jnp.array([0.5, 0.25, 0.25]), 0.25))
        [ True  True  True]

    Source: Garcin (2023), thesis, equation 2.31.
    """
    probabilities = _checks.floating_array(probabilities, "probabilities")
    thresholds = _checks.real_array(
        threshold, "threshold", probabilities.dtype, (), probabilities.shape[-1:]
    )
    reached = probabilities >= jnp.broadcast_to(thresholds, probabilities.shape)
    return reached & _without_nan(probabilities, class_axis_name)


def adaptive_set(probabilities: ArrayLike, *, error: ArrayLike) -> jax.Array:
    r"""The smallest set whose probabilities add up to at least `1 - error`, for each example.

    .. math::
        \Gamma(x) = \{ l : p_l \text{ is among } p_{[1]}, \dots, p_{[m]} \}, \qquad
        m = \min \Big\{ m : \sum_{j \le m} p_{[j]} \ge 1 - \varepsilon \Big\}

    Args:
        probabilities: see `topk_jax.sets`.
        error: a real scalar in [0, 1), the probability that a set may miss.

    Returns:
        Booleans, `[..., L]`. Among equal probabilities, lower indices come first. All are true
        where the sum is less than `1 - error`.

    Example:
        >>> print(adaptive_set(jnp.array([0.125, 0.5, 0.25, 0.125]), error=0.25))
        [False  True  True False]

    Source: Garcin (2023), thesis, table 2.1, point-wise error.
    """
    probabilities = _checks.probabilities(probabilities, "probabilities")
    error = _checks.scalar(error, "error", probabilities.dtype, at_least=0.0, below=1.0)
    return _adaptive_set(probabilities, error)


def utility_set(probabilities: ArrayLike, *, utilities: ArrayLike) -> jax.Array:
    r"""The set of the largest expected utility, if g is the value of a set with the label, by size.

    .. math::
        \Gamma(x) = \operatorname*{arg\,max}_S \; g(|S|) \sum_{l \in S} p_l
        = \{ l : p_l \text{ is among } p_{[1]}, \dots, p_{[m]} \}

    Of sizes with equal utilities the smallest is chosen.

    Args:
        probabilities: see `topk_jax.sets`.
        utilities: g for each size from 1 to L, as from `set_utilities`, `[L]`.

    Returns:
        Booleans, `[..., L]`. Among equal probabilities, lower indices come first.

    Example:
        >>> u65 = set_utilities("u65", num_classes=3)
        >>> print(utility_set(jnp.array([0.5, 0.375, 0.125]), utilities=u65))
        [ True  True False]

    Source: Mortier et al. (2021), "Efficient set-valued prediction in multi-class classification".
    """
    values = _checks.probabilities(probabilities, "probabilities")
    of_sizes = _checks.numbers(utilities, "utilities", values.dtype, (values.shape[-1:],))
    return _utility_set(values, of_sizes)


def set_utilities(
    kind: str, *, num_classes: int, alpha: ArrayLike | None = None, beta: ArrayLike | None = None
) -> jax.Array:
    r"""The value of a set of each size that has the label, for `utility_set`.

    .. math::
        \text{precision:} \quad & 1 / m \\
        F_\beta: \quad & (1 + \beta^2) / (\beta^2 + m) \\
        \text{u65:} \quad & 1.6 / m - 0.6 / m^2 \\
        \text{u80:} \quad & 2.2 / m - 1.2 / m^2 \\
        \text{reject:} \quad & 1 - \alpha \left( \frac{m - 1}{L - 1} \right)^\beta

    Args:
        num_classes: see `topk_jax.sets`.
        kind: "precision", "f_beta", "u65", "u80" or "reject".
        alpha: for "reject": scalar, what the set of all classes loses, from 0 to 1.
        beta: for "f_beta" and "reject": positive scalar; a larger one gives larger sets.

    Returns:
        One value for each size from 1 to L, `[L]`, in the default floating-point type.

    Example:
        >>> print(set_utilities("precision", num_classes=2))
        [1.  0.5]

    Source: Mortier et al. (2021), section 3; Zaffalon, Corani and Mauá (2012) for "u65" and "u80".
    """
    kind = _checks.choice(kind, "kind", tuple(_PARAMETERS))
    num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    given = _checks.parameters_of_kind(
        kind, {"alpha": alpha, "beta": beta}, needed=_PARAMETERS[kind]
    )
    dtype = jnp.result_type(float)
    sizes = jnp.arange(1, num_classes + 1, dtype=dtype)
    if kind == "precision":
        return 1 / sizes
    if kind == "u65":
        return 1.6 / sizes - 0.6 / sizes**2
    if kind == "u80":
        return 2.2 / sizes - 1.2 / sizes**2
    power = _checks.scalar(given["beta"], "beta", dtype, above=0)
    if kind == "f_beta":
        return (1 + power**2) / (power**2 + sizes)
    loss = _checks.scalar(given["alpha"], "alpha", dtype, at_least=0, at_most=1)
    lost = loss * ((sizes - 1) / max(num_classes - 1, 1)) ** power
    # A power of 1 loses the NaN of a traced exponent.
    return _classes.nan_unless(~jnp.isnan(power), 1 - lost)


@partial(jax.jit, static_argnames="k")
def _top_k_set(scores: jax.Array, k: int) -> jax.Array:
    scores = jax.lax.optimization_barrier(scores)
    return _largest_set(scores, _top_k.select_largest(scores, k)[0][..., -1:], k)


def _top_k_set_of_split(scores: jax.Array, k: int, class_axis_name: Hashable) -> jax.Array:
    """Like `_top_k_set`, but the classes are split. -0 and 0 are equal there, too."""
    size = scores.shape[-1]
    equal = jnp.where(scores == 0, 0, scores).reshape(-1, size)
    _, classes = _top_k.select_largest_of_split(equal, k, class_axis_name)
    nothing = jnp.zeros_like(equal, jnp.bool_)
    chosen = _classes.put(nothing, classes, True, class_axis_name)
    return chosen.reshape(scores.shape) & _without_nan(scores, class_axis_name)


@jax.jit
def _adaptive_set(probabilities: jax.Array, error: jax.Array) -> jax.Array:
    """The adaptive set, by the probability that it misses."""
    # Near 1 float32 has steps of 6e-8, which is too coarse for many classes or a small error, and a
    # softmax adds up to 1 only up to rounding: a total within rounding of 1 is 1.
    values = jax.lax.optimization_barrier(probabilities)
    excess = values.sum(axis=-1, keepdims=True) - 1.0
    rounding = _classes.rounding_to_spare(values.dtype)
    allowed = (error + jnp.where(jnp.abs(excess) <= rounding, 0.0, excess)) * (1.0 + rounding)

    def by_search(values: jax.Array, allowed: jax.Array) -> tuple[jax.Array, jax.Array]:
        def missed_by(kept: jax.Array) -> jax.Array:
            return jnp.where(kept, 0.0, values).sum(axis=-1, keepdims=True)

        smallest = _search.largest_threshold(
            values, lambda kept: missed_by(kept) <= allowed, axis=-1
        )
        smallest = jnp.minimum(smallest, values.max(axis=-1, keepdims=True))
        kept, tied = values >= smallest, values == smallest
        # Of equal probabilities, as many as possible are missed.
        places = jnp.arange(1, values.shape[-1] + 1, dtype=values.dtype)
        missed = missed_by(kept) + jnp.broadcast_to(places, values.shape) * smallest
        fitting = (missed <= allowed).sum(axis=-1, keepdims=True)
        num_kept, num_tied = (each.sum(axis=-1, keepdims=True) for each in (kept, tied))
        return smallest, num_kept - jnp.minimum(fitting, num_tied)

    def by_sort(values: jax.Array, allowed: jax.Array) -> tuple[jax.Array, jax.Array]:
        descending = sort_descending(values)
        missed = jax.lax.cumsum(descending, axis=values.ndim - 1, reverse=True)
        size = (missed > allowed).sum(axis=-1, keepdims=True)
        return take_along(descending, jnp.maximum(size, 1) - 1), size

    smallest, size = _compilation.choose(values, allowed, cpu=by_search, default=by_sort)
    # The most likely class is always kept.
    return _largest_set(values, smallest, jnp.maximum(size, 1)) & ~jnp.isnan(error)


@jax.jit
def _utility_set(probabilities: jax.Array, utilities: jax.Array) -> jax.Array:
    """The set of the best size: the first whose expected utility is within 16 roundings."""
    values = jax.lax.optimization_barrier(probabilities)
    descending = sort_descending(values)
    sums = jnp.cumsum(descending, axis=-1)
    expected = jnp.broadcast_to(utilities, sums.shape) * sums
    largest = expected.max(axis=-1, keepdims=True)
    room = _classes.rounding_to_spare(expected.dtype) * jnp.abs(largest)
    # ONNX has no place of the first of booleans.
    is_best = (expected >= largest - room).astype(jnp.int32)
    last = jnp.argmax(is_best, axis=-1, keepdims=True)
    chosen = _largest_set(values, take_along(descending, last), last + 1)
    return chosen & jnp.isfinite(utilities).all()


def sort_descending(values: jax.Array) -> jax.Array:
    """The values [..., L] from the largest on; NaN comes last."""
    # On the CPU, XLA sorts integers in a quarter of the time of floats. ONNX does not have the
    # bits.

    def by_bits(values: jax.Array) -> jax.Array:
        return -_search.sort(-values)

    def by_values(values: jax.Array) -> jax.Array:
        return -jnp.sort(-values, axis=-1)

    found: jax.Array = _compilation.choose(values, cpu=by_bits, default=by_values)
    return found


def _largest_set(scores: jax.Array, smallest: jax.Array, size: jax.Array | int) -> jax.Array:
    """A mask of the `size` largest scores, given the smallest of them; empty with a NaN score."""
    above, tied = scores > smallest, scores == smallest
    room = size - above.sum(axis=-1, keepdims=True)
    chosen = above | (tied & (jnp.cumsum(tied, axis=-1) <= room))
    return chosen & _without_nan(scores)


def _without_nan(scores: jax.Array, class_axis_name: Hashable | None = None) -> jax.Array:
    return ~_classes.any_class(jnp.isnan(scores), class_axis_name, keepdims=True)
