"""Top-k operators smoothed with Gaussian noise, with the gradients of Garcin et al."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators import _normals
from topk_jax.operators._perturbed_selection import (
    Selection,
    draw_for_classes,
    is_noise,
    map_samples,
    means_of,
    select_in_rows,
)
from topk_jax.operators._top_k import merge_devices, move_classes_last

__all__ = ["perturbed_top_k_sum", "perturbed_top_k_value"]

# The most selected classes of a row that each class is compared with. For more, a scatter costs
# less.
_MOST_COMPARED = 128


class Perturbation(NamedTuple):
    """The checked arguments of a perturbed operator besides the scores.

    The source is the noise, `[..., M, L]`, or the two words of one key per example, `[..., 2]`.
    """

    selection: Selection
    epsilon: jax.Array
    source: jax.Array


def perturbed_top_k_value(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None = None,
    axis: int = -1,
) -> jax.Array:
    r"""The k-th largest score, averaged over Gaussian perturbations of the scores.

    .. math::
        \hat\tau_{k,\varepsilon,M}(s) = \frac1M \sum_{m=1}^M (s + \varepsilon Z_m)_{[k]}
        = \mathrm{top}\Sigma_{k,\varepsilon,M}(s) - \mathrm{top}\Sigma_{k-1,\varepsilon,M}(s),
        \qquad Z_m \sim \mathcal N(0, I_L)

    The gradient is the share of the perturbations in which each class has rank k. Only reverse
    mode is supported; second derivatives are zero.

    Args:
        scores, axis: see `topk_jax.operators`.
        key: one random key, or an array of keys of the batch's shape; `None` if `noise` is given.
            With one key per example, the noise of an example does not depend on its batch.
        k: static rank, from 1 (the largest) to L.
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_value`. It has a gradient.
        num_samples: static number M of perturbations, at least 1.
        noise: standard normal noise to use instead of a key, `[M, *scores.shape]`, a constant.

    Returns:
        The scores' shape without `axis`.

    Example:
        >>> noise = jnp.array([[0.2, -0.1, 0.1], [0.1, 0.1, -0.1], [-0.1, -0.1, 0.1]])
        >>> value = perturbed_top_k_value(
        ...     None, jnp.array([2.4, 2.6, 2.3]), 2, epsilon=1.0, num_samples=3, noise=noise)
        >>> print(f"{value:.4f}")
        2.4667

    Source: Garcin et al. (2022); thesis, definition 4.3.4 and equation 4.12.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    selection = Selection(k, True, num_samples)
    return compute_perturbed(last, check_perturbation(selection, last, key, noise, epsilon, axis))


def perturbed_top_k_sum(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None = None,
    axis: int = -1,
) -> jax.Array:
    r"""The sum of the k largest scores, averaged over Gaussian perturbations of the scores.

    .. math::
        \frac1M \sum_{m=1}^M \mathrm{top}\Sigma_k(s + \varepsilon Z_m), \qquad
        \nabla = \frac1M \sum_{m=1}^M \arg \mathrm{top}\Sigma_k(s + \varepsilon Z_m),
        \qquad Z_m \sim \mathcal N(0, I_L)

    The gradient is the frequency of each class among the k largest. Only reverse mode is supported;
    second derivatives are zero.

    Args:
        scores, axis: see `topk_jax.operators`.
        key, epsilon, num_samples, noise: as for `perturbed_top_k_value`.
        k: static number of scores to add up, from 1 to L.

    Returns:
        The scores' shape without `axis`.

    Example:
        >>> total = perturbed_top_k_sum(
        ...     jax.random.key(0), jnp.array([2.5, 2.75, 2.25]), 2, epsilon=1e-3, num_samples=10)
        >>> print(f"{total:.2f}")
        5.25

    Source: Garcin et al. (2022); thesis, equations 4.6, 4.7 and 4.11. Berthet et al. (2020),
    "Learning with differentiable perturbed optimizers".
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    selection = Selection(k, False, num_samples)
    return compute_perturbed(last, check_perturbation(selection, last, key, noise, epsilon, axis))


def check_perturbation(
    selection: Selection,
    scores: jax.Array,
    key: Any,
    noise: ArrayLike | None,
    epsilon: ArrayLike,
    axis: int = -1,
) -> Perturbation:
    """The arguments of an operator on checked scores [..., L] and a checked rank, or raises.

    `axis` is the axis of the classes in the user's scores and noise.
    """
    num_samples = _checks.static_integer(selection.num_samples, "num_samples", minimum=1)
    epsilon = _checks.scalar(epsilon, "epsilon", scores.dtype, at_least=0)
    if (key is None) == (noise is None):
        given = "neither" if key is None else "both"
        raise ValueError(f"exactly one of key and noise must be given, got {given}.")
    if noise is None:
        batch_shape = scores.shape[:-1]
        keys = _checks.random_keys(key, "key", batch_shape)
        # One key with a single example is that example's key, so `vmap` over keys changes nothing.
        source = _words(keys.reshape(1) if scores.ndim == 1 else keys, batch_shape)
    else:
        source = _check_noise(noise, num_samples, scores, axis)
    return Perturbation(selection._replace(num_samples=num_samples), epsilon, source)


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
    return jax.random.wrap_key_data(_words(key, batch_shape), impl="threefry2x32")


def _words(keys: jax.Array, batch_shape: tuple[int, ...]) -> jax.Array:
    return _normals.row_words(keys, math.prod(batch_shape)).reshape(*batch_shape, 2)


def compute_perturbed(
    scores: jax.Array, perturbation: Perturbation, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The perturbed operator of checked scores [..., L], whose classes may be split: [...]."""
    selection, epsilon, source = perturbation
    batch_shape = scores.shape[:-1]
    if math.prod(batch_shape) == 0:
        return jnp.zeros(batch_shape, scores.dtype)
    zeros = jnp.zeros_like(source).sum(axis=tuple(range(len(batch_shape), source.ndim)))
    # The gradients of a custom rule must vary over the same devices as its arguments, so zeros of
    # the other arguments are added. They also carry a NaN in epsilon to the gradients.
    scores += (zeros.astype(scores.dtype) + 0 * epsilon)[..., None]
    if class_axis_name is None:
        epsilons = epsilon + jnp.zeros_like(scores[..., 0])
        values = _mean_selected(selection, scores, epsilons, source)
    else:
        values = _mean_selected_of_split(selection, scores, epsilon, source, class_axis_name)
    if is_noise(source):
        # The selection could hide a NaN in the noise, as it could in the scores.
        scores += jnp.where(jnp.isnan(source).any(axis=-2), jnp.nan, 0.0).astype(scores.dtype)
    return _classes.nan_where_invalid_scores(values, scores, class_axis_name)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean_selected(
    selection: Selection, scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> jax.Array:
    """The sum of the selected perturbed scores [..., L], averaged over the samples: [...].

    Reverse mode through the selection would store the perturbed scores and scatter into [M, n, L].
    """
    return _select(selection, scores, epsilon, source)[0]


def _mean_selected_forward(
    selection: Selection, scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> tuple[jax.Array, Any]:
    values, selected, slope = _select(selection, scores, epsilon, source)
    # Scores without rows pass the number of classes and the dtype to the backward pass.
    no_scores = jnp.zeros((0, scores.shape[-1]), scores.dtype)
    return values, (selected, slope, no_scores)


def _mean_selected_backward(
    selection: Selection, residuals: Any, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    selected, slope, no_scores = residuals
    counts = _count_selected(selection, selected, like=no_scores)
    shares = cotangent / selection.num_samples
    return counts * shares[..., None], slope * cotangent, None


_mean_selected.defvjp(_mean_selected_forward, _mean_selected_backward)


@compiled
def _select(
    selection: Selection, scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`select_in_rows`, on each device for its examples, along Auto axes also for its classes."""
    batch_ndim, arrays = scores.ndim - 1, (scores, epsilon, source)
    return _sharding.select_by_example(
        functools.partial(select_in_rows, selection),
        batch_ndim,
        *arrays,
        of_split=lambda *names_and_arrays: means_of(_select_of_split(selection, *names_and_arrays)),
        of_classes=(0, 2) if is_noise(source) else (0,),
    )


@compiled
def _count_selected(selection: Selection, selected: jax.Array, *, like: jax.Array) -> jax.Array:
    """How often each class was selected, [..., L], from `selected` [..., M, k or 1].

    `like`, [..., L], has the number of classes and the dtype of the result.
    """
    num_classes, dtype = like.shape[-1], like.dtype
    *batch_shape, num_samples, size = selected.shape

    def compare(selected: jax.Array) -> jax.Array:
        # One place at a time. XLA would otherwise store the classes of all places as one array.
        chosen = [
            jax.nn.one_hot(selected[..., place : place + 1], num_classes, dtype=dtype)
            for place in range(size)
        ]
        return functools.reduce(jnp.add, chosen).sum(axis=(-3, -2))

    if selection.only_last and _sharding.is_split_later(selected):
        # The compiler splits comparisons like the classes. It would compute a scatter for all
        # classes on each device.
        return compare(selected)
    scatter = functools.partial(_count, num_classes, dtype)
    few = compare if num_samples * size <= _MOST_COMPARED else scatter

    def count(selected: jax.Array) -> jax.Array:
        return _compilation.choose(selected, cpu=scatter, default=few)

    return _sharding.select_by_example(count, len(batch_shape), selected)


def _count(num_classes: int, dtype: jnp.dtype, selected: jax.Array) -> jax.Array:
    """The counts on one device: integers, the same in any order of the additions."""
    *batch_shape, num_samples, size = selected.shape
    num_rows = math.prod(batch_shape)
    counts = jnp.zeros((num_rows, num_classes), dtype)
    rows = selected.reshape(num_rows, num_samples * size)
    counts = counts.at[jnp.arange(num_rows)[:, None], rows].add(1)
    return counts.reshape(*batch_shape, num_classes)


def _mean_selected_of_split(
    selection: Selection,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
    class_axis_name: Hashable,
) -> jax.Array:
    """The selected perturbed scores of split classes, summed, averaged over the samples: [...]."""
    hidden, hidden_epsilon = jax.lax.stop_gradient((scores, epsilon))
    epsilons = jnp.broadcast_to(hidden_epsilon, scores.shape[:-1])
    found = _select_of_split(selection, class_axis_name, hidden, epsilons, source)
    shape = found[0].shape
    values, selected, noise = (part.reshape(*shape[:-2], math.prod(shape[-2:])) for part in found)
    followed = _classes.take(scores, selected, class_axis_name) + epsilon * noise
    # A slope of NaN reaches all classes, not only the selected ones.
    followed += 0 * _classes.sum_classes(scores, class_axis_name)[..., None]
    return _classes.with_slope_of(values, followed).reshape(shape).sum(axis=-1).mean(axis=-1)


def _select_of_split(
    selection: Selection,
    class_axis_name: Hashable,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The selected perturbed scores of split classes, these, and their noise, `[..., M, k or 1]`.

    Each device sends its k largest perturbed scores of each sample, and their classes.
    """
    k, only_last, num_samples = selection
    size = scores.shape[-1]
    # Given noise belongs to the classes of the device, so it is taken by their places.
    first = None if is_noise(source) else jax.lax.axis_index(class_axis_name) * size
    own_selection = selection._replace(k=min(k, size), only_last=False)
    own, places, _ = map_samples(own_selection, first, scores, epsilon, source)
    values, classes = (
        part[..., -1:] if only_last else part
        for part in merge_devices(own, places, k, size, class_axis_name)
    )
    if is_noise(source):
        noise = _classes.take(source, classes, class_axis_name)
    else:
        rows = classes.reshape(-1, *classes.shape[-2:])
        noise = draw_for_classes(source.reshape(-1, 2), num_samples, rows, scores.dtype)
    return values, classes, noise.reshape(values.shape)
