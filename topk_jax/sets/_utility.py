"""Sets of the largest expected utility, which weighs being right against being precise."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _ordinals, _selection
from topk_jax._entries import take_along
from topk_jax.operators import _top_k
from topk_jax.sets._rules import largest_set

__all__ = ["set_utilities", "utility_set"]

# The parameters of each kind.
_PARAMETERS: dict[str, set[str]] = {
    "precision": set(),
    "f_beta": {"beta"},
    "u65": set(),
    "u80": set(),
    "reject": {"alpha", "beta"},
}
# How many of the largest probabilities are sorted at first.
_FEW = 64
# The relative rounding of sums of up to a million probabilities, with room.
_SLACK = 1e-3


class _Best(NamedTuple):
    """The set of the largest expected utility: this utility, its smallest probability, its size."""

    expected: jax.Array
    smallest: jax.Array
    size: jax.Array


def utility_set(probabilities: ArrayLike, *, utilities: ArrayLike) -> jax.Array:
    r"""The set of the largest expected utility, if g is the value of a set with the label, by size.

    .. math::
        \Gamma(x) = \operatorname*{arg\,max}_S \; g(|S|) \sum_{l \in S} p_l
        = \{ l : p_l \text{ is among } p_{[1]}, \dots, p_{[m]} \}, \qquad
        m = \operatorname*{arg\,max}_m \; g(m) \sum_{j \le m} p_{[j]}

    The value of a set without the label is 0. Among several sizes with the same expected utility,
    up to 16 roundings, the smallest one is chosen. The set is never empty, except for a NaN.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`, with sum 1 over the classes.
        utilities: g, the value of a set of each size from 1 to L that has the label, `[L]`; see
            `set_utilities`. May be traced.

    Returns:
        Booleans, `[..., L]`. Among equal probabilities, lower indices come first. None is true
        where a probability is NaN, or if a traced utility is not finite.

    Raises:
        TypeError: `probabilities` is not floating-point or `utilities` is not real.
        ValueError: `utilities` does not have one finite value for each size, or a concrete
            probability is not from 0 to 1; a traced one empties its set.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.5, 0.375, 0.125], [0.75, 0.125, 0.125]])
        >>> u65 = sets.set_utilities("u65", num_classes=3)
        >>> print(sets.utility_set(probabilities, utilities=u65))
        [[ True  True False]
         [ True False False]]

    See Also:
        `set_utilities`, `adaptive_set`, `top_k_set`.

    Source: Mortier et al. (2021), "Efficient set-valued prediction in multi-class classification",
    theorem 1; del Coz, Díez and Bahamonde (2009), "Learning nondeterministic classifiers".
    """
    values = _checks.probabilities(probabilities, "probabilities")
    of_sizes = _checks.finite_vector(utilities, "utilities", values.shape[-1], values.dtype)
    return _utility_set(values, of_sizes)


def set_utilities(
    kind: str,
    *,
    num_classes: int,
    alpha: ArrayLike | None = None,
    beta: ArrayLike | None = None,
) -> jax.Array:
    r"""The value of a set of each size that has the label, for `utility_set`.

    .. math::
        \text{precision:} \quad & 1 / m \\
        F_\beta: \quad & (1 + \beta^2) / (\beta^2 + m) \\
        \text{u65:} \quad & 1.6 / m - 0.6 / m^2 \\
        \text{u80:} \quad & 2.2 / m - 1.2 / m^2 \\
        \text{reject:} \quad & 1 - \alpha \left( \frac{m - 1}{L - 1} \right)^\beta

    All of them give 1 to a set of one class. Sets get larger from "precision" to "u65" to "u80",
    which give 0.5, 0.65 and 0.8 to a set of two classes.

    Args:
        kind: "precision", "f_beta", "u65", "u80" or "reject".
        num_classes: the static number L of classes, at least 1; there are `[L]` sizes.
        alpha: for "reject": scalar, what the set of all classes loses, from 0 to 1. May be traced.
        beta: for "f_beta" and "reject": positive scalar; a larger one gives larger sets. May be
            traced.

    Returns:
        One value for each size from 1 to L, `[L]`, in the default floating-point type.

    Raises:
        TypeError: a parameter has a wrong type.
        ValueError: `kind` is unknown, or a parameter is missing, is not one of this kind, or is
            outside its range.

    Example:
        >>> from topk_jax import sets
        >>> print(sets.set_utilities("precision", num_classes=2))
        [1.  0.5]
        >>> print(sets.set_utilities("reject", num_classes=3, alpha=1.0, beta=1.0))
        [1.  0.5 0. ]

    See Also:
        `utility_set`.

    Source: Mortier et al. (2021), section 3; Zaffalon, Corani and Mauá (2012), "Evaluating credal
    classifiers by utility-discounted predictive accuracy", for "u65" and "u80".
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
    return _numerics.nan_unless(~jnp.isnan(power), 1 - lost)


@jax.jit
def _utility_set(probabilities: jax.Array, utilities: jax.Array) -> jax.Array:
    """The set of the best size."""
    probabilities = _selection.compute_once(probabilities)
    if probabilities.shape[-1] <= 2 * _FEW:
        best = _best(-_ordinals.sort(-probabilities), utilities)
    else:
        best = _best_of_few(probabilities, utilities)
    chosen = largest_set(probabilities, best.smallest, best.size)
    return chosen & jnp.isfinite(utilities).all()


def _best_of_few(probabilities: jax.Array, utilities: jax.Array) -> _Best:
    """`_best` of all sizes, from the k largest probabilities if this is enough.

    Identity: the m largest probabilities add up to at most the sum of the first k, plus (m - k)
    times the k-th, and to at most the sum of all. Hazard: a sort costs more than all else. Choice:
    sort only the k largest, and all if some larger size may be better in some example. The slack
    covers the rounding of sums. Cost: one partial selection, and one sort if it is needed.
    """
    num_classes = probabilities.shape[-1]
    # The values only are sorted: equal ones have the same sums.
    few = _top_k.select_largest(probabilities, _FEW)[0]
    best = _best(few, utilities[:_FEW])
    sizes = jnp.arange(1, num_classes - _FEW + 1, dtype=probabilities.dtype)
    sums = few.sum(axis=-1, keepdims=True)
    total = probabilities.sum(axis=-1, keepdims=True)
    of_sizes = jnp.broadcast_to(sizes, (*probabilities.shape[:-1], sizes.size))
    most = jnp.minimum(sums + of_sizes * few[..., -1:], total)
    rest = jnp.broadcast_to(utilities[_FEW:], most.shape)
    bound = jnp.maximum(rest * most, rest * sums).max(axis=-1)
    may_be_better = bound + _SLACK * jnp.abs(bound) >= best.expected

    def of_all(best: _Best, probabilities: jax.Array) -> _Best:
        of_row = _best(-_ordinals.sort(-probabilities), utilities)
        return jax.tree.map(partial(jnp.where, may_be_better), of_row, best)

    def of_few(best: _Best, _: jax.Array) -> _Best:
        return best

    return jax.lax.cond(may_be_better.any(), of_all, of_few, best, probabilities)


def _best(descending: jax.Array, utilities: jax.Array) -> _Best:
    """The size of the largest expected utility, from 1 to the number of probabilities."""
    sums = jnp.cumsum(descending, axis=-1)
    expected = jnp.broadcast_to(utilities, sums.shape) * sums
    largest = expected.max(axis=-1)
    # Hazard: utilities that are equal as real numbers differ by rounding. Choice: the first within
    # 16 roundings of the largest.
    room = _numerics.rounding_to_spare(expected.dtype) * jnp.abs(largest)
    last = (expected >= (largest - room)[..., None]).argmax(axis=-1)[..., None]
    smallest = take_along(descending, last)[..., 0]
    return _Best(largest, smallest, last[..., 0] + 1)
