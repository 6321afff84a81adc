"""Wrong labels: how well they fit a classifier, and whom to trust of several people who vote."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _sharding
from topk_jax._example import Scores
from topk_jax.metrics._tally import tally_by_class

__all__ = ["confident_classes", "confident_joint", "dawid_skene", "label_margins", "voter_weights"]

# How far below its threshold a probability may be, because means are rounded; as in cleanlab.
_ROUNDING = 1e-6


def label_margins(scores: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""How far the score of the label is above the largest score of the other classes.

    .. math:: m(s, y) = s_y - \max_{j \ne y} s_j

    A label is likely to be wrong if its margin is far below 0, and if the classifier was not
    trained on the example. Of probabilities, (m + 1) / 2 is the normalized margin of cleanlab.

    Args:
        scores, labels: see `topk_jax.metrics`; L is at least 2.

    Returns:
        Floating-point, `[...]`. NaN where a score is NaN or +inf or the label is outside [0, L).

    Example:
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
        >>> print(label_margins(probabilities, jnp.array([0, 2])))
        [ 0.25  -0.625]

    Source: Northcutt, Jiang and Chuang (2021), "Confident learning"; Pleiss et al. (2020).
    """
    values, labels = _example.logits_and_labels(scores, labels, name="scores")
    if values.shape[-1] < 2:
        raise ValueError(f"scores must have at least two classes, got shape {values.shape}.")
    return _label_margins(values, labels)


def confident_classes(probabilities: ArrayLike, thresholds: ArrayLike) -> jax.Array:
    r"""The class that an example most likely belongs to, if it reaches the threshold of a class.

    .. math::
        c(p) = \begin{cases}
            -1 & \text{if } A = \emptyset \\
            j & \text{if } A = \{ j \} \\
            \arg\max_j p_j & \text{otherwise}
        \end{cases}
        \qquad A = \{ j : p_j \ge t_j - 10^{-6} \}

    Args:
        probabilities: see `topk_jax.metrics`.
        thresholds: real, `[L]`, one for each class; infinity for a class that no example may be
            taken for. `confident_joint` has the mean probability of the label over its examples.

    Returns:
        Integers, `[...]`, from 0 to L - 1, or -1, also where a probability is NaN. Among equal
        probabilities, the lowest index counts.

    Example:
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.5, 0.375, 0.125]])
        >>> print(confident_classes(probabilities, jnp.array([0.75, 0.375, 0.375])))
        [-1  2  1]

    Source: Northcutt, Jiang and Chuang (2021), equation 1; several reached thresholds as cleanlab.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    limits = _checks.real_array(thresholds, "thresholds", values.dtype, values.shape[-1:])
    reached = values >= jnp.broadcast_to(limits - _ROUNDING, values.shape)
    only, most_probable = reached.argmax(axis=-1), values.argmax(axis=-1)
    found = jnp.where(reached.sum(axis=-1) > 1, most_probable, only)
    is_confident = reached.any(axis=-1) & ~jnp.isnan(values).any(axis=-1)
    return jnp.where(is_confident, found, -1)


def confident_joint(probabilities: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""How many examples with each label confidently belong to each class.

    .. math::
        C_{ij} = \#\{ n : y_n = i, c(p_n) = j \}, \qquad
        t_j = \frac{1}{\#\{ n : y_n = j \}} \sum_{n : y_n = j} p_{nj}

    Here c is `confident_classes` with the thresholds t. On the diagonal, the numbers are at least
    1. The estimated number of wrong labels among the :math:`n_i` examples with the label i is
    :math:`n_i (1 - C_{ii} / \sum_j C_{ij})`, if the classifier was not trained on the examples.

    Args:
        probabilities, labels: see `topk_jax.metrics`.

    Returns:
        Integers, `[L, L]`: the label, and the class. An example with a NaN, or whose label is
        outside [0, L), is left out.

    Example:
        >>> probabilities = jnp.array([[0.875, 0.125], [0.25, 0.75], [0.25, 0.75], [0.5, 0.5]])
        >>> print(confident_joint(probabilities, jnp.array([0, 0, 1, 1])))
        [[1 1]
         [0 1]]

    Source: Northcutt, Jiang and Chuang (2021), equations 1 and 2; cleanlab, not calibrated.
    """
    values, labels = _example.logits_and_labels(probabilities, labels, name="probabilities")
    return _confident_joint(values, labels)


