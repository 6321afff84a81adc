"""The threshold of split conformal prediction."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics

__all__ = ["conformal_threshold"]


def conformal_threshold(probabilities: ArrayLike, labels: ArrayLike, *, error: float) -> jax.Array:
    r"""The threshold of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \lambda = 1 - \hat q = \text{the } r\text{-th largest } p_{y_i}(x_i), \qquad
        r = \lceil (n + 1)(1 - \varepsilon) \rceil,

    because :math:`\hat q` is a quantile of :math:`1 - p_y`. If r exceeds n it is minus infinity,
    which keeps every class. For an example exchangeable with these,
    :math:`1 - \varepsilon \le P(p_y \ge \lambda)`. If no two examples tie, this probability is at
    most :math:`1 - \varepsilon + 1 / (n + 1)`.

    Args:
        probabilities: floating-point, `[..., L]`, with at least one example.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.

    Returns:
        A scalar for `threshold_set`, in the probabilities' dtype (float32 or float64); NaN if a
        probability is NaN or a label is outside [0, L).

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer, or `error` is not
            a static real number.
        ValueError: the shapes do not match, there is no example, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> print(sets.conformal_threshold(probabilities, jnp.array([0, 1, 1]), error=0.5))
        0.5

    Source: Garcin (2023), thesis, section 2.2.2, equation 2.5.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    _checks.some_examples(values, "probabilities")
    return _conformal_threshold(
        values, labels, math.ceil((labels.size + 1) * (1 - _checks.static_error(error)))
    )


@jax.jit
def _conformal_threshold(probabilities: jax.Array, labels: jax.Array, rank: jax.Array) -> jax.Array:
    """The `rank`-th largest probability of a label, or minus infinity if there are fewer.

    Hazard: 1 - (1 - p) is rounded, so the threshold could exclude the example that it comes from.
    Choice: sort the probabilities themselves. Cost: none.
    """
    of_labels = _numerics.score_of_label(probabilities, labels).reshape(-1)
    ascending = jnp.concatenate([jnp.full(1, -jnp.inf, of_labels.dtype), jnp.sort(of_labels)])
    threshold = ascending[labels.size + 1 - rank]
    return jnp.where(_numerics.valid_examples(probabilities, labels).all(), threshold, jnp.nan)
