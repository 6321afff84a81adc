"""The selection among perturbed scores on one device, in blocks of rows and samples."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from topk_jax import _compilation
from topk_jax._classes import map_rows
from topk_jax.operators import _normals
from topk_jax.operators._top_k import (
    LONGEST_IN_ONE_PASS,
    pad_for_selection,
    select_in_lists,
    select_kth,
    select_largest,
)

# The largest number of normals drawn at once. On the CPU they fit in the cache; elsewhere they are
# small compared to the memory.
_BLOCK_SIZE_ON_CPU = 2**19
_BLOCK_SIZE_ELSEWHERE = 2**24

# The selected perturbed scores, their classes, and their noise.
_Found = tuple[jax.Array, jax.Array, jax.Array]


class Selection(NamedTuple):
    """The k largest of the perturbed scores in each of M samples, or only the k-th; static."""

    k: int
    only_last: bool
    num_samples: int


def is_noise(source: jax.Array) -> bool:
    """Whether the source of the noise is the noise itself, and not the words of keys."""
    return source.dtype != jnp.uint32


def select_in_rows(selection: Selection, *arrays: jax.Array) -> _Found:
    """`map_samples`; the scores and the noise are added up and averaged over the samples."""
    return means_of(map_samples(selection, None, *arrays))


def means_of(found: _Found) -> _Found:
    """What is found, with the sums of scores and of noise, averaged over the samples, `[...]`."""
    values, classes, noise = found
    return values.sum(axis=-1).mean(axis=-1), classes, noise.sum(axis=-1).mean(axis=-1)


def draw_for_classes(
    words: jax.Array, num_samples: int, classes: jax.Array, dtype: jnp.dtype
) -> jax.Array:
    """The noise of the classes [n, M, ...], from the words of each row [n, 2]."""
    draw_samples = jax.vmap(_normals.normals, (None, 0, 0, None))
    draw_rows = jax.vmap(draw_samples, (0, None, 0, None))
    return draw_rows(words, jnp.arange(num_samples), classes, dtype)


def map_samples(
    selection: Selection,
    first: jax.Array | None,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> _Found:
    """What is selected from each perturbed row of scores [..., L], `[..., M, k or 1]` each.

    The classes are places in the row. It has the scores of the classes from `first` on, or from 0.
    """
    k, only_last = selection.k, selection.only_last
    in_blocks = functools.partial(_map_in_blocks, selection, first)

    def on_cpu(scores: jax.Array, *arrays: jax.Array) -> _Found:
        padded = pad_for_selection(scores, k, only_last=only_last)
        return in_blocks(padded, *arrays, block=_BLOCK_SIZE_ON_CPU)

    elsewhere = functools.partial(in_blocks, block=_BLOCK_SIZE_ELSEWHERE)
    if k <= LONGEST_IN_ONE_PASS:
        elsewhere = functools.partial(_map_at_once, selection, first)
    found = _compilation.choose(scores, epsilon, source, cpu=on_cpu, default=elsewhere)
    values, classes, noise = (part.reshape(*epsilon.shape, *part.shape[1:]) for part in found)
    return values, classes, noise


def _map_in_blocks(
    selection: Selection,
    first: jax.Array | None,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
    *,
    block: int,
) -> _Found:
    """`map_samples` by blocks of that many normals, which are stored and stay in the cache."""
    num_rows, num_classes = epsilon.size, scores.shape[-1]
    integer = _integer(source, first)

    def select_in_samples(row: tuple[jax.Array, jax.Array, jax.Array]) -> _Found:
        scores, epsilon, source = row

        def select(sample: jax.Array) -> _Found:
            # Without a barrier XLA would compute the parts of the generator that do not depend on
            # the sample once for all samples, and store them in arrays of [n, L].
            tied_source, tied_sample = jax.lax.optimization_barrier((source, sample))

            def perturb(
                scores: jax.Array, epsilon: jax.Array, source: jax.Array, sample: jax.Array
            ) -> jax.Array:
                classes = _classes(num_classes, integer, first)
                return scores + epsilon * _draw(source, sample, classes, scores.dtype)

            # XLA would run the generator again for each use.
            stored = _compilation.store(perturb, scores, epsilon, tied_source, tied_sample)
            select = select_kth if selection.only_last else select_largest
            values, selected = select(stored, selection.k)
            return values, selected, _draw(tied_source, tied_sample, selected, scores.dtype)

        return _map(select, jnp.arange(selection.num_samples, dtype=integer), samples_at_once)

    # In a program for any number of rows, which `jax.export` makes, a block is one sample of all.
    rows_at_once, samples_at_once = num_rows, 1
    if isinstance(num_rows, int):
        rows_at_once = max(1, min(num_rows, block // num_classes))
        samples_at_once = max(1, min(selection.num_samples, block // (rows_at_once * num_classes)))
    return _map(select_in_samples, _in_rows(scores, epsilon, source), rows_at_once)


def _map_at_once(
    selection: Selection,
    first: jax.Array | None,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> _Found:
    """`map_samples` by one pass over the scores, which selects while it draws their noise."""
    rows, epsilons, sources = _in_rows(scores, epsilon, source)
    integer = _integer(source, first)
    samples = jnp.arange(selection.num_samples, dtype=integer)

    def draw(words: jax.Array, sample: jax.Array) -> jax.Array:
        classes = _classes(rows.shape[-1], integer, first)
        # Counters of all classes in each sample. XLA would add a key to the classes once for all
        # samples, in another kernel, and store the sums.
        return _draw(words, sample + 0 * classes, classes + 0 * sample, rows.dtype)

    noise = sources
    if not is_noise(source):
        noise = jax.vmap(jax.vmap(draw, in_axes=(None, 0)), in_axes=(0, None))(sources, samples)
    perturbed = rows[:, None] + epsilons[:, None, None] * noise
    if is_noise(source):
        select = select_kth if selection.only_last else select_largest
        found = select(perturbed, selection.k)
    else:
        # One pass, which is fused with the generator.
        found = select_in_lists(perturbed, selection.k)
        if selection.only_last:
            found = (found[0][..., -1:], found[1][..., -1:])

    def noise_of_row(places: jax.Array, source: jax.Array) -> jax.Array:
        return jax.vmap(lambda place, sample: _draw(source, sample, place, rows.dtype))(
            places, samples
        )

    return *found, map_rows(noise_of_row, found[1], sources)


def _in_rows(
    scores: jax.Array, epsilon: jax.Array, source: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The scores [..., L], epsilon [...] and the source of a batch, reshaped to rows [n, ...]."""
    num_rows = epsilon.size
    return (
        scores.reshape(num_rows, scores.shape[-1]),
        epsilon.reshape(num_rows),
        source.reshape(num_rows, *source.shape[epsilon.ndim :]),
    )


def _integer(source: jax.Array, first: jax.Array | None) -> Any:
    """The dtype of samples and classes: a counter's, unless something is taken by them."""
    return jnp.int32 if is_noise(source) or first is not None else jnp.uint32


def _classes(num_classes: int, integer: Any, first: jax.Array | None) -> jax.Array:
    """The classes of a row of scores: from `first` on, or from 0."""
    classes = jnp.arange(num_classes, dtype=integer)
    return classes if first is None else first + classes


def _draw(source: jax.Array, sample: jax.Array, classes: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The noise of some classes of a row, from the words of its key or from the given noise."""
    if is_noise(source):
        # Classes beyond the last are padding and get no noise.
        return source.at[sample, classes].get(mode="fill", fill_value=0)
    return _normals.normals(source, sample, classes, dtype)


def _map(function: Callable[[Any], _Found], operands: Any, at_once: int) -> _Found:
    """Maps the function over the leading axis, `at_once` entries at a time."""
    (count,) = {operand.shape[0] for operand in jax.tree.leaves(operands)}
    if at_once >= count:
        found: _Found = map_rows(function, operands)
        return found
    return jax.lax.map(function, operands, batch_size=at_once)