def voter_weights(
    num_labels: ArrayLike, *, alpha: ArrayLike = 0.5, beta: ArrayLike = 0.2, offset: ArrayLike = 1.0
) -> jax.Array:
    r"""The weight of a person in a vote, by the number of species that the person has named.

    .. math:: w_u = n_u^\alpha - n_u^\beta + b_0

    Args:
        num_labels: how many different classes each person has named, `[...]`, at least 0.
        alpha, beta: scalars, at least 0.
        offset: scalar :math:`b_0`, at least 0: the weight of a person with one class, which the
            authors do not give.

    Returns:
        Floats, `[...]`; NaN where a traced number is negative.

    Example:
        >>> print(voter_weights(jnp.array([1, 10, 100])).round(2))
        [1.   2.58 8.49]

    Source: Garcin (2023), thesis, section 3.8.1.
    """
    number = _checks.weights_of_examples(num_labels, "num_labels", jnp.shape(num_labels))
    given = {"alpha": alpha, "beta": beta, "offset": offset}
    a, b, c = (_checks.scalar(one, name, number.dtype, at_least=0) for name, one in given.items())
    # 1 to the power of a NaN is 1.
    return _classes.nan_unless(~jnp.isnan(a + b + c), number**a - number**b + c)


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
        >>> # Two agree on both examples; the third always says 0.
        >>> examples, voters = jnp.array([0, 1] * 3), jnp.array([0, 0, 1, 1, 2, 2])
        >>> print(dawid_skene(jnp.array([0, 1, 0, 1, 0, 0]), examples, voters,
        ...     num_examples=2, num_voters=3, num_classes=2).round(2))
        [[1. 0.]
         [0. 1.]]

    Source: Dawid and Skene (1979), "Maximum likelihood estimation of observer error-rates".
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


@jax.jit
def _label_margins(values: jax.Array, labels: jax.Array) -> jax.Array:
    scores = Scores(values, values, labels)
    return scores.mark(scores.of_label(values) - scores.others().max(axis=-1))


@jax.jit
def _confident_joint(probabilities: jax.Array, labels: jax.Array) -> jax.Array:
    num_classes = probabilities.shape[-1]
    scores = Scores(probabilities, probabilities, labels)
    is_counted = scores.is_class & ~jnp.isnan(probabilities).any(axis=-1)
    own, means = scores.of_label(probabilities), jnp.zeros(num_classes, probabilities.dtype)
    # A float32 sum of 1e5 probabilities of 0.9999 is too large by 10, and then none reaches the
    # mean: what differs from the mean is summed once more.
    for _ in range(2):
        rest = own - scores.of_label(means)
        sums = tally_by_class(rest, labels, num_classes=num_classes, where=is_counted)
        means += sums.total / jnp.maximum(sums.count, 1).astype(means.dtype)
    # Above the rounding: a class of probability 0 is not reached by all examples.
    means = jnp.maximum(means, 2 * _ROUNDING)
    found = confident_classes(probabilities, jnp.where(sums.count > 0, means, jnp.inf))
    pairs = jnp.where(is_counted & (found >= 0), labels * num_classes + found, -1)
    counts = tally_by_class(pairs >= 0, pairs, num_classes=num_classes**2).total
    joint = counts.reshape(num_classes, num_classes)
    return jnp.where(jnp.eye(num_classes, dtype=bool), jnp.maximum(joint, 1), joint)


@partial(jax.jit, static_argnums=(2, 3))
def _dawid_skene(
    votes: tuple[jax.Array, ...], smoothing: jax.Array, sizes: tuple[int, ...], steps: int
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
    return _classes.nan_unless(~jnp.isnan(smoothing), found)
