"""The selection among perturbed scores as one kernel for TPU.

The plain selection stores the perturbed scores, because XLA would otherwise draw the noise again
for each pass over them. The kernel draws the noise in registers and reads the scores once for up to
eight samples. The largest entries so far are kept sorted, one array for each rank.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from topk_jax.operators import _normals

# The number of entries of a row that are perturbed at once.
_BLOCK = 512
# The number of samples that share a pass over the scores: a power of two, like the rows of a TPU's
# tile.
_SAMPLES = 8
_NOTHING = np.int32(-1)

# The values and the classes of the largest entries so far, from the largest one: [samples, 1] each.
_Ranked = tuple[list[jax.Array], list[jax.Array]]


def select_perturbed(
    scores: jax.Array,
    epsilon: jax.Array,
    words: jax.Array,
    k: int,
    num_samples: int,
    *,
    only_last: bool,
    interpret: bool,
) -> tuple[jax.Array, jax.Array]:
    """The k largest perturbed scores of each row and sample, and their classes.

    Equal scores rank in the order of their classes.

    Args:
        scores: float32, `[n, L]`; -inf for classes that cannot be selected before others.
        epsilon: the standard deviation of the noise, `[n]`.
        words: a row of the result of `_normals.row_words` for each row, `[n, 2]`.
        k: from 1 to L.
        num_samples: M.
        only_last: whether only the k-th largest one is wanted.
        interpret: whether it runs as ordinary operations, for tests on the CPU.

    Returns:
        Values and classes, `[n, M, k]`, or `[n, M, 1]` with `only_last`.
    """
    num_rows, num_classes = scores.shape
    at_once = min(_SAMPLES, pl.next_power_of_2(num_samples))
    groups = pl.cdiv(num_samples, at_once)
    padding = -num_classes % _BLOCK
    padded = jnp.pad(scores, ((0, 0), (0, padding)), constant_values=-jnp.inf)
    size = 1 if only_last else k
    # In shard_map, this describes over which devices the results vary.
    varies = jax.typeof(scores).mat
    kernel = functools.partial(_kernel, k, only_last, at_once, num_classes)
    # A middle axis of 1: blocks of a TPU's arrays have all of the last two axes, or tiles of them.
    blocks = [(None, 1, length) for length in (padded.shape[-1], 1, 2)]
    values, classes = pl.pallas_call(
        kernel,
        grid=(num_rows, groups),
        in_specs=[pl.BlockSpec(block, lambda row, _: (row, 0, 0)) for block in blocks],
        out_specs=[pl.BlockSpec((None, at_once, size), lambda row, group: (row, group, 0))] * 2,
        out_shape=[
            jax.ShapeDtypeStruct((num_rows, groups * at_once, size), dtype, manual_axis_type=varies)
            for dtype in (jnp.float32, jnp.int32)
        ],
        interpret=interpret,
    )(padded[:, None], epsilon[:, None, None], words[:, None])
    return values[:, :num_samples], classes[:, :num_samples]


def _kernel(
    k: int,
    only_last: bool,
    at_once: int,
    num_classes: int,
    scores: jax.Array,
    epsilon: jax.Array,
    words: jax.Array,
    values: jax.Array,
    classes: jax.Array,
) -> None:
    """One row and one group of samples; the arguments are references to blocks."""
    first_word, second_word, deviation = words[:, 0:1], words[:, 1:2], epsilon[:, 0:1]
    shape = (at_once, _BLOCK)
    samples = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + at_once * pl.program_id(1)

    def add_block(block: jax.Array, ranked: _Ranked) -> _Ranked:
        start = block * _BLOCK
        places = jax.lax.broadcasted_iota(jnp.int32, shape, 1) + start
        noise = _normals.of_words(
            first_word, second_word, samples.astype(jnp.uint32), places.astype(jnp.uint32)
        )
        perturbed = scores[:, pl.ds(start, _BLOCK)] + deviation * noise
        free = jnp.where(places < num_classes, places, num_classes)
        return _with_block(ranked, perturbed, free, num_classes)

    nothing = jnp.full((at_once, 1), -jnp.inf, jnp.float32)
    start = ([nothing] * k, [jnp.full((at_once, 1), _NOTHING)] * k)
    found = jax.lax.fori_loop(0, pl.cdiv(num_classes, _BLOCK), add_block, start)
    for array, of_ranks in zip((values, classes), found, strict=True):
        for rank, column in enumerate(of_ranks[-1:] if only_last else of_ranks):
            array[:, rank : rank + 1] = column


def _with_block(
    ranked: _Ranked, perturbed: jax.Array, places: jax.Array, num_classes: int
) -> _Ranked:
    """The ranked entries merged with the entries of a block, which come after equal ranked entries.

    The largest entry of the block is inserted and taken out of it, as long as one of the samples
    has an entry that belongs to the ranked entries. After some blocks this is rare.
    """

    def largest(perturbed: jax.Array, places: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = perturbed.max(axis=1, keepdims=True)
        equal = (perturbed == value) & (places < num_classes)
        return value, jnp.where(equal, places, num_classes).min(axis=1, keepdims=True)

    def belongs(value: jax.Array, place: jax.Array, ranked: _Ranked) -> jax.Array:
        values, classes = ranked
        return (place < num_classes) & ((value > values[-1]) | (classes[-1] == _NOTHING))

    def goes_on(state: tuple[jax.Array, jax.Array, _Ranked]) -> jax.Array:
        perturbed, places, ranked = state
        wanted = belongs(*largest(perturbed, places), ranked)
        return wanted.astype(jnp.int32).max() > 0

    def insert(
        state: tuple[jax.Array, jax.Array, _Ranked],
    ) -> tuple[jax.Array, jax.Array, _Ranked]:
        perturbed, places, ranked = state
        value, place = largest(perturbed, places)
        inserted = _inserted(ranked, value, place, belongs(value, place, ranked))
        taken = places == place
        return (
            jnp.where(taken, -jnp.inf, perturbed),
            jnp.where(taken, num_classes, places),
            inserted,
        )

    *_, ranked = jax.lax.while_loop(goes_on, insert, (perturbed, places, ranked))
    return ranked


def _inserted(ranked: _Ranked, value: jax.Array, place: jax.Array, wanted: jax.Array) -> _Ranked:
    """The ranked entries with one more, and without the last one, where `wanted` is true."""
    values, classes = ranked
    # Those before it; an entry that is there already comes first among equals.
    before = [
        ~wanted | ((old >= value) & (of != _NOTHING)) for old, of in zip(*ranked, strict=True)
    ]

    def shifted(olds: list[jax.Array], new: jax.Array) -> list[jax.Array]:
        moved = [new, *olds[:-1]]
        is_place = [jnp.ones_like(wanted), *before[:-1]]
        return [
            jnp.where(stays, old, jnp.where(here, new, above))
            for stays, here, old, above in zip(before, is_place, olds, moved, strict=True)
        ]

    return shifted(values, value), shifted(classes, place)
