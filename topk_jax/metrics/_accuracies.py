"""Accuracies over examples, over classes, and over groups of classes by size."""

from __future__ import annotations

import jax
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax.metrics._tally import tally, tally_by_class

__all__ = ["accuracy", "macro_accuracy", "shot_accuracy"]


def accuracy(
    hits: ArrayLike, where: ArrayLike | None = None, *, weights: ArrayLike | None = None
) -> jax.Array:
    r"""The share of hits among the examples.

    .. math:: \frac{\sum_i w_i \, h_i}{\sum_i w_i}

    Args:
        hits: booleans, `[...]`, as from `top_k_hits`.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.
            An example with a weight of 0 counts as one that is left out.

    Returns:
        A float scalar in [0, 1]; NaN if no example is included, or
        if a traced weight is negative or not finite.

    Raises:
        TypeError: `hits` or `where` is not boolean, or `weights` is not real.
        ValueError: the shapes do not match, or a concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, where = jnp.array([True, False, True]), jnp.array([True, True, False])
        >>> print(metrics.accuracy(hits), metrics.accuracy(hits, where))
        0.6666667 0.5

    See Also:
        `top_k_hits`, `macro_accuracy`, `shot_accuracy`.

    Source: Garcin (2023), thesis, equations 5.16 and 5.17.
    """
    return tally(_checks.boolean_array(hits, "hits"), where, weights=weights).mean()


def macro_accuracy(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    num_classes: int,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The mean over classes of the share of hits in each class.

    .. math::
        \frac{1}{|C|} \sum_{c \in C} \frac{1}{n_c} \sum_{i : y_i = c} w_i \, h_i, \qquad
        n_c = \sum_{i : y_i = c} w_i, \qquad C = \{ c : n_c > 0 \}

    Args:
        hits: booleans, `[...]`, as from `top_k_hits`.
        labels: integer classes, `[...]`. An example whose label is outside [0, L) is left out.
        num_classes: static number of classes L.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.
            An example with a weight of 0 counts as one that is left out.

    Returns:
        A float scalar in [0, 1]; NaN if no class has an example.

    Raises:
        TypeError: `hits` or `where` is not boolean, `labels` is not integer, `weights` is not real,
            or `num_classes` is not a static integer.
        ValueError: the shapes do not match, `num_classes` is less than 1, or a concrete weight is
            negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, labels = jnp.array([True, False, True]), jnp.array([0, 0, 2])
        >>> print(metrics.macro_accuracy(hits, labels, num_classes=3))
        0.75

    See Also:
        `accuracy`, `shot_accuracy`.

    Source: Garcin (2023), thesis, section 3.3.1.
    """
    hits = _checks.boolean_array(hits, "hits")
    counts = tally_by_class(hits, labels, num_classes=num_classes, where=where, weights=weights)
    return counts.macro_mean()


def shot_accuracy(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    class_counts: ArrayLike,
    few: int = 20,
    many: int = 100,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> dict[str, jax.Array]:
    r"""Macro accuracy over the classes with few, medium and many training examples.

    Each is the mean over the classes of its group, as `macro_accuracy` is over all classes. The
    thesis does not state this, but its numbers imply it: in table 5.2 (cross-entropy, K = 5) all
    three groups are below the accuracy over all examples, which is impossible for means over
    examples.

    Args:
        hits: booleans, `[...]`, as from `top_k_hits`.
        labels: integer classes, `[...]`. An example whose label is outside [0, L) is left out.
        class_counts: integers, `[L]`, the number of training examples of each class.
        few: static; a class with fewer training examples is few-shot.
        many: static, at least `few`; a class with more training examples is many-shot. All other
            classes are medium-shot.
        where: booleans, `[...]`, the examples to include; all if `None`.
        weights: real, `[...]`, how much each example counts: finite, at least 0; all 1 if `None`.
            An example with a weight of 0 counts as one that is left out.

    Returns:
        A dictionary of float scalars in [0, 1] with the keys "few", "medium" and "many"; NaN if no
        class of the group has an example.

    Raises:
        TypeError: `hits` or `where` is not boolean, `labels` or `class_counts` is not integer,
            `weights` is not real, or `few` or `many` is not a static integer.
        ValueError: the shapes do not match, `few` is negative, `many` is less than `few`, or a
            concrete weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, labels = jnp.array([True, False, True, True]), jnp.array([0, 0, 1, 2])
        >>> by_shot = metrics.shot_accuracy(hits, labels, class_counts=jnp.array([5, 20, 300]))
        >>> print({name: float(value) for name, value in by_shot.items()})
        {'few': 0.5, 'medium': 1.0, 'many': 1.0}

    See Also:
        `shot_groups`, `macro_accuracy`.

    Source: Garcin (2023), thesis, tables 4.5 and 5.2.
    """
    hits = _checks.boolean_array(hits, "hits")
    num_classes = _checks.training_counts(class_counts, "class_counts").shape[0]
    counts = tally_by_class(hits, labels, num_classes=num_classes, where=where, weights=weights)
    return counts.shot_means(class_counts=class_counts, few=few, many=many)
