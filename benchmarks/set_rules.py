r"""Every rule of sets beside the others, on the test examples of finished runs.

    python -m benchmarks.set_rules "features=runs/features" [--output=FILE.json]

Without a run it measures a drawn law, whose probabilities are right. Each repetition calibrates the
rules on one random half of the examples, and measures their sets of the other half. Rules with a
coverage get 90 %. The others get a mean size, or a size, of five classes, or what their
probabilities promise. Names are the fewest that describe a set by the run's taxonomy; without a
taxonomy they are not counted. The time is the shortest of all repetitions, for the sets of 1,000
examples.
"""

import argparse
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import table, timing
from topk_jax import metrics, rules, sets
from train.classifiers import trained
from train.data.classes import Classes
from train.scores.scores import Scores

ERROR = 0.1
K = 5
NAMES = 3
# The sets of examples are made in parts of this size, which stay in the cache.
BLOCK = 500
# Of the drawn law.
EXAMPLES, CLASSES = 4000, 40

# Probabilities [n, L] to sets [n, L].
Rule = Callable[[jax.Array], jax.Array]


def main() -> None:
    """Measures each run."""
    parser = timing.parser(__doc__, repetitions=20, what="random halves, at least 2")
    parser.add_argument("runs", nargs="*", type=_named, help="NAME=WORKDIR of a finished run")
    given = timing.parse(parser)
    found = {name: trained.load(path).split("test").of_known() for name, path in given.runs}
    if not found:
        found = {"a drawn law": _law(2 * BLOCK if given.smoke else EXAMPLES)}
    results = {
        "machine": timing.machine(),
        "asked": 1 - ERROR,
        "k": K,
        "names": NAMES,
        "repetitions": given.repetitions,
        "data": {name: _halves(name, one, given.repetitions) for name, one in found.items()},
    }
    timing.write(results, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """A table of each run."""
    header = ("sets", "coverage", "mean over classes", "size", "µs for a set")
    parts = [f"{table.machine(results)}; means of {results['repetitions']} random halves."]
    for name, found in results["data"].items():
        error = 100 * max(one["coverage"][1] for one in found["rules"].values())
        rows = (
            [
                rule,
                f"{one['coverage'][0]:.1%}",
                f"{one['macro_coverage'][0]:.1%}",
                f"{one['size'][0]:.2f}",
                f"{one['milliseconds']:.2f}",
            ]
            for rule, one in found["rules"].items()
        )
        parts += [
            f"{name}, {found['classes']:,} classes, {found['examples']:,} examples in each half "
            f"(standard errors of coverages: at most {error:.2f} points):",
            table.markdown(header, rows),
        ]
    return "\n\n".join(parts)


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"must be NAME=WORKDIR; got {text!r}")
    return name, Path(path)


def _law(number: int) -> Scores:
    """Examples whose labels have the distribution of the scores."""
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.full(CLASSES, 0.2), number).astype(np.float32)
    labels = (rng.random((number, 1)) < values.cumsum(axis=1)).argmax(axis=1).astype(np.int32)
    classes = Classes(tuple(map(str, range(CLASSES))), (100,) * CLASSES)
    nothing = np.zeros(number)
    return Scores(loss=nothing, values=values, labels=labels, ranks=nothing, classes=classes)


def _halves(name: str, examples: Scores, repetitions: int) -> dict[str, Any]:
    half = len(examples) // 2 // BLOCK * BLOCK
    if half == 0:
        raise SystemExit(f"{name} must have {2 * BLOCK} test examples, for halves of blocks")
    found = [_measure(examples, half, seed) for seed in range(repetitions)]
    return {
        "classes": len(examples.classes),
        "examples": half,
        "rules": {rule: _summary([one[rule] for one in found]) for rule in found[0]},
    }


def _measure(examples: Scores, half: int, seed: int) -> dict[str, dict[str, float]]:
    """The quality of each rule on one half, calibrated on the other."""
    order = np.random.default_rng(seed).permutation(len(examples))
    known, new = examples.take(order[:half]), examples.take(order[half : 2 * half])
    tree = examples.classes.tree
    probabilities, labels = jnp.asarray(new.values), jnp.asarray(new.labels)
    blocks = probabilities.reshape(-1, BLOCK, probabilities.shape[-1])
    found = {}
    for name, rule in _rules(known, seed).items():
        chosen, seconds = _timed(rule, blocks)
        hits = jnp.take_along_axis(chosen, labels[:, None], axis=-1)[:, 0]
        macro = metrics.tally_by_class(hits, labels, num_classes=len(examples.classes)).macro_mean()
        found[name] = {
            "coverage": float(hits.mean()),
            "macro_coverage": float(macro),
            "size": float(chosen.sum(axis=-1).mean()),
            "milliseconds": 1000 * seconds / (half / 1000),
        }
        if tree is not None:
            found[name]["names"] = float(metrics.name_counts(chosen, tree.taxonomy).mean())
    return found


