"""The most likely wrong classes of a batch, as a list that is merged with one block after another.

On the CPU the list is in the order of the candidates: by their log-odds, then by their examples,
then by their classes. On an accelerator, a sort of all scores of a block would take most of the
time. There, searches find the last candidate, and the list is in the order of the examples, then
of the classes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from topk_jax import _ordinals, _platforms, _search
from topk_jax.operators._top_k import select_largest


class Candidates(NamedTuple):
    """Pairs of an example and a class, `[m]` each.

    Attributes:
        log_odds: of the class; -inf if there is no candidate.
        examples: their places in the batch.
        classes: from 0 to L; L if there is no candidate.
    """

    log_odds: jax.Array
    examples: jax.Array
    classes: jax.Array


def no_candidates(like: jax.Array, size: int, num_examples: int, num_classes: int) -> Candidates:
    """A list of `size` empty places; `like` is a scalar of the dtype of the log-odds."""
    log_odds = jnp.broadcast_to(jnp.full_like(like, -jnp.inf), (size,))
    zeros = jnp.zeros_like(log_odds, jnp.int32)
    return Candidates(log_odds, zeros + (num_examples - 1), zeros + num_classes)


def merge(
    found: Candidates, log_odds: jax.Array, classes: jax.Array, num_classes: int
) -> Candidates:
    """The first candidates of the list and of the log-odds [n, B] of a block of classes [B].

    The classes of the list are below the classes of the block. An entry of -inf is not a candidate.
    """

    def by_sorts(found: Candidates, log_odds: jax.Array, classes: jax.Array) -> Candidates:
        return _merge_by_sorts(found, log_odds, classes)

    def by_searches(found: Candidates, log_odds: jax.Array, classes: jax.Array) -> Candidates:
        return _merge_by_searches(found, log_odds, classes, num_classes)

    merged: Candidates = _platforms.choose(
        found, log_odds, classes, cpu=by_sorts, default=by_searches
    )
    return merged


def keep_first(
    found: Candidates, count: jax.Array, num_examples: int, num_classes: int
) -> Candidates:
    """The list with only the first `count` candidates; the others have log-odds of -inf."""

    def by_places(found: Candidates, count: jax.Array) -> jax.Array:
        return jnp.arange(len(found.log_odds), dtype=jnp.int32) < count

    def by_searches(found: Candidates, count: jax.Array) -> jax.Array:
        (chosen,) = _are_first([found], count, num_examples, num_classes)
        return chosen

    is_kept = _platforms.choose(found, count, cpu=by_places, default=by_searches)
    return found._replace(log_odds=jnp.where(is_kept, found.log_odds, -jnp.inf))


def mark(found: Candidates, classes: jax.Array, num_examples: int) -> jax.Array:
    """Which entries [n, B] of a block of classes [B] are candidates."""
    size = len(classes)

    def in_any_order(found: Candidates, classes: jax.Array) -> jax.Array:
        places = found.classes - classes[0]
        is_here = (found.log_odds > -jnp.inf) & (places >= 0) & (places < size)
        marks = jnp.zeros_like(found.classes, jnp.bool_, shape=(num_examples, size))
        # A negative index would count from the end.
        return marks.at[found.examples, jnp.where(is_here, places, size)].set(True, mode="drop")

    def in_order(found: Candidates, classes: jax.Array) -> jax.Array:
        places = found.classes - classes[0]
        is_here = (found.log_odds > -jnp.inf) & (places >= 0) & (places < size)
        marks = jnp.zeros_like(found.classes, jnp.bool_, shape=(num_examples, size))
        # A TPU sorts indices that are not in ascending order. Clipping keeps the order for other
        # blocks.
        nearest = jnp.clip(places, 0, size - 1)
        return marks.at[found.examples, nearest].max(
            is_here, mode="promise_in_bounds", indices_are_sorted=True
        )

    marks: jax.Array = _platforms.choose(found, classes, cpu=in_any_order, default=in_order)
    return marks


def _merge_by_sorts(found: Candidates, log_odds: jax.Array, classes: jax.Array) -> Candidates:
    size, block_size = len(found.log_odds), len(classes)
    entries = log_odds.reshape(-1)
    values, places = select_largest(entries, min(size, entries.size))
    examples, columns = places // block_size, places % block_size
    new = Candidates(values, examples, classes[0] + columns)
    both = jax.tree.map(lambda one, other: jnp.concatenate([one, other]), found, new)
    # Equal entries are in the order of the examples, and then of the classes.
    negative, *pair = jax.lax.sort((-both.log_odds, both.examples, both.classes), num_keys=3)
    return Candidates(-negative[:size], pair[0][:size], pair[1][:size])


def _merge_by_searches(
    found: Candidates, log_odds: jax.Array, classes: jax.Array, num_classes: int
) -> Candidates:
    size, (num_examples, block_size) = len(found.log_odds), log_odds.shape
    # The log-odds are compared several times, with results that must agree.
    log_odds = jax.lax.optimization_barrier(log_odds)
    examples = jax.lax.broadcasted_iota(jnp.int32, log_odds.shape, 0)
    block = Candidates(log_odds, examples, jnp.broadcast_to(classes[None], log_odds.shape))
    is_kept, is_new = (
        chosen & (part.log_odds > -jnp.inf)
        for chosen, part in zip(
            _are_first([found, block], jnp.int32(size), num_examples, num_classes),
            (found, block),
            strict=True,
        )
    )
    # The kept candidates of an example come first: their classes are below the block's.
    of_example = found.examples[:, None] == jnp.arange(num_examples, dtype=jnp.int32)[None]
    num_kept = (of_example & is_kept[:, None]).sum(axis=0, dtype=jnp.int32)
    num_new = is_new.sum(axis=1, dtype=jnp.int32)
    ends = jnp.cumsum(num_kept + num_new)
    place = jnp.arange(size, dtype=jnp.int32)
    example = (ends[None] <= place[:, None]).sum(axis=1, dtype=jnp.int32)
    is_empty = example >= num_examples
    example = jnp.minimum(example, num_examples - 1)
    place = place - (ends - num_kept - num_new)[example]
    was_kept = place < num_kept[example]
    kept = _search.nth_true(is_kept, (jnp.cumsum(num_kept) - num_kept)[example] + place)
    before = (jnp.cumsum(num_new) - num_new)[example]
    new = _search.nth_true(is_new.reshape(-1), before + place - num_kept[example])
    merged = Candidates(
        jnp.where(was_kept, found.log_odds[kept], log_odds.reshape(-1)[new]),
        example,
        jnp.where(was_kept, found.classes[kept], classes[0] + new % block_size),
    )
    return Candidates(
        jnp.where(is_empty, -jnp.inf, merged.log_odds),
        example,
        jnp.where(is_empty, num_classes, merged.classes),
    )


def _are_first(
    parts: list[Candidates], count: jax.Array, num_examples: int, num_classes: int
) -> list[jax.Array]:
    """Whether each entry is among the first `count` of all parts together."""
    keys = [
        (
            # -0 and 0 are equal.
            _ordinals.to_ordinals(jnp.where(part.log_odds == 0, 0, -part.log_odds)),
            part.examples.astype(jnp.uint32),
            part.classes.astype(jnp.uint32),
        )
        for part in parts
    ]
    bits = 8 * parts[0].log_odds.dtype.itemsize, num_examples.bit_length(), num_classes.bit_length()
    return _search.are_first(keys, count, bits)
