"""Methods to find the k-th largest entry of a row, by the row's length and k.

    python -m benchmarks.selection [--device=cpu] [--repetitions=21] [--output=FILE.json]

The library chooses a method by these results; the benchmark forces each one. An accelerator has
other methods than a CPU. On it, each method runs many times in one program, so that the time is the
device's, without the calls from Python.
"""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import command, timing
from benchmarks.many_runs import RUNS, THREADS, in_a_loop
from topk_jax import _ordered_lists, _search
from topk_jax.operators import _top_k

# Rows, classes.
SHAPES = ((640, 100), (320, 1081), (320, 2048), (64, 4096), (64, 10_000), (8, 100_000))
RANKS = (1, 2, 6, 11, 21, 51, 101)
_NEVER = 2**30
# The longest row for descent, the highest ranks that descent and selection always find, and the
# lengths per rank from which selection, and selection in chunks, are used.
ON_CPU = {
    "descent": (_NEVER, _NEVER, 0, _NEVER, _NEVER),
    "selection": (0, 0, _NEVER, _NEVER, _NEVER),
    "selection in chunks": (0, 0, _NEVER, _NEVER, _top_k._CHUNK),
    "bisection": (0, 0, 0, _NEVER, _NEVER),
}
# The most entries of a pass over ordered lists.
ENTRIES = (2, 3, 4, 8, 16)

Find = Callable[[jax.Array], Any]


def main() -> None:
    """Measures every shape and rank and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    command.add_device(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_default_device", arguments.device)
    results: dict[str, Any] = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "rows": [],
    }
    of_device = _on_cpu if arguments.device.platform == "cpu" else _on_accelerator
    with command.keeping(results, arguments.output) as keep:
        for shape in SHAPES:
            for k in RANKS:
                if k > shape[1]:
                    continue
                results["rows"].append(row(shape, k, arguments.repetitions, of_device))
                keep()


def row(
    shape: tuple[int, int],
    k: int,
    repetitions: int,
    ways: Callable[[jax.Array, int], dict[str, jax.stages.Lowered]],
) -> dict[str, Any]:
    """The median seconds of each possible method at one shape and rank."""
    count, length = shape
    scores = jax.random.normal(jax.random.key(0), shape)
    lowered = ways(scores, k)
    with ThreadPoolExecutor(THREADS) as pool:
        programs = pool.map(jax.stages.Lowered.compile, lowered.values())
        contestants = {
            name: timing.blocking(program, scores)
            for name, program in zip(lowered, programs, strict=True)
        }
    runs = 1 if ways is _on_cpu else RUNS
    medians = timing.medians_in_turns(contestants, repetitions)
    seconds = {name: median / runs for name, median in medians.items()}
    return {"rows": count, "classes": length, "k": k, "seconds": seconds}


def _on_cpu(scores: jax.Array, k: int) -> dict[str, jax.stages.Lowered]:
    names = (
        "_LONGEST_SHORT_ROW",
        "_HIGHEST_DESCENT",
        "_HIGHEST_SELECTED_RANK",
        "_SELECTED_LENGTH_PER_RANK",
        "_CHUNKED_LENGTH_PER_RANK",
    )
    return {
        name: _lowered(
            _top_k,
            dict(zip(names, way, strict=True)),
            lambda scores: _top_k.select_kth(scores, k),
            scores,
        )
        for name, way in ON_CPU.items()
        if name != "selection in chunks" or k * _top_k._CHUNK <= scores.shape[-1]
    }


def _on_accelerator(scores: jax.Array, k: int) -> dict[str, jax.stages.Lowered]:
    def by_lists(entries: int, scores: jax.Array) -> Any:
        values, indices = _ordered_lists.select_in_passes(scores, k, entries=entries)
        return values[..., -1:], indices[..., -1:]

    def by_selection(scores: jax.Array) -> Any:
        values, indices = _top_k._selected(scores, k)
        return values[..., -1:], indices[..., -1:]

    def by_search(scores: jax.Array) -> Any:
        index = _search.kth_of_rows(scores, k)
        return jnp.take_along_axis(scores, index, axis=-1), index

    found = {
        "XLA's top_k": _lowered(_top_k, {}, in_a_loop(by_selection), scores),
        "search": _lowered(_top_k, {}, in_a_loop(by_search), scores),
    }
    if k > _ordered_lists.LONGEST:
        return found
    for entries in ENTRIES:
        if entries > ENTRIES[0] and entries >= 2 * k:
            # The same single pass as with fewer entries.
            continue
        in_passes = in_a_loop(functools.partial(by_lists, entries))
        found[f"lists of {entries}"] = _lowered(_ordered_lists, {}, in_passes, scores)
    return found


def _lowered(
    module: Any, constants: Mapping[str, int], find: Find, scores: jax.Array
) -> jax.stages.Lowered:
    """The program of a method, with constants of the module that choose it."""
    chosen = {name: getattr(module, name) for name in constants}
    try:
        for name, value in constants.items():
            setattr(module, name, value)
        # A new function each time, because JAX would reuse the other method's trace.
        return jax.jit(functools.partial(find)).lower(scores)
    finally:
        for name, value in chosen.items():
            setattr(module, name, value)


if __name__ == "__main__":
    main()