def _timed(rule: Rule, blocks: jax.Array) -> tuple[jax.Array, float]:
    """The sets [n, L] of all blocks, and the seconds of the second call."""
    compiled = jax.jit(partial(jax.lax.map, rule))
    jax.block_until_ready(compiled(blocks))
    start = time.perf_counter()
    chosen = jax.block_until_ready(compiled(blocks))
    seconds = time.perf_counter() - start
    return chosen.reshape(-1, chosen.shape[-1]), seconds


def _rules(known: Scores, seed: int) -> dict[str, Rule]:
    """Each rule by its name, calibrated."""
    counts, tree = known.classes.counts, known.classes.tree
    assert counts is not None  # A run has training examples.
    fit = partial(
        rules.fit,
        scores=known.values,
        labels=known.labels,
        class_counts=counts,
        taxonomy=None if tree is None else tree.taxonomy,
    )
    asked = {f"`{name}`": f"{name}={1 - ERROR}" for name in rules.CONFORMAL}
    asked[f"`lac`, at most {NAMES} names"] = f"lac={1 - ERROR}, max_names={NAMES}"
    found: dict[str, Rule] = {}
    for name, text in asked.items():
        # A rule may need a taxonomy or more examples of each class.
        with contextlib.suppress(ValueError):
            found[name] = fit(text)
    probabilities, labels = jnp.asarray(known.values), jnp.asarray(known.labels)
    found |= _randomized(probabilities, labels, seed) | _by_rank(probabilities, labels)
    worth = sets.set_utilities("u65", num_classes=len(counts))
    mean_size = sets.average_k_threshold(probabilities, k=K)
    mean_error = sets.average_error_threshold(probabilities, error=ERROR)
    return found | {
        f"`top_k_set`, k = {K}": partial(sets.top_k_set, k=K),
        f"`average_k_threshold`, k = {K}": lambda p: sets.threshold_set(p, mean_size),
        "`average_error_threshold`": lambda p: sets.threshold_set(p, mean_error),
        "`adaptive_set`": partial(sets.adaptive_set, error=ERROR),
        '`utility_set`, "u65"': partial(sets.utility_set, utilities=worth),
    }


def _randomized(probabilities: jax.Array, labels: jax.Array, seed: int) -> dict[str, Rule]:
    """The score "aps" with a key: its coverage is exact."""
    old, new = jax.random.split(jax.random.key(seed))
    scores = sets.conformal_label_scores(probabilities, labels, kind="aps", key=old)
    quantile = sets.conformal_quantile(scores, labels, error=ERROR)
    # Blocks share their numbers, which do not depend on the labels.
    return {
        'score "aps", with a key': lambda p: sets.conformal_set(p, quantile, kind="aps", key=new)
    }


def _by_rank(probabilities: jax.Array, labels: jax.Array) -> dict[str, Rule]:
    """Top-K sets with a guarantee, and RC3P."""
    scores = sets.conformal_label_scores(probabilities, labels, kind="lac")
    ranks = sets.conformal_label_scores(probabilities, labels, kind="rank")
    most = sets.conformal_quantile(ranks, labels, error=ERROR)
    quantiles, places = sets.rank_calibrated_quantiles(
        scores, ranks, labels, error=ERROR, num_classes=probabilities.shape[-1]
    )

    def calibrated(probabilities: jax.Array) -> jax.Array:
        by_score = sets.conformal_set(probabilities, quantiles, kind="lac")
        return by_score & sets.conformal_set(probabilities, places, kind="rank")

    return {
        'score "rank"': lambda p: sets.conformal_set(p, most, kind="rank"),
        "`rank_calibrated_quantiles`": calibrated,
    }


def _summary(repetitions: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The mean of each number with its standard error, and the shortest time."""
    found: dict[str, Any] = {}
    for name in repetitions[0]:
        values = np.array([one[name] for one in repetitions])
        error = values.std(ddof=1) / np.sqrt(len(values))
        found[name] = [round(float(values.mean()), 5), round(float(error), 5)]
    return found | {"milliseconds": min(one["milliseconds"] for one in repetitions)}


if __name__ == "__main__":
    main()
