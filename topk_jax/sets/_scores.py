"""Conformal scores: how badly a class fits the probabilities of an example."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _selection, _sharding
from topk_jax.sets import _rows
from topk_jax.sets._ordered_scores import (
    ORDERED,
    are_plausible,
    score_classes,
    score_labels,
    search_set,
)

__all__ = ["conformal_label_scores", "conformal_scores", "conformal_set", "score_set"]

# For each kind, the parameters that it needs and those that it may have.
_PARAMETERS: dict[str, tuple[set[str], set[str]]] = {
    "lac": (set(), set()),
    "margin": (set(), set()),
    "rank": (set(), set()),
    "aps": (set(), {"key"}),
    "raps": ({"rank_penalty", "unpenalized_ranks"}, {"key"}),
    "saps": ({"rank_penalty"}, {"key"}),
    "pas": ({"class_counts"}, {"class_weights"}),
}


class _Terms(NamedTuple):
    """The parameters of a score, as arrays."""

    # U of each example, [n], and the penalty of that part of a rank.
    uniform: jax.Array
    shift: jax.Array
    # The penalty of a class with that many likelier ones, [L + 1].
    penalties: jax.Array
    # The factor of the probability of each class, [L].
    factors: jax.Array


def conformal_scores(
    probabilities: ArrayLike,
    *,
    kind: str,
    key: jax.Array | None = None,
    rank_penalty: ArrayLike | None = None,
    unpenalized_ranks: int | None = None,
    class_counts: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The conformal scores of all classes; a smaller score fits better.

    With :math:`r_l = 1 + |\{j : p_j > p_l\}|` the rank of class l, U one number in [0, 1) for each
    example, and :math:`\pi` the class frequencies in training:

    .. math::
        \text{lac:} \quad & 1 - p_l \\
        \text{margin:} \quad & \max_{j \ne l} p_j - p_l \\
        \text{rank:} \quad & r_l \\
        \text{aps:} \quad & a_l = \min \Big( \sum_{j : p_j > p_l} p_j + (1 - U) \, p_l, 1 \Big) \\
        \text{raps:} \quad & a_l + \lambda \, (r_l - k)_+ \\
        \text{saps:} \quad & U p_{[1]} \text{ if } r_l = 1,
        \text{ else } p_{[1]} + (r_l - 2 + U) \, \lambda \\
        \text{pas:} \quad & -\omega_l \, p_l / \pi_l

    "aps", "raps" and "saps" are randomised by `key`. Without a key U is 1 in "aps" and "raps", and
    0 in "saps". These are the smallest scores over U, so the sets of a given quantile are the
    largest: they are conservative for a quantile of scores with a key. A quantile of scores without
    a key is valid only for scores without a key. Use another key for each batch.

    Rounded probabilities may add up to a little more than 1. No score "aps" exceeds 1.

    Classes of equal probability have equal scores. So do a label here and in
    `conformal_label_scores`, to the last bit. In float32 the scores are right to 3e-7.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`; not logits. For "aps" and "raps"
            their sum over the classes is 1.
        kind: "lac", "margin", "rank", "aps", "raps", "saps" or "pas".
        key: one key of `jax.random.key` for "aps", "raps" and "saps".
        rank_penalty: for "raps" and "saps": the scalar penalty of a rank (lambda above), at least
            0. May be traced.
        unpenalized_ranks: for "raps": the static number of ranks without a penalty (k above).
        class_counts: for "pas": the number of training examples of each class, `[L]`, positive.
        class_weights: for "pas": the weight of each class (omega above), at least 0: a scalar, or
            one value per class, `[L]`; 1 by default. With weights this is the score WPAS.

    Returns:
        Scores, `[..., L]`, in float32 or float64; NaN for all classes where a probability is NaN,
        where a traced one is not from 0 to 1, and for "aps" and "raps" where their sum is greater
        than 1.5.

    Raises:
        TypeError: `probabilities` or a parameter has a wrong type.
        ValueError: a concrete probability is not from 0 to 1, `kind` is unknown, or a parameter is
            missing, is not one of this kind, or has a wrong shape or a wrong value.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([0.5, 0.125, 0.25, 0.125])
        >>> print(sets.conformal_scores(probabilities, kind="lac"))
        [0.5   0.875 0.75  0.875]
        >>> print(sets.conformal_scores(probabilities, kind="aps"))
        [0.   0.75 0.5  0.75]

    See Also:
        `conformal_label_scores`, `conformal_set`.

    Source: "lac": Sadinle, Lei and Wasserman (2019), "Least ambiguous set-valued classifiers with
    bounded error levels"; "aps": Romano, Sesia and Candès (2020), "Classification with valid and
    adaptive coverage"; "raps": Angelopoulos et al. (2021), "Uncertainty sets for image classifiers
    using conformal prediction"; "saps": Huang et al. (2024), "Conformal prediction for deep
    classifier via label ranking"; "margin": Löfström et al. (2015), "Bias reduction through
    conditional conformal prediction"; "pas": Ding, Fermanian and Salmon (2025), "Conformal
    prediction for long-tailed classification".
    """
    values = _checks.probabilities(probabilities, "probabilities")
    given = _parameters(kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights)
    return _of_rows(partial(_scores, kind), values, _terms(values, kind, given))


