"""Top-k operators smoothed with Gaussian noise, with the gradients of Garcin et al."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax.operators import _normals, _perturbed_devices
from topk_jax.operators._perturbed_selection import Selection, is_noise
from topk_jax.operators._top_k import move_classes_last

__all__ = ["perturbed_top_k_sum", "perturbed_top_k_value"]


class Perturbation(NamedTuple):
    """The checked arguments of a perturbed operator besides the scores.

    Attributes:
        selection: the static ones.
        epsilon: the standard deviation of the noise, `[]`.
        source: the noise, `[..., M, L]`, or the two words of one key per example, `[..., 2]`.
    """

    selection: Selection
    epsilon: jax.Array
    source: jax.Array


def perturbed_top_k_sum(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None = None,
    axis: int = -1,
    implementation: Literal["xla", "pallas"] = "xla",
) -> jax.Array:
    r"""The sum of the k largest scores, averaged over Gaussian perturbations of the scores.

    .. math::
        \frac1M \sum_{m=1}^M \mathrm{top}\Sigma_k(s + \varepsilon Z_m), \qquad
        \nabla = \frac1M \sum_{m=1}^M \arg \mathrm{top}\Sigma_k(s + \varepsilon Z_m),
        \qquad Z_m \sim \mathcal N(0, I_L)

    The gradient is the frequency of each class among the k largest. The value and the gradient are
    unbiased estimates of the value and gradient of the smoothed operator. The backward pass stores
    only the selected coordinates. Only reverse mode is supported. The gradient is piecewise
    constant, so second derivatives are zero.

    The normals and the bounds in float32 are the same as for `perturbed_top_k_value`.

    Args:
        key: one random key, or an array of keys of the batch's shape; `None` if `noise` is given.
            With one key per example, the noise of an example does not depend on its batch. With one
            key for all, it depends on the position of the example in the batch.
        scores: floating-point array with L entries along `axis`.
        k: static number of scores to add up, from 1 to L.
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_sum`. May be traced, and has a gradient.
        num_samples: static number M of perturbations, at least 1.
        noise: standard normal noise to use instead of a key, `[M, *scores.shape]`. It is a
            constant: no gradient flows to it.
        axis: the axis of the classes.
        implementation: "xla", or "pallas" for one kernel on TPU, with the same noise: for float32,
            with a key, and a batch size that is known. No measurement has shown yet that it is
            faster. On the CPU it is slow and only for tests; in `shard_map` it needs
            `check_vma=False`. On GPU both are the same.

    Returns:
        The scores' shape without `axis`, in float32 or float64; NaN where a score is NaN or +inf.

    Raises:
        TypeError: `scores` or `noise` is not floating-point, `k`, `num_samples` or `axis` is not a
            static integer, or `key` is not a random key.
        ValueError: an argument is outside its range or has the wrong shape, or not exactly one of
            `key` and `noise` is given.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.5, 2.75, 2.25, 0.5])
        >>> def smoothed(scores):
        ...     return operators.perturbed_top_k_sum(
        ...         jax.random.key(0), scores, 2, epsilon=1e-3, num_samples=10)
        >>> value, gradient = jax.value_and_grad(smoothed)(scores)
        >>> print(f"{value:.2f}", gradient)
        5.25 [1. 1. 0. 0.]

    See Also:
        `perturbed_top_k_value`, `top_k_sum`.

    Source: Garcin et al. (2022); thesis, equations 4.6, 4.7 and 4.11. Berthet et al. (2020),
    "Learning with differentiable perturbed optimizers".
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    selection = Selection(k, False, num_samples, implementation)
    return compute_perturbed(last, check_perturbation(selection, last, key, noise, epsilon, axis))


def perturbed_top_k_value(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None = None,
    axis: int = -1,
    implementation: Literal["xla", "pallas"] = "xla",
) -> jax.Array:
    r"""The k-th largest score, averaged over Gaussian perturbations of the scores.

    .. math::
        \hat\tau_{k,\varepsilon,M}(s) = \frac1M \sum_{m=1}^M (s + \varepsilon Z_m)_{[k]}
        = \mathrm{top}\Sigma_{k,\varepsilon,M}(s) - \mathrm{top}\Sigma_{k-1,\varepsilon,M}(s),
        \qquad Z_m \sim \mathcal N(0, I_L)

    The gradient is the share of the perturbations in which each class has rank k. Only reverse
    mode is supported. The gradient is piecewise constant, so second derivatives are zero.

    A normal is one of :math:`2^{23}` numbers; the largest is 5.29. So the expected largest of L
    equal scores is too low by 7e-5 epsilon at L = 10,000, and by 7e-4 epsilon at 100,000. With
    given noise, the gradient is exact, and the value is right to :math:`5 (k + 5) 2^{-23}` in
    float32.

    Args:
        key: one random key, or an array of keys of the batch's shape; `None` if `noise` is given.
            With one key per example, the noise of an example does not depend on its batch. With one
            key for all, it depends on the position of the example in the batch.
        scores: floating-point array with L entries along `axis`.
        k: static rank, from 1 (the largest) to L.
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_value`. May be traced, and has a gradient.
        num_samples: static number M of perturbations, at least 1.
        noise: standard normal noise to use instead of a key, `[M, *scores.shape]`. It is a
            constant: no gradient flows to it.
        axis: the axis of the classes.
        implementation: "xla", or "pallas" for one kernel on TPU, with the same noise: for float32,
            with a key, and a batch size that is known. No measurement has shown yet that it is
            faster. On the CPU it is slow and only for tests; in `shard_map` it needs
            `check_vma=False`. On GPU both are the same.

    Returns:
        The scores' shape without `axis`, in float32 or float64; NaN where a score is NaN or +inf.

    Raises:
        TypeError: `scores` or `noise` is not floating-point, `k`, `num_samples` or `axis` is not a
            static integer, or `key` is not a random key.
        ValueError: an argument is outside its range or has the wrong shape, or not exactly one of
            `key` and `noise` is given.

    Example:
        The example of the paper, with its three noise vectors:

        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.4, 2.6, 2.3, 0.5])
        >>> noise = jnp.array(
        ...     [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]])
        >>> def smoothed(scores):
        ...     return operators.perturbed_top_k_value(
        ...         None, scores, 2, epsilon=1.0, num_samples=3, noise=noise)
        >>> value, gradient = jax.value_and_grad(smoothed)(scores)
        >>> print(f"{value:.4f}")
        2.4667
        >>> print(gradient.round(4))
        [0.3333 0.3333 0.3333 0.    ]

    See Also:
        `expected_top_k_value`, `perturbed_top_k_sum`, `top_k_value`.

    Source: Garcin et al. (2022); thesis, definition 4.3.4, equation 4.12 and its illustration.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    selection = Selection(k, True, num_samples, implementation)
    return compute_perturbed(last, check_perturbation(selection, last, key, noise, epsilon, axis))


