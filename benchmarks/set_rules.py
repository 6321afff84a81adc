r"""Every rule of sets beside the others, on the test examples of finished runs.

    python -m train.main --config=configs/features.py --config.dataset.path=features.npz \
        --workdir=runs/features
    python -m benchmarks.set_rules "features=runs/features" \
        --output=benchmarks/results/set_rules-cpu.json

Each repetition calibrates the rules on one random half of the test examples, and measures their
sets of the other half. Rules with a coverage get 90 %. The others get a mean size, or a size, of
five classes, or what their probabilities promise. Names are the fewest that describe a set by the
run's taxonomy; without a taxonomy they are not counted. The time is the shortest of all
repetitions, for the sets of 1,000 examples.
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

from benchmarks import command, markdown, timing
from topk_jax import metrics, rules, sets
from topk_jax.taxonomy import Taxonomy
from train.classifiers import trained
from train.scores.scores import Scores

_ERROR = 0.1
_K = 5
_NAMES = 3
# The sets of examples are made in parts of this size, which stay in the cache.
_BLOCK = 500
# Means over balanced classes and over examples differ less than this.
_SAME = 0.005

# Probabilities [n, L] to sets [n, L].
Rule = Callable[[jax.Array], jax.Array]


def main() -> None:
    """Measures each run."""
    made = command.parser(__doc__, repetitions=20, what="random halves", least=2)
    made.add_argument("runs", nargs="+", type=_named, help="NAME=WORKDIR of a finished run")
    given = made.parse_args()
    results = {name: _measure_run(path, given.repetitions) for name, path in given.runs}
    written = {
        "machine": timing.machine(),
        "asked": 1 - _ERROR,
        "k": _K,
        "names": _NAMES,
        "repetitions": given.repetitions,
        "data": results,
    }
    command.write(written, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """One table of all runs, in Markdown. The times and the names are in the results only."""
    runs = list(results["data"].items())
    rules = dict.fromkeys(rule for _, found in runs for rule in found["rules"])
    columns = [_columns(found) for _, found in runs]
    header = [
        "sets",
        *(f"{number}: {name}" for number, names in enumerate(columns, 1) for name in names),
    ]
    rows = [
        [rule]
        + [
            format(found["rules"][rule][key][0], form) if rule in found["rules"] else "–"
            for (_, found), names in zip(runs, columns, strict=True)
            for key, form in names.values()
        ]
        for rule in rules
    ]
    legend = [f"{number}: {_words(name, found)}" for number, (name, found) in enumerate(runs, 1)]
    return "; ".join(legend) + ".\n\n" + markdown.table(header, rows)


def _columns(found: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The columns of a run by their names: the key of their numbers, and how these are written."""
    differences = [
        abs(one["coverage"][0] - one["macro_coverage"][0]) for one in found["rules"].values()
    ]
    # With balanced classes the mean over classes adds nothing.
    macro = {"macro": ("macro_coverage", ".1%")} if max(differences) > _SAME else {}
    return {"coverage": ("coverage", ".1%"), **macro, "size": ("size", ".2f")}


def _words(name: str, found: Mapping[str, Any]) -> str:
    error = 100 * max(one["coverage"][1] for one in found["rules"].values())
    return (
        f"{name}, {found['classes']:,} classes, {found['examples']:,} examples in each half "
        f"(standard errors of coverages: at most {error:.2f} points)"
    )


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"must be NAME=WORKDIR; got {text!r}")
    return name, Path(path)


def _measure_run(workdir: Path, repetitions: int) -> dict[str, Any]:
    examples = trained.load(workdir).split("test").of_known()
    half = len(examples) // 2 // _BLOCK * _BLOCK
    if half == 0:
        raise SystemExit(f"{workdir} must have {2 * _BLOCK} test examples, for halves of blocks")
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
    blocks = probabilities.reshape(-1, _BLOCK, probabilities.shape[-1])
    found = {}
    for name, rule in _rules(known, None if tree is None else tree.taxonomy, seed).items():
        chosen, seconds = _timed(rule, blocks)
        hits = jnp.take_along_axis(chosen, labels[:, None], axis=-1)[:, 0]
        macro = metrics.macro_accuracy(hits, labels, num_classes=len(examples.classes))
        found[name] = {
            "coverage": float(hits.mean()),
            "macro_coverage": float(macro),
            "size": float(chosen.sum(axis=-1).mean()),
            "milliseconds": 1000 * seconds / (half / 1000),
        }
        if tree is not None:
            names = metrics.name_counts(chosen, tree.taxonomy)
            found[name]["names"] = float(names.mean())
    return found


