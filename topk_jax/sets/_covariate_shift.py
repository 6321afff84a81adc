"""Quantiles of conformal scores for new examples that are drawn from other examples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding

__all__ = ["covariate_shift_quantiles"]


def covariate_shift_quantiles(
    log_weights: ArrayLike,
    calibration_scores: ArrayLike,
    calibration_log_weights: ArrayLike,
    *,
    error: float,
) -> jax.Array:
    r"""A conformal quantile for each new example, if new examples have another distribution.

    With :math:`w(x)` the density of new examples divided by the density of the calibration
    examples:

    .. math::
        \hat q(x) = \min \Big\{ s : \sum_{i : s_i \le s} w(x_i)
        \ge (1 - \varepsilon) \Big( \sum_i w(x_i) + w(x) \Big) \Big\},

    or infinity if there is none. If the labels of equal examples have the same distribution as
    before, a label is missed with a probability of at most :math:`\varepsilon`. A common factor of
    the weights does not change the result. With equal weights, every quantile is the
    `conformal_quantile`.

    The weights may be known, or come from a classifier that distinguishes new examples from
    calibration examples: its logit is log w(x), up to a constant. If the weights are estimated,
    their errors weaken the promise.

    Args:
        log_weights: log w(x) of the new examples, floating-point, `[...]`.
        calibration_scores: the scores of the labels of the calibration examples, floating-point and
            smaller for classes that fit better, `[n]`, at least one.
        calibration_log_weights: log w(x) of the calibration examples, `[n]`; minus infinity for
            examples that new ones are never like.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.

    Returns:
        One quantile per new example, `[...]`, in the scores' dtype (float32 or float64); vmap
        `score_set` over the examples and these. NaN where a weight is NaN or infinity; all are NaN
        if a score or a calibration weight is, or all calibration weights are 0. Weights are added
        up in this dtype: a sum within 16 roundings of the required one suffices.

    Raises:
        TypeError: the scores or weights are not floating-point, or `error` is not a static real
            number.
        ValueError: the shapes of the calibration arrays do not match, there is no example, or
            `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, weights = jnp.array([0.25, 0.5, 0.75]), jnp.array([1.0, 1.0, 4.0])
        >>> print(sets.covariate_shift_quantiles(
        ...     jnp.log(jnp.array([1.0, 2.0, 8.0])), scores, jnp.log(weights), error=0.25))
        [0.75 0.75  inf]

    See Also:
        `label_shift_quantiles`, `conformal_quantile`, `score_set`.

    Source: Tibshirani et al. (2019), "Conformal prediction under covariate shift", section 2.
    """
    scores = _checks.floating_array(calibration_scores, "calibration_scores")
    if scores.ndim != 1:
        raise ValueError(
            f"calibration_scores must be a vector of scores of labels, got shape {scores.shape}."
        )
    known = _checks.real_array(
        calibration_log_weights, "calibration_log_weights", scores.shape, scores.dtype
    )
    given = _checks.floating_numbers(log_weights, "log_weights")
    coverage = float(1 - _checks.static_error(error))
    scores, known = _sharding.gather(scores), _sharding.gather(known)
    return _quantiles(given.astype(scores.dtype), scores, known, coverage)


@jax.jit
def _quantiles(given: jax.Array, scores: jax.Array, known: jax.Array, coverage: float) -> jax.Array:
    # Hazard: weights may overflow. Choice: the largest calibration weight is 1, and a sum that a
    # new weight makes infinite is not reached.
    largest = known.max()
    ascending, of_examples = jax.lax.sort((scores, jnp.exp(known - largest)), num_keys=1)
    sums = jnp.cumsum(of_examples)
    spare = 1.0 - _numerics.rounding_to_spare(sums.dtype)
    reached = jnp.append(ascending, jnp.inf)

    def find(
        given: jax.Array, sums: jax.Array, reached: jax.Array, largest: jax.Array
    ) -> jax.Array:
        required = coverage * (sums[-1] + jnp.exp(given - largest)) * spare
        return reached[jnp.searchsorted(sums, required)]

    quantiles = _sharding.map_examples(find, given.ndim, given, shared=(sums, reached, largest))
    # On the CPU a maximum of thousands of numbers can lose a NaN.
    valid = ~jnp.isnan(scores).any() & ~jnp.isnan(known).any() & jnp.isfinite(largest)
    return _numerics.nan_unless(valid & (given < jnp.inf), quantiles)