def check_perturbation(
    selection: Selection,
    scores: jax.Array,
    key: Any,
    noise: ArrayLike | None,
    epsilon: ArrayLike,
    axis: int = -1,
    class_axis_name: Hashable | None = None,
) -> Perturbation:
    """The arguments of an operator on checked scores [..., L], or raises.

    The rank in `selection` is checked, the other fields are the user's. `axis` is the axis of the
    classes in the user's scores and noise.
    """
    num_samples = _checks.static_integer(selection.num_samples, "num_samples", minimum=1)
    epsilon = _checks.scalar(epsilon, "epsilon", scores.dtype, at_least=0)
    if (key is None) == (noise is None):
        given = "neither" if key is None else "both"
        raise ValueError(f"exactly one of key and noise must be given, got {given}.")
    _check_implementation(selection.implementation, scores.dtype, noise, class_axis_name)
    if noise is None:
        source = _words_of_key(key, scores)
    else:
        source = _check_noise(noise, num_samples, scores, axis)
    return Perturbation(selection._replace(num_samples=num_samples), epsilon, source)


def _check_implementation(
    implementation: str,
    dtype: jnp.dtype,
    noise: ArrayLike | None,
    class_axis_name: Hashable | None,
) -> None:
    if _checks.choice(implementation, "implementation", ("xla", "pallas")) == "xla":
        return
    reasons = {
        "with noise instead of a key": noise is not None,
        "for classes that are split over devices": class_axis_name is not None,
        f"for scores in {dtype}": dtype != jnp.float32,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f'implementation must be "xla" {reason}, got "pallas".')


