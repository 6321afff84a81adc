"""Methods to find the k-th largest entry of a row, by the row's length and k.

    python -m benchmarks.selection [--device=cpu] [--repetitions=21] [--output=FILE.json]

The library chooses a method by these results; the benchmark forces each one.
"""

import functools
from typing import Any

import jax

from benchmarks import command, timing
from topk_jax.operators import _top_k

# Rows, classes.
SHAPES = ((640, 100), (320, 1081), (320, 2048), (64, 4096), (64, 10_000), (8, 100_000))
RANKS = (1, 2, 6, 11, 21, 51, 101)
_NEVER = 2**30
# The longest row for descent, the highest ranks that descent and selection always find, and the
# lengths per rank from which selection, and selection in chunks, are used.
WAYS = {
    "descent": (_NEVER, _NEVER, 0, _NEVER, _NEVER),
    "selection": (0, 0, _NEVER, _NEVER, _NEVER),
    "selection in chunks": (0, 0, _NEVER, _NEVER, _top_k._CHUNK),
    "bisection": (0, 0, 0, _NEVER, _NEVER),
}


def main() -> None:
    """Measures every shape and rank and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    command.add_device(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_default_device", arguments.device)
    results = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "rows": [
            row(shape, k, arguments.repetitions) for shape in SHAPES for k in RANKS if k <= shape[1]
        ],
    }
    command.write(results, arguments.output)


def row(shape: tuple[int, int], k: int, repetitions: int) -> dict[str, Any]:
    """The median seconds of each possible method at one shape and rank."""
    count, length = shape
    scores = jax.random.normal(jax.random.key(0), shape)
    ways = {
        name: way
        for name, way in WAYS.items()
        if name != "selection in chunks" or k * _top_k._CHUNK <= length
    }
    contestants = {name: _compiled(way, scores, k) for name, way in ways.items()}
    seconds = timing.medians_in_turns(contestants, repetitions)
    return {"rows": count, "classes": length, "k": k, "seconds": seconds}


def _compiled(way: tuple[int, ...], scores: jax.Array, k: int) -> timing.Contestant:
    names = (
        "_LONGEST_SHORT_ROW",
        "_HIGHEST_DESCENT",
        "_HIGHEST_SELECTED_RANK",
        "_SELECTED_LENGTH_PER_RANK",
        "_CHUNKED_LENGTH_PER_RANK",
    )
    chosen = [getattr(_top_k, name) for name in names]
    try:
        for name, value in zip(names, way, strict=True):
            setattr(_top_k, name, value)
        # A new function each time, because JAX would reuse the other method's trace.
        compiled = (
            jax.jit(functools.partial(lambda scores: _top_k.select_kth(scores, k)))
            .lower(scores)
            .compile()
        )
    finally:
        for name, value in zip(names, chosen, strict=True):
            setattr(_top_k, name, value)
    return timing.blocking(compiled, scores)


if __name__ == "__main__":
    main()
