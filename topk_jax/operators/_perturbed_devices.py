"""The selection among perturbed scores on several devices."""

import functools
import math
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp

from topk_jax import _classes, _numerics, _platforms, _sharding
from topk_jax._compilation import compiled
from topk_jax._entries import compare_with
from topk_jax.operators._perturbed_selection import (
    Selection,
    draw_for_classes,
    is_noise,
    map_samples,
    select_by_kernel,
    select_in_rows,
)
from topk_jax.operators._top_k import merge_devices

# The most selected classes of a row that each class is compared with. For more, a scatter costs
# less.
_MOST_COMPARED = 128


@compiled
def select(
    selection: Selection, scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`select_in_rows`, on each device for its examples, along Auto axes also for its classes."""
    batch_ndim, arrays = scores.ndim - 1, (scores, epsilon, source)
    if selection.implementation == "pallas":
        # The kernel needs all classes of an example.
        kernel = functools.partial(select_by_kernel, selection)
        return _sharding.select_by_example(kernel, batch_ndim, *arrays)
    return _sharding.select_by_example(
        functools.partial(select_in_rows, selection),
        batch_ndim,
        *arrays,
        of_split=functools.partial(_mean_of_split, selection),
        of_classes=(0, 2) if is_noise(source) else (0,),
    )


@compiled
def count_selected(selection: Selection, selected: jax.Array, *, like: jax.Array) -> jax.Array:
    """How often each class was selected, [..., L], from `selected` [..., M, k or 1].

    `like`, [..., L], has the number of classes and the dtype of the result.
    """
    num_classes, dtype = like.shape[-1], like.dtype
    *batch_shape, num_samples, size = selected.shape

    def compare(selected: jax.Array) -> jax.Array:
        # One place at a time. XLA would otherwise store the classes of all places as one array.
        chosen = [
            compare_with(selected[..., place : place + 1], num_classes).astype(dtype)
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
        return _platforms.choose(selected, cpu=scatter, default=few)

    return _sharding.select_by_example(count, len(batch_shape), selected)


def _count(num_classes: int, dtype: jnp.dtype, selected: jax.Array) -> jax.Array:
    """The counts of `count_selected` on one device.

    The counts are integers, so the order of the additions does not matter. The gradient is the same
    to the last bit in every run.
    """
    *batch_shape, num_samples, size = selected.shape
    num_rows = math.prod(batch_shape)
    counts = jnp.zeros((num_rows, num_classes), dtype)
    rows = selected.reshape(num_rows, num_samples * size)
    counts = counts.at[jnp.arange(num_rows)[:, None], rows].add(1)
    return counts.reshape(*batch_shape, num_classes)


def mean_selected_of_split(
    selection: Selection,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
    class_axis_name: Hashable,
) -> jax.Array:
    """The selected perturbed scores of split classes, added up, averaged over the samples: [...].

    Communication: as for `_select_of_split`, and the selected scores of each sample.
    """
    hidden, hidden_epsilon = jax.lax.stop_gradient((scores, epsilon))
    epsilons = jnp.broadcast_to(hidden_epsilon, scores.shape[:-1])
    found = _select_of_split(selection, class_axis_name, hidden, epsilons, source)
    shape = found[0].shape
    values, selected, noise = (part.reshape(*shape[:-2], math.prod(shape[-2:])) for part in found)
    followed = _classes.take(scores, selected, class_axis_name) + epsilon * noise
    # A slope of NaN reaches all classes, not only the selected ones.
    followed += 0 * _classes.sum_classes(scores, class_axis_name)[..., None]
    return _numerics.with_slope_of(values, followed).reshape(shape).sum(axis=-1).mean(axis=-1)


def _mean_of_split(
    selection: Selection,
    class_axis_name: Hashable,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`select_in_rows` of split classes."""
    values, selected, noise = _select_of_split(selection, class_axis_name, scores, epsilon, source)
    return values.sum(axis=-1).mean(axis=-1), selected, noise.sum(axis=-1).mean(axis=-1)


def _select_of_split(
    selection: Selection,
    class_axis_name: Hashable,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The selected perturbed scores of split classes, these classes, and their noise.

    All are `[..., M, k or 1]`.

    Communication: each device sends its k largest perturbed scores of each sample, and their
    classes.
    """
    k, only_last, num_samples, _ = selection
    batch_shape, size = scores.shape[:-1], scores.shape[-1]
    # Given noise belongs to the classes of the device, so it is taken by their places.
    first = None if is_noise(source) else jax.lax.axis_index(class_axis_name) * size

    def pick(
        values: jax.Array, places: jax.Array, _: Callable[[jax.Array], jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        return values, places

    own_selection = selection._replace(k=min(k, size), only_last=False)
    own, places = map_samples(pick, own_selection, scores, epsilon, source, first)
    values, classes = (
        part[..., -1:] if only_last else part
        for part in merge_devices(own, places, k, size, class_axis_name)
    )
    shape = (*batch_shape, num_samples, values.shape[-1])
    if is_noise(source):
        noise = _classes.take(source, classes.reshape(shape), class_axis_name)
    else:
        noise = draw_for_classes(source.reshape(-1, 2), num_samples, classes, scores.dtype)
    return values.reshape(shape), classes.reshape(shape), noise.reshape(shape)
