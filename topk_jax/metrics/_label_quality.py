"""How well labels fit the probabilities of a classifier that was not trained on them."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _example
from topk_jax._example import Scores
from topk_jax.metrics._tally import tally_by_class

__all__ = ["confident_classes", "confident_joint", "label_margins"]

# How far below its threshold a probability may be, because means are rounded; as in cleanlab.
_ROUNDING = 1e-6


def label_margins(scores: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""How far the score of the label is above the largest score of the other classes.

    .. math::
        m(s, y) = s_y - \max_{j \ne y} s_j

    A label is likely to be wrong if its margin is far below 0, and if the classifier was not
    trained on the example. For probabilities p, (m(p, y) + 1) / 2 is the normalized margin of
    cleanlab.

    Args:
        labels: see `topk_jax.metrics`.
        scores: floating-point scores or probabilities, `[..., L]`, with L at least 2.

    Returns:
        Floating-point, `[...]`. NaN where a score is NaN or +inf or the label is outside [0, L).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
        >>> print(metrics.label_margins(probabilities, jnp.array([0, 2])))
        [ 0.25  -0.625]

    Source: Northcutt, Jiang and Chuang (2021), "Confident learning: estimating uncertainty in
    dataset labels"; Pleiss et al. (2020), "Identifying mislabeled data using the area under the
    margin ranking", for logits.
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
        probabilities: floating-point, `[..., L]`.
        thresholds: real, `[L]`, one for each class; infinity for a class that no example may be
            taken for. `confident_joint` uses the mean probability of the label over the examples
            with this label.

    Returns:
        Integers, `[...]`, from 0 to L - 1, or -1. Among equal probabilities, the lowest index
        counts. -1 where a probability is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.5, 0.375, 0.125]])
        >>> print(metrics.confident_classes(probabilities, jnp.array([0.75, 0.375, 0.375])))
        [-1  2  1]

    Source: Northcutt, Jiang and Chuang (2021), "Confident learning: estimating uncertainty in
    dataset labels", equation 1. If several classes reach their thresholds, cleanlab and this
    function take the most probable class of all, and the paper takes the most probable of these.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    limits = _checks.real_array(thresholds, "thresholds", values.shape[-1:], values.dtype)
    return _confident_classes(values, limits)


def confident_joint(probabilities: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""How many examples with each label confidently belong to each class.

    .. math::
        C_{ij} = \#\{ n : y_n = i, c(p_n) = j \}, \qquad
        t_j = \frac{1}{\#\{ n : y_n = j \}} \sum_{n : y_n = j} p_{nj}

    Here c is `confident_classes` with the thresholds t. On the diagonal, the numbers are at least
    1. The estimated number of wrong labels among the :math:`n_i` examples with the label i is
    :math:`n_i (1 - C_{ii} / \sum_j C_{ij})`.

    Args:
        labels: see `topk_jax.metrics`; an example whose label is outside [0, L) is left out.
        probabilities: floating-point, `[..., L]`, of a classifier that was not trained on the
            example, as in cross-validation.

    Returns:
        Integers, `[L, L]`: the label, and the class. An example with a NaN is left out.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> probabilities = jnp.array([[0.875, 0.125], [0.25, 0.75], [0.25, 0.75], [0.5, 0.5]])
        >>> print(metrics.confident_joint(probabilities, jnp.array([0, 0, 1, 1])))
        [[1 1]
         [0 1]]

    Source: Northcutt, Jiang and Chuang (2021), "Confident learning: estimating uncertainty in
    dataset labels", equations 1 and 2; cleanlab's `compute_confident_joint`, not calibrated.
    """
    values, labels = _example.logits_and_labels(probabilities, labels, name="probabilities")
    return _confident_joint(values, labels)


@jax.jit
def _label_margins(values: jax.Array, labels: jax.Array) -> jax.Array:
    scores = Scores(values, values, labels)
    others = jnp.where(scores.is_label, -jnp.inf, values).max(axis=-1)
    return scores.mark(scores.of_label(values) - others)


@jax.jit
def _confident_classes(probabilities: jax.Array, thresholds: jax.Array) -> jax.Array:
    reached = probabilities >= jnp.broadcast_to(thresholds - _ROUNDING, probabilities.shape)
    only, most_probable = reached.argmax(axis=-1), probabilities.argmax(axis=-1)
    found = jnp.where(reached.sum(axis=-1) > 1, most_probable, only)
    is_confident = reached.any(axis=-1) & ~jnp.isnan(probabilities).any(axis=-1)
    return jnp.where(is_confident, found, -1)


@jax.jit
def _confident_joint(probabilities: jax.Array, labels: jax.Array) -> jax.Array:
    num_classes = probabilities.shape[-1]
    scores = Scores(probabilities, probabilities, labels)
    is_counted = (labels >= 0) & (labels < num_classes) & ~jnp.isnan(probabilities).any(axis=-1)
    own, means = scores.of_label(probabilities), jnp.zeros(num_classes, probabilities.dtype)
    # A float32 sum of 1e5 probabilities of 0.9999 is too large by 10, and then none reaches the
    # mean: what differs from the mean is summed once more.
    for _ in range(2):
        rest = own - scores.of_label(means)
        sums = tally_by_class(rest, labels, num_classes=num_classes, where=is_counted)
        means += sums.total / jnp.maximum(sums.count, 1).astype(means.dtype)
    # Above the rounding: a class of probability 0 is not reached by all examples.
    means = jnp.maximum(means, 2 * _ROUNDING)
    found = _confident_classes(probabilities, jnp.where(sums.count > 0, means, jnp.inf))
    pairs = jnp.where(is_counted & (found >= 0), labels * num_classes + found, -1)
    counts = tally_by_class(pairs >= 0, pairs, num_classes=num_classes**2).total
    joint = counts.reshape(num_classes, num_classes)
    return jnp.where(jnp.eye(num_classes, dtype=bool), jnp.maximum(joint, 1), joint)
