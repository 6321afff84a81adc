r"""How long sets of 10,000 examples of 10,000 classes take, beside sets of the K best classes.

    python -m benchmarks.set_construction --repetitions=2 \
        --output=benchmarks/results/set_construction-cpu.json

Each rule takes the probabilities in blocks of examples, so that only a block and its sets are in
memory. Rules take turns, block by block, and a time is the sum of the medians of all blocks.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, markdown, timing
from topk_jax import sets
from topk_jax.taxonomy import Taxonomy

_CLASSES = 10_000
_EXAMPLES = 10_000
_BLOCK = 500
_K = 5

Rule = Callable[[jax.Array], jax.Array]


def main() -> None:
    """Times every rule on one block after the other."""
    made = command.parser(__doc__, repetitions=3)
    made.add_argument("--examples", type=command.integer(1), default=_EXAMPLES)
    made.add_argument("--classes", type=command.integer(_K + 1), default=_CLASSES)
    given = made.parse_args()
    block = min(_BLOCK, given.examples)
    compiled = {name: jax.jit(rule) for name, rule in _rules(given.classes).items()}
    blocks = given.examples // block
    seconds = dict.fromkeys(compiled, 0.0)
    # All blocks have one shape and other numbers, so one block is timed after the other.
    for seed in range(blocks):
        probabilities = jax.nn.softmax(
            3 * jax.random.normal(jax.random.key(seed), (block, given.classes))
        )
        times = timing.medians_in_turns(
            {name: timing.blocking(rule, probabilities) for name, rule in compiled.items()},
            given.repetitions,
        )
        seconds = {name: seconds[name] + times[name] for name in seconds}
    results = {
        "machine": timing.machine(),
        "examples": blocks * block,
        "classes": given.classes,
        "block": block,
        "seconds": {name: float(f"{value:.4g}") for name, value in seconds.items()},
    }
    command.write(results, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """The seconds of each rule, and their ratio to the K best classes, in Markdown."""
    seconds = results["seconds"]
    first = next(iter(seconds.values()))
    header = ["sets", "seconds", "times top-K"]
    rows = [
        [f"`{name}`", f"{value:.2f}", f"{value / first:.2f}"] for name, value in seconds.items()
    ]
    return (
        f"{results['examples']:,} examples, {results['classes']:,} classes, blocks of "
        f"{results['block']:,}. {markdown.machine(results['machine'])}.\n\n"
        + markdown.table(header, rows)
    )


def _rules(num_classes: int) -> dict[str, Rule]:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 1000, size=num_classes)
    # Families of up to 100 classes, in genera of up to 10.
    taxonomy = Taxonomy.from_paths(
        [(f"f{i // 100}", f"g{i // 10}", f"s{i}") for i in range(num_classes)]
    )
    made = functools.partial
    rules: dict[str, Rule] = {
        "top_k_set": made(sets.top_k_set, k=_K),
        "threshold_set": lambda p: sets.threshold_set(p, 0.01),
        "adaptive_set": made(sets.adaptive_set, error=0.1),
        "utility_set": made(
            sets.utility_set, utilities=sets.set_utilities("u65", num_classes=num_classes)
        ),
        "node_scores": lambda p: sets.score_set(sets.node_scores(p, taxonomy), 0.5),
        "open_set": lambda p: sets.open_set(
            sets.threshold_set(p, 0.01),
            sets.outlier_scores(jnp.log(p), kind="energy"),
            known_to=0.5,
        ),
    }
    quantiles = {
        "lac": 0.99,
        "margin": 0.01,
        "rank": 5,
        "aps": 0.9,
        "raps": 0.95,
        "saps": 0.5,
        "pas": -1e-5,
    }
    for kind, quantile in quantiles.items():
        options: dict[str, Any] = {}
        if kind in ("raps", "saps"):
            options["rank_penalty"] = 0.01
        if kind == "raps":
            options["unpenalized_ranks"] = _K
        if kind == "pas":
            options["class_counts"] = counts
        rules[f"conformal_set, {kind}"] = made(
            sets.conformal_set, quantiles=quantile, kind=kind, **options
        )
    return rules


if __name__ == "__main__":
    main()
