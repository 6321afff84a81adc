"""Groups of the classes by their number of training examples."""

from __future__ import annotations

import jax
from jax.typing import ArrayLike

from topk_jax import _checks

__all__ = ["shot_groups"]


def shot_groups(class_counts: ArrayLike, *, few: int = 20, many: int = 100) -> dict[str, jax.Array]:
    r"""Groups of the classes with few, medium and many training examples.

    .. math::
        n_l < n_{\text{few}}, \qquad n_{\text{few}} \le n_l \le n_{\text{many}}, \qquad
        n_l > n_{\text{many}}

    Args:
        class_counts: integers, `[L]`, the number of training examples of each class.
        few: static; a class with fewer training examples is few-shot.
        many: static, at least `few`; a class with more training examples is many-shot. All other
            classes are medium-shot.

    Returns:
        A dictionary of boolean masks, `[L]`, with the keys "few", "medium" and "many". Each class
        is in exactly one group; in none if a traced count is negative.

    Raises:
        TypeError: `class_counts` is not integer, or `few` or `many` is not a static integer.
        ValueError: `class_counts` is not `[L]` or is negative, `few` is negative, or `many` is less
            than `few`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> for name, classes in metrics.shot_groups(jnp.array([5, 20, 300])).items():
        ...     print(name, classes)
        few [ True False False]
        medium [False  True False]
        many [False False  True]

    See Also:
        `shot_accuracy`.

    Source: Garcin (2023), thesis, tables 4.5 and 5.2.
    """
    counts = _checks.training_counts(class_counts, "class_counts")
    few = _checks.static_integer(few, "few", minimum=0)
    many = _checks.static_integer(many, "many", minimum=few)
    valid = (counts >= 0).all()
    return {
        "few": valid & (counts < few),
        "medium": valid & (counts >= few) & (counts <= many),
        "many": valid & (counts > many),
    }