def _timed(rule: Rule, blocks: jax.Array) -> tuple[jax.Array, float]:
    """The sets [n, L] of all blocks, and the seconds of the second call."""
    compiled = jax.jit(partial(jax.lax.map, rule))
    jax.block_until_ready(compiled(blocks))
    start = time.perf_counter()
    chosen = jax.block_until_ready(compiled(blocks))
    seconds = time.perf_counter() - start
    return chosen.reshape(-1, chosen.shape[-1]), seconds


def _rules(known: Scores, taxonomy: Taxonomy | None, seed: int) -> dict[str, Rule]:
    """Each rule by its name, calibrated."""
    counts = known.classes.counts
    assert counts is not None  # A run has training examples.
    fit = partial(
        rules.fit,
        scores=known.values,
        labels=known.labels,
        class_counts=counts,
        taxonomy=taxonomy,
    )
    asked = {f"`{name}`": f"{name}={1 - _ERROR}" for name in rules.CONFORMAL}
    asked[f"`lac`, at most {_NAMES} names"] = f"lac={1 - _ERROR}, max_names={_NAMES}"
    found: dict[str, Rule] = {}
    for name, text in asked.items():
        # A rule may need a taxonomy or more examples of each class.
        with contextlib.suppress(ValueError):
            found[name] = fit(text)
    probabilities, labels = jnp.asarray(known.values), jnp.asarray(known.labels)
    found |= _randomized(probabilities, labels, seed) | _by_rank(probabilities, labels)
    worth = sets.set_utilities("u65", num_classes=len(counts))
    mean_size = sets.average_k_threshold(probabilities, k=_K)
    macro = sets.macro_average_k_thresholds(probabilities, k=_K, class_counts=counts)
    mean_error = sets.average_error_threshold(probabilities, error=_ERROR)
    return found | {
        f"`top_k_set`, k = {_K}": partial(sets.top_k_set, k=_K),
        f"`average_k_threshold`, k = {_K}": lambda p: sets.threshold_set(p, mean_size),
        f"`macro_average_k_thresholds`, k = {_K}": lambda p: sets.threshold_set(p, macro),
        "`average_error_threshold`": lambda p: sets.threshold_set(p, mean_error),
        "`adaptive_set`": partial(sets.adaptive_set, error=_ERROR),
        '`utility_set`, "u65"': partial(sets.utility_set, utilities=worth),
    }


def _randomized(probabilities: jax.Array, labels: jax.Array, seed: int) -> dict[str, Rule]:
    """The score "aps" with a key: its coverage is exact."""
    old, new = jax.random.split(jax.random.key(seed))
    scores = sets.conformal_label_scores(probabilities, labels, kind="aps", key=old)
    quantile = sets.conformal_quantile(scores, labels, error=_ERROR)
    # Blocks share their numbers, which do not depend on the labels.
    return {
        'score "aps", with a key': lambda p: sets.conformal_set(p, quantile, kind="aps", key=new)
    }


def _by_rank(probabilities: jax.Array, labels: jax.Array) -> dict[str, Rule]:
    """Top-K sets with a guarantee, and RC3P."""
    scores = sets.conformal_label_scores(probabilities, labels, kind="lac")
    ranks = sets.conformal_label_scores(probabilities, labels, kind="rank")
    most = sets.conformal_quantile(ranks, labels, error=_ERROR)
    quantiles, places = sets.rank_calibrated_quantiles(
        scores, ranks, labels, error=_ERROR, num_classes=probabilities.shape[-1]
    )

    def ranked(limit: jax.Array, probabilities: jax.Array) -> jax.Array:
        return sets.conformal_set(probabilities, limit, kind="rank")

    def calibrated(probabilities: jax.Array) -> jax.Array:
        by_score = sets.conformal_set(probabilities, quantiles, kind="lac")
        return by_score & ranked(places, probabilities)

    return {'score "rank"': partial(ranked, most), "`rank_calibrated_quantiles`": calibrated}


def _summary(repetitions: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The mean of each number with its standard error, and the shortest time."""
    means = {
        name: [
            round(float(np.mean(values)), 5),
            round(float(np.std(values, ddof=1) / np.sqrt(len(values))), 5),
        ]
        for name in repetitions[0]
        if name != "milliseconds"
        for values in [[one[name] for one in repetitions]]
    }
    shortest = min(one["milliseconds"] for one in repetitions)
    return {**means, "milliseconds": round(shortest, 3)}


if __name__ == "__main__":
    main()