@_class_axis.refuse_split
def conformal_label_scores(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    kind: str,
    key: jax.Array | None = None,
    rank_penalty: ArrayLike | None = None,
    unpenalized_ranks: int | None = None,
    class_counts: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The conformal scores of the labels only, for calibration.

    They equal the entries of `conformal_scores` at the labels to the last bit, and take a few
    passes over the probabilities instead of a sort.

    Args:
        probabilities: floating-point, `[..., L]`, as for `conformal_scores`.
        labels: integer classes, `[...]`.
        kind: the kind of the score.
        key: as for `conformal_scores`, as are the following.
        rank_penalty: for "raps" and "saps".
        unpenalized_ranks: for "raps".
        class_counts: for "pas".
        class_weights: for "pas".

    Returns:
        One score per example, `[...]`, in float32 or float64; NaN where `conformal_scores` are NaN
        or the label is outside [0, L). The functions that calibrate with them take vectors: if a
        batch has several axes, flatten the scores and the labels first.

    Raises:
        TypeError: `probabilities`, `labels` or a parameter has a wrong type.
        ValueError: the shapes do not match, or as for `conformal_scores`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.25, 0.5, 0.25]])
        >>> print(sets.conformal_label_scores(probabilities, jnp.array([0, 2]), kind="aps"))
        [0.  0.5]

        Batches of two examples, flattened for a quantile:

        >>> batches = jnp.stack([probabilities, probabilities])
        >>> labels = jnp.array([[0, 2], [1, 1]])
        >>> scores = sets.conformal_label_scores(batches, labels, kind="aps")
        >>> print(sets.conformal_quantile(scores.ravel(), labels.ravel(), error=0.5))
        0.5

    See Also:
        `conformal_scores`, `conformal_quantile`.

    Source: as for `conformal_scores`.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    values = _checks.only_probabilities(probabilities, values, "probabilities")
    given = _parameters(kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights)
    terms = _terms(values, kind, given)
    return _of_rows(partial(_label_scores, kind), values, terms, of_examples=(labels,))


