"""Classes of examples from the votes of several people, some of whom know more than others."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _example, _sharding

__all__ = ["dawid_skene", "voter_weights"]

Votes = tuple[jax.Array, jax.Array, jax.Array]


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
        alpha: scalar, at least 0.
        beta: the same.
        offset: scalar :math:`b_0`, at least 0: the weight of a person with one class. The authors
            determined it empirically and do not give it.

    Returns:
        Floats, `[...]`; NaN where a traced number is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> print(metrics.voter_weights(jnp.array([1, 10, 100])).round(2))
        [1.   2.58 8.49]

    Source: Garcin (2023), thesis, section 3.8.1.
    """
    number = _checks.weights_of_examples(num_labels, "num_labels", jnp.shape(num_labels))
    given = {"alpha": alpha, "beta": beta, "offset": offset}
    a, b, c = (_checks.scalar(one, name, number.dtype, at_least=0) for name, one in given.items())
    # 1 to the power of a NaN is 1.
    return _example.nan_unless(~jnp.isnan(a + b + c), number**a - number**b + c)


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
            start, and examples that each class has.
        num_steps: static number of steps of EM, at least 0.

    Returns:
        Floats, `[n, L]`, with sum 1; an example without votes has the frequencies of the classes.

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

    Source: Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates using the
    EM algorithm".
    """
    counted = {"num_classes": num_classes, "num_examples": num_examples, "num_voters": num_voters}
    sizes = [_checks.static_integer(size, name, minimum=1) for name, size in counted.items()]
    classes = _checks.integer_array(labels, "labels")
    given = [
        _sharding.gather(_checks.integer_array(index, name, classes.shape)).reshape(-1)
        for name, index in {"labels": classes, "examples": examples, "voters": voters}.items()
    ]
    inside = [(index >= 0) & (index < size) for index, size in zip(given, sizes, strict=True)]
    is_vote = inside[0] & inside[1] & inside[2]
    # What is left out gets indices past the end, before 32 bits would make small ones of large.
    of_classes, of_examples, of_voters = (
        jnp.where(is_vote, index, size).astype(jnp.int32)
        for index, size in zip(given, sizes, strict=True)
    )
    prior = _checks.scalar(smoothing, "smoothing", jnp.result_type(float), above=0)
    steps = _checks.static_integer(num_steps, "num_steps", minimum=0)
    return _dawid_skene((of_classes, of_examples, of_voters), prior, tuple(sizes), steps)


@partial(jax.jit, static_argnums=(2, 3))
def _dawid_skene(
    votes: Votes, smoothing: jax.Array, sizes: tuple[int, ...], steps: int
) -> jax.Array:
    labels, examples, voters = votes
    num_classes, num_examples, num_voters = sizes
    dtype = smoothing.dtype
    counts = jnp.zeros((num_examples, num_classes), dtype).at[examples, labels].add(1, mode="drop")
    totals = counts.sum(axis=1, keepdims=True)
    shares = jnp.where(totals > 0, counts / jnp.maximum(totals, 1), 1 / num_classes)

    def of_step(_: int, shares: jax.Array) -> jax.Array:
        of_votes = shares.at[examples].get(mode="fill", fill_value=0)
        joint = jnp.zeros((num_voters, num_classes, num_classes), dtype)
        # The sums by person, label and class.
        joint = joint.at[voters, labels].add(of_votes, mode="drop") + smoothing
        # Products of many probabilities would be 0.
        logs = jnp.log(joint) - jnp.log(joint.sum(axis=1, keepdims=True))
        of_votes = logs.at[voters, labels].get(mode="fill", fill_value=0)
        found = jnp.zeros_like(shares).at[examples].add(of_votes, mode="drop")
        frequencies = (shares.sum(axis=0) + smoothing) / (num_examples + num_classes * smoothing)
        return jax.nn.softmax(found + jnp.log(frequencies)[None], axis=1)

    start, *_ = _sharding.unify(shares, smoothing)
    found = jax.lax.fori_loop(0, steps, of_step, start)
    return _example.nan_unless(~jnp.isnan(smoothing), found)