def _words_of_key(key: Any, scores: jax.Array) -> jax.Array:
    batch_shape = scores.shape[:-1]
    keys = _checks.random_keys(key, "key", batch_shape)
    # One key with a single example is that example's key, so `vmap` over keys changes nothing.
    keys = keys.reshape(1) if scores.ndim == 1 else keys
    return _normals.row_words(keys, math.prod(batch_shape)).reshape(*batch_shape, 2)


def _check_noise(noise: ArrayLike, num_samples: int, scores: jax.Array, axis: int) -> jax.Array:
    """The noise with its samples before the classes, `[..., M, L]`."""
    given = _checks.floating_array(noise, "noise")
    axis %= scores.ndim
    batch_shape = scores.shape[:-1]
    expected = (num_samples, *batch_shape[:axis], scores.shape[-1], *batch_shape[axis:])
    if given.shape != expected:
        raise ValueError(
            f"noise must have shape {expected} (num_samples before the shape of the scores), "
            f"got shape {given.shape}."
        )
    last = jnp.moveaxis(given, axis + 1, -1).astype(scores.dtype)
    return jnp.moveaxis(last, 0, -2)


def derive_keys(key: Any, batch_shape: tuple[int, ...]) -> jax.Array:
    """A key per example, `[...]`, with the noise that the example has under one key for all."""
    key = _checks.random_keys(key, "key", batch_shape)
    if key.ndim == len(batch_shape):
        return key
    words = _normals.row_words(key, math.prod(batch_shape)).reshape(*batch_shape, 2)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def compute_perturbed(
    scores: jax.Array, perturbation: Perturbation, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The perturbed operator of checked scores [..., L], whose classes may be split: [...]."""
    selection, epsilon, source = perturbation
    batch_shape = scores.shape[:-1]
    if math.prod(batch_shape) == 0:
        return jnp.zeros(batch_shape, scores.dtype)
    zeros = jnp.zeros_like(source).sum(axis=tuple(range(len(batch_shape), source.ndim)))
    # Under shard_map the type of an array shows whether it varies over the devices. The gradients
    # of a custom rule must have the types of its arguments. Adding zeros that are computed from the
    # other arguments gives all of them one type; its transpose sums over devices. This also carries
    # a NaN in epsilon to the gradients.
    scores += (zeros.astype(scores.dtype) + 0 * epsilon)[..., None]
    if class_axis_name is None:
        epsilons = epsilon + jnp.zeros_like(scores[..., 0])
        values = _mean_selected(selection, scores, epsilons, source)
    else:
        values = _perturbed_devices.mean_selected_of_split(
            selection, scores, epsilon, source, class_axis_name
        )
    if is_noise(source):
        # The selection could hide a NaN in the noise, as it could in the scores.
        scores += jnp.where(jnp.isnan(source).any(axis=-2), jnp.nan, 0.0).astype(scores.dtype)
    return _numerics.nan_where_invalid_scores(values, scores, class_axis_name)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean_selected(
    selection: Selection, scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> jax.Array:
    """The sum of the selected perturbed scores, averaged over the samples: [...].

    `scores` is [..., L] and `epsilon` is [...]. The rule is custom, because reverse mode through
    the selection would store the perturbed scores and scatter into [M, n, L].
    """
    return _perturbed_devices.select(selection, scores, epsilon, source)[0]


def _mean_selected_forward(
    selection: Selection, scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> tuple[jax.Array, Any]:
    values, selected, slope = _perturbed_devices.select(selection, scores, epsilon, source)
    # Scores without rows pass the number of classes and the dtype to the backward pass.
    no_scores = jnp.zeros((0, scores.shape[-1]), scores.dtype)
    return values, (selected, slope, no_scores)


def _mean_selected_backward(
    selection: Selection, residuals: Any, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    selected, slope, no_scores = residuals
    counts = _perturbed_devices.count_selected(selection, selected, like=no_scores)
    shares = cotangent / selection.num_samples
    return counts * shares[..., None], slope * cotangent, None


_mean_selected.defvjp(_mean_selected_forward, _mean_selected_backward)