def conformal_set(
    probabilities: ArrayLike,
    quantiles: ArrayLike,
    *,
    kind: str,
    key: jax.Array | None = None,
    rank_penalty: ArrayLike | None = None,
    unpenalized_ranks: int | None = None,
    class_counts: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The classes whose conformal score is at most a quantile.

    .. math:: \Gamma(x) = \{ l : s_l(x) \le q_l \}

    It equals `score_set` of the `conformal_scores`. With one quantile for all classes, "rank",
    "aps", "raps" and "saps" take a search for the last class of each set instead of a sort.

    Args:
        probabilities: floating-point, `[..., L]`, as for `conformal_scores`.
        quantiles: one real number for all classes, as from `conformal_quantile`, or one for each,
            `[L]`, as from `class_conditional_quantiles`. All classes are kept at infinity, and none
            at NaN.
        kind: the kind of the score.
        key: as for `conformal_scores`, as are the following.
        rank_penalty: for "raps" and "saps".
        unpenalized_ranks: for "raps".
        class_counts: for "pas".
        class_weights: for "pas".

    Returns:
        Booleans, `[..., L]`; none is true where the scores are NaN.

    Raises:
        TypeError: `probabilities`, `quantiles` or a parameter has a wrong type.
        ValueError: `quantiles` has a wrong shape, or as for `conformal_scores`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])
        >>> print(sets.conformal_set(probabilities, 0.5, kind="aps"))
        [[ True  True  True]
         [False  True False]]

    See Also:
        `conformal_scores`, `conformal_quantile`.

    Source: as for `conformal_scores`.
    """
    values = _checks.probabilities(probabilities, "probabilities")
    given = _parameters(kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights)
    limits = _checks.limits(quantiles, "quantiles", values.shape[-1], values.dtype)
    terms = _terms(values, kind, given)
    if limits.ndim == 0 and kind in ORDERED:
        return _of_rows(partial(_ordered_set, kind), values, terms, shared=(limits,))
    return _at_most(_of_rows(partial(_scores, kind), values, terms), limits)


def score_set(scores: ArrayLike, quantiles: ArrayLike) -> jax.Array:
    r"""The classes whose score is at most a quantile.

    .. math:: \Gamma = \{ l : s_l \le q_l \}

    Args:
        scores: floating-point scores that are smaller for classes that fit better, `[..., L]`.
        quantiles: one real number for all classes, or one for each, `[L]`.

    Returns:
        Booleans, `[..., L]`; none is true where a score is NaN.

    Raises:
        TypeError: `scores` is not floating-point or `quantiles` is not real.
        ValueError: `quantiles` has a wrong shape.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores = jnp.array([[0.5, 0.25, 0.75]])
        >>> print(sets.score_set(scores, 0.5))
        [[ True  True False]]
        >>> print(sets.score_set(scores, jnp.array([0.25, 0.25, jnp.inf])))
        [[False  True  True]]

    See Also:
        `conformal_set`, `threshold_set`.

    Source: Vovk et al. (2005), "Algorithmic learning in a random world", section 4.5, for one
    quantile per class.
    """
    scores = _checks.floating_array(scores, "scores")
    limits = _checks.limits(quantiles, "quantiles", scores.shape[-1], scores.dtype)
    return _at_most(scores, limits) & ~jnp.isnan(scores).any(axis=-1, keepdims=True)


def _parameters(
    kind: str,
    key: jax.Array | None,
    rank_penalty: ArrayLike | None,
    unpenalized_ranks: int | None,
    class_counts: ArrayLike | None,
    class_weights: ArrayLike | None,
) -> dict[str, Any]:
    """The parameters that were given, by name, or raises if the kind does not have them."""
    kind = _checks.choice(kind, "kind", tuple(_PARAMETERS))
    parameters = {
        "key": key,
        "rank_penalty": rank_penalty,
        "unpenalized_ranks": unpenalized_ranks,
        "class_counts": class_counts,
        "class_weights": class_weights,
    }
    needed, possible = _PARAMETERS[kind]
    return _checks.parameters_of_kind(kind, parameters, needed=needed, possible=possible)


def _terms(values: jax.Array, kind: str, given: dict[str, Any]) -> _Terms:
    """The parameters as arrays, or raises if one has a wrong type, shape or value."""
    num_classes, dtype = values.shape[-1], values.dtype
    num_examples = values.size // num_classes
    uniform = jnp.full(num_examples, 0.0 if kind == "saps" else 1.0, dtype)
    if "key" in given:
        key = _checks.random_keys(given["key"], "key", ())
        uniform = jax.random.uniform(key, (num_examples,), dtype)
    penalty = _checks.scalar(given.get("rank_penalty", 0.0), "rank_penalty", dtype, at_least=0)
    unpenalized = 2
    if kind == "raps":
        unpenalized = _checks.static_integer(
            given["unpenalized_ranks"], "unpenalized_ranks", minimum=0
        )
    penalized = np.maximum(np.arange(1, num_classes + 2) - unpenalized, 0)
    factors = jnp.ones(num_classes, dtype)
    if kind == "pas":
        counts = _checks.class_counts(given["class_counts"], "class_counts").astype(dtype)
        if counts.shape != (num_classes,):
            raise ValueError(
                f"class_counts must have shape ({num_classes},) for probabilities of shape "
                f"{values.shape}, got shape {counts.shape}."
            )
        weights = given.get("class_weights", 1.0)
        weights = _checks.per_class(weights, "class_weights", num_classes, dtype)
        factors = weights * (counts.sum() / counts)
    return _Terms(uniform, penalty * uniform, penalty * penalized.astype(dtype), factors)


def _of_rows(
    function: Callable[..., jax.Array],
    values: jax.Array,
    terms: _Terms,
    of_examples: tuple[jax.Array, ...] = (),
    shared: tuple[jax.Array, ...] = (),
) -> jax.Array:
    """`function(rows, terms, *of_examples, *shared)` of values [..., L], on each device.

    The function is one of rows [n, L] and of arrays [n], and has one result for each row.
    """

    def of_batch(
        values: jax.Array,
        own: tuple[jax.Array, ...],
        of_all: tuple[jax.Array, ...],
        shared: tuple[jax.Array, ...],
    ) -> jax.Array:
        rows = values.reshape(-1, values.shape[-1])
        uniform, shift, *others = (array.reshape(-1) for array in own)
        result = function(rows, _Terms(uniform, shift, *of_all), *others, *shared)
        return result.reshape(*values.shape[:-1], *result.shape[1:])

    uniform, shift, *of_all = terms
    own = (uniform.reshape(values.shape[:-1]), shift.reshape(values.shape[:-1]), *of_examples)
    return _sharding.map_examples(
        of_batch, values.ndim - 1, values, own, shared=(tuple(of_all), shared)
    )


@partial(jax.jit, static_argnums=0)
def _scores(kind: str, rows: jax.Array, terms: _Terms) -> jax.Array:
    """The scores of all classes, [n, L]."""
    rows, terms = _selection.compute_once(rows), _compute_once(terms)
    if kind in ORDERED:
        score = partial(score_classes, terms.penalties, kind)
        return _rows.in_blocks(score, rows, terms.uniform, terms.shift)
    if kind == "lac":
        scores = 1.0 - rows
    elif kind == "pas":
        scores = -(terms.factors[None] * rows)
    else:
        is_largest = _numerics.is_label(rows, rows.argmax(axis=-1))
        others = jnp.where(is_largest, -jnp.inf, rows).max(axis=-1, keepdims=True)
        scores = jnp.where(is_largest, others, rows.max(axis=-1, keepdims=True)) - rows
    return jnp.where(are_plausible(rows, kind)[:, None], scores, jnp.nan)


@partial(jax.jit, static_argnums=0)
def _label_scores(kind: str, rows: jax.Array, terms: _Terms, labels: jax.Array) -> jax.Array:
    """The scores of the labels, [n]."""
    rows, terms = _selection.compute_once(rows), _compute_once(terms)
    of_labels = _numerics.score_of_label(rows, labels)
    if kind == "lac":
        scores = 1.0 - of_labels
    elif kind == "pas":
        scores = -(_numerics.value_of_class(terms.factors, labels) * of_labels)
    elif kind == "margin":
        scores = _numerics.without_label(rows, labels).max(axis=-1) - of_labels
    else:
        scores = score_labels(terms.penalties, kind, rows, of_labels, terms.uniform, terms.shift)
    in_range = (labels >= 0) & (labels < rows.shape[-1])
    return jnp.where(are_plausible(rows, kind) & in_range, scores, jnp.nan)


@partial(jax.jit, static_argnums=0)
def _ordered_set(kind: str, rows: jax.Array, terms: _Terms, limit: jax.Array) -> jax.Array:
    """The classes whose score is at most a limit, [n, L], found without all scores.

    Identity: scores grow from the likeliest class to the unlikeliest, so a set has the classes
    above some probability. Hazard: a sort costs more than all else. Choice: a bisection of the
    ordinals of the probabilities. Cost: at most one pass over the probabilities for each bit, and
    about 15 of 1,000 classes, in the cache of a core.
    """
    rows, terms = _selection.compute_once(rows), _compute_once(terms)
    search = partial(search_set, limit, terms.penalties, kind)
    return _rows.in_blocks(search, rows, terms.uniform, terms.shift)


def _at_most(scores: jax.Array, limits: jax.Array) -> jax.Array:
    return scores <= jnp.broadcast_to(limits, scores.shape)


def _compute_once(terms: _Terms) -> _Terms:
    """The terms, computed only once: see `_ordered_scores._score`."""
    return _Terms(*map(_selection.compute_once, terms))
