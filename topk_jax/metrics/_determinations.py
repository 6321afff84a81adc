"""Classes of examples from the votes of several people, some of whom know more than others."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding

__all__ = ["dawid_skene", "voter_weights", "weighted_votes"]


def voter_weights(
    num_labels: ArrayLike,
    *,
    alpha: ArrayLike = 0.5,
    beta: ArrayLike = 0.2,
    offset: ArrayLike = 1.0,
) -> jax.Array:
    r"""The weight of a person in a vote, by the number of species that the person has named.

    .. math:: w_u = n_u^\alpha - n_u^\beta + b_0

    Args:
        num_labels: how many different classes each person has named, `[...]`, at least 0.
        alpha: scalar, at least 0. May be traced.
        beta: the same.
        offset: scalar :math:`b_0`, at least 0: the weight of a person with one class. The authors
            determined it empirically and do not give it. May be traced.

    Returns:
        Floats, `[...]`; NaN where a traced number is negative.

    Raises:
        TypeError: `num_labels` or a parameter is not real.
        ValueError: a number is negative or not finite, or a parameter is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> print(metrics.voter_weights(jnp.array([1, 10, 100])).round(2))
        [1.   2.58 8.49]

    See Also:
        `weighted_votes`.

    Source: Garcin (2023), thesis, section 3.8.1.
    """
    number = _checks.weights_of_examples(num_labels, "num_labels", jnp.shape(num_labels))
    return _weights(number, *_parameters(alpha, beta, offset, number.dtype))


def weighted_votes(
    labels: ArrayLike,
    examples: ArrayLike,
    voters: ArrayLike,
    *,
    num_examples: int,
    num_voters: int,
    num_classes: int,
    authors: ArrayLike | None = None,
    alpha: ArrayLike = 0.5,
    beta: ArrayLike = 0.2,
    offset: ArrayLike = 1.0,
    threshold: ArrayLike = 0.0,
    num_rounds: int = 10,
) -> jax.Array:
    r"""The weight of the votes for each class of an example; people who know more count more.

    .. math::
        v_{iy} = \sum_{u : y_i^u = y} w_u, \qquad w_u = n_u^\alpha - n_u^\beta + b_0

    Here :math:`n_u` is the number of different classes that person u has named, plus the number of
    classes that have a valid example whose author is u. An example is valid if its largest weight
    is above the threshold :math:`\theta`; that class is then its label. Weights and labels depend
    on each other, and are computed in turn, at first without authors.

    Args:
        labels: the class of each vote, integers `[...]`.
        examples: the example that it is for, integers `[...]`.
        voters: who gave it, integers `[...]`. A vote with an index outside its range is left out.
        num_examples: static number of examples n.
        num_voters: static number of people W.
        num_classes: static number of classes L.
        authors: who observed each example, integers `[n]`, -1 for nobody; None if not known.
        alpha: see `voter_weights`.
        beta: see `voter_weights`.
        offset: see `voter_weights`.
        threshold: scalar, at least 0, the weight that a valid label exceeds. May be traced.
        num_rounds: static number of rounds, at least 1; without authors, more rounds change
            nothing.

    Returns:
        Floats, `[n, L]`. The label of an example is the class with the largest weight, and the
        weights over their sum are plausibilities; an example without votes has zeros.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: the shapes do not match, or a number is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> examples = jnp.array([0, 1, 2, 0, 0])
        >>> voters, labels = jnp.array([0, 0, 0, 1, 2]), jnp.array([0, 1, 2, 1, 1])
        >>> print(metrics.weighted_votes(
        ...     labels, examples, voters, num_examples=3, num_voters=3, num_classes=3).round(2))
        [[1.49 2.   0.  ]
         [0.   1.49 0.  ]
         [0.   0.   1.49]]

    See Also:
        `voter_weights`, `dawid_skene`, `expect_over_labels`.

    Source: Garcin (2023), thesis, section 3.8.1.
    """
    votes = _votes(labels, examples, voters, (num_classes, num_examples, num_voters))
    dtype = jnp.result_type(float)
    parameters = _parameters(alpha, beta, offset, dtype)
    theta = _checks.scalar(threshold, "threshold", dtype, at_least=0)
    rounds = _checks.static_integer(num_rounds, "num_rounds", minimum=1)
    if authors is None:
        rounds, authors = 1, jnp.full(num_examples, -1)
    known = _sharding.gather(_checks.integer_array(authors, "authors", (num_examples,)))
    totals = _weighted_votes(votes, known, parameters, theta, (num_voters, num_classes), rounds)
    return _numerics.nan_unless(~jnp.isnan(theta + sum(parameters)), totals)


def dawid_skene(
    labels: ArrayLike,
    examples: ArrayLike,
    voters: ArrayLike,
    *,
    num_examples: int,
    num_voters: int,
    num_classes: int,
    smoothing: ArrayLike = 0.01,
    num_steps: int = 50,
) -> jax.Array:
    r"""The probabilities of the true classes, if each person confuses classes differently.

    .. math::
        p(y_i = k) \propto \pi_k \prod_{u \in U_i} \theta^u_{k, y_i^u}, \qquad
        \theta^u_{kl} \propto \delta + \sum_{i : y_i^u = l} p(y_i = k), \qquad
        \pi_k \propto \delta + \sum_i p(y_i = k)

    These are computed in turn (EM), at first with the parts of the votes as the probabilities.
    A person who is often wrong in the same way is of use, too.

    Args:
        labels: the class of each vote, integers `[...]`.
        examples: the example that it is for, integers `[...]`.
        voters: who gave it, integers `[...]`. A vote with an index outside its range is left out.
        num_examples: static number of examples n.
        num_voters: static number of people W.
        num_classes: static number of classes L. The confusions are `[W, L, L]`.
        smoothing: scalar :math:`\delta`, positive: votes of each kind that a person has from the
            start, and examples that each class has. May be traced.
        num_steps: static number of steps of EM, at least 0.

    Returns:
        Floats, `[n, L]`, with sum 1; an example without votes has the frequencies of the classes.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: the shapes do not match, or a number is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> # Two agree on all examples; the third always says 0.
        >>> examples = jnp.array([0, 1, 2, 3] * 3)
        >>> voters = jnp.array([0] * 4 + [1] * 4 + [2] * 4)
        >>> labels = jnp.array([0, 1, 0, 1] * 2 + [0] * 4)
        >>> print(metrics.dawid_skene(
        ...     labels, examples, voters, num_examples=4, num_voters=3, num_classes=2).round(2))
        [[1. 0.]
         [0. 1.]
         [1. 0.]
         [0. 1.]]

    See Also:
        `weighted_votes`, `confident_joint`, `expect_over_labels`.

    Source: Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates using the
    EM algorithm".
    """
    votes = _votes(labels, examples, voters, (num_classes, num_examples, num_voters))
    prior = _checks.scalar(smoothing, "smoothing", jnp.result_type(float), above=0)
    steps = _checks.static_integer(num_steps, "num_steps", minimum=0)
    return _dawid_skene(votes, prior, (num_examples, num_voters, num_classes), steps)


def _parameters(
    alpha: ArrayLike, beta: ArrayLike, offset: ArrayLike, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array, jax.Array]:
    return (
        _checks.scalar(alpha, "alpha", dtype, at_least=0),
        _checks.scalar(beta, "beta", dtype, at_least=0),
        _checks.scalar(offset, "offset", dtype, at_least=0),
    )


def _weights(number: jax.Array, alpha: jax.Array, beta: jax.Array, offset: jax.Array) -> jax.Array:
    # 1 to the power of a NaN is 1.
    valid = ~jnp.isnan(alpha + beta + offset)
    return _numerics.nan_unless(valid, number**alpha - number**beta + offset)


Votes = tuple[jax.Array, jax.Array, jax.Array]


def _votes(
    labels: ArrayLike, examples: ArrayLike, voters: ArrayLike, sizes: tuple[int, int, int]
) -> Votes:
    """The class, the example and the person of each vote; all past the end for those left out."""
    classes = _checks.integer_array(labels, "labels", jnp.shape(labels))
    given = (
        classes,
        _checks.integer_array(examples, "examples", classes.shape),
        _checks.integer_array(voters, "voters", classes.shape),
    )
    names = ("num_classes", "num_examples", "num_voters")
    limits = [
        _checks.static_integer(size, name, minimum=1)
        for size, name in zip(sizes, names, strict=True)
    ]
    indices = [_sharding.gather(index).reshape(-1) for index in given]
    is_vote = jnp.ones(classes.size, bool)
    for index, limit in zip(indices, limits, strict=True):
        is_vote &= (index >= 0) & (index < limit)
    # Not before the comparisons: a large index of 64 bits would become a small one of 32 bits.
    of_classes, of_examples, of_voters = (
        jnp.where(is_vote, index, limit).astype(jnp.int32)
        for index, limit in zip(indices, limits, strict=True)
    )
    return of_classes, of_examples, of_voters


@partial(jax.jit, static_argnums=(4, 5))
def _weighted_votes(
    votes: Votes,
    authors: jax.Array,
    parameters: tuple[jax.Array, jax.Array, jax.Array],
    threshold: jax.Array,
    sizes: tuple[int, int],
    rounds: int,
) -> jax.Array:
    labels, examples, voters = votes
    num_voters, num_classes = sizes
    named = jnp.zeros(sizes, bool).at[voters, labels].set(True, mode="drop").sum(axis=1)

    def of_round(_: int, totals: jax.Array) -> jax.Array:
        is_valid = (totals.max(axis=1) > threshold) & (authors >= 0)
        rows = jnp.where(is_valid, authors, num_voters)
        observed = jnp.zeros(sizes, bool).at[rows, totals.argmax(axis=1)].set(True, mode="drop")
        weights = _weights((named + observed.sum(axis=1)).astype(totals.dtype), *parameters)
        of_votes = weights.at[voters].get(mode="fill", fill_value=0)
        return jnp.zeros_like(totals).at[examples, labels].add(of_votes, mode="drop")

    # Nobody has a valid example before the first round.
    nothing = jnp.zeros((len(authors), num_classes), threshold.dtype)
    start, *_ = _sharding.unify(nothing, authors, parameters, threshold, votes)
    return jax.lax.fori_loop(0, rounds, of_round, start)


@partial(jax.jit, static_argnums=(2, 3))
def _dawid_skene(
    votes: Votes, smoothing: jax.Array, sizes: tuple[int, int, int], steps: int
) -> jax.Array:
    labels, examples, voters = votes
    num_examples, num_voters, num_classes = sizes
    dtype = smoothing.dtype
    counts = jnp.zeros((num_examples, num_classes), dtype).at[examples, labels].add(1, mode="drop")
    totals = counts.sum(axis=1, keepdims=True)
    shares = jnp.where(totals > 0, counts / jnp.maximum(totals, 1), 1 / num_classes)

    def of_step(_: int, shares: jax.Array) -> jax.Array:
        of_votes = shares.at[examples].get(mode="fill", fill_value=0)
        joint = jnp.zeros((num_voters, num_classes, num_classes), dtype)
        # The sums by person, label and class.
        joint = joint.at[voters, labels].add(of_votes, mode="drop") + smoothing
        # Hazard: products of many probabilities are 0. Choice: sums of logarithms, and a softmax.
        # The smoothing keeps the logarithms finite.
        logs = jnp.log(joint) - jnp.log(joint.sum(axis=1, keepdims=True))
        found = (
            jnp.zeros_like(shares)
            .at[examples]
            .add(logs.at[voters, labels].get(mode="fill", fill_value=0), mode="drop")
        )
        frequencies = (shares.sum(axis=0) + smoothing) / (num_examples + num_classes * smoothing)
        return jax.nn.softmax(found + jnp.log(frequencies)[None], axis=1)

    start, *_ = _sharding.unify(shares, smoothing)
    found = jax.lax.fori_loop(0, steps, of_step, start)
    return _numerics.nan_unless(~jnp.isnan(smoothing), found)
