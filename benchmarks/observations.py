r"""Ways to combine the scores of several photographs of one plant, on hand-made observations.

    python -m train.evaluate --workdir=runs/places --out=places.npz
    python -m benchmarks.observations places=places.npz \
        --output=benchmarks/results/observations-cpu.json

An observation has one to four examples of one class of a file of scores: any of them, or examples
with similar probabilities, as photographs of one plant have. Each repetition makes other
observations, calibrates on one half and measures the other. `sum` takes the photographs as
independent; `union` and `intersection` combine the sets of the photographs, whose threshold is
calibrated on photographs.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import command, markdown
from topk_jax import metrics, sets

_ERROR = 0.1
_LARGEST = 4
_IN_WORDS = {
    "log_probabilities": "mean of log-probabilities",
    "probabilities": "mean of probabilities",
    "maximum": "maximum",
    "trained": "trained weights",
    "sum": "sum of log-probabilities",
    "union": "union of the photographs' sets",
    "intersection": "intersection of the photographs' sets",
}
_KINDS = {"any": "any examples of a class", "alike": "examples with similar probabilities"}
_BY = ("log_probabilities", "probabilities", "maximum")
# The smallest logarithm, of a probability that is rounded to 0.
_FLOOR = float(np.log(np.finfo(np.float32).tiny))

# Logarithms [n, L] and labels [n] of examples, and the observation of each, [n].
Examples = tuple[np.ndarray, np.ndarray, np.ndarray]


def main() -> None:
    """Measures each file of scores with both kinds of observations."""
    made = command.parser(__doc__, repetitions=20, what="random observations and halves", least=2)
    made.add_argument(
        "scores", nargs="+", type=_named, help="NAME=FILE.npz of train.evaluate --out"
    )
    given = made.parse_args()
    results = {
        name: {
            kind: _summary(
                [
                    _measure(scores, labels, np.random.default_rng(seed), alike=kind == "alike")
                    for seed in range(given.repetitions)
                ]
            )
            for kind in _KINDS
        }
        for name, (scores, labels) in given.scores
    }
    written = {"asked": 1 - _ERROR, "repetitions": given.repetitions, "data": results}
    command.write(written, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """The mean sizes in one table, in Markdown; other numbers are in the results only."""
    asked = results["asked"]
    kinds = [
        (f"{name}, {_KINDS[kind]}", ways)
        for name, by_kind in results["data"].items()
        for kind, ways in by_kind.items()
    ]
    numbers = range(1, len(kinds) + 1)
    legend = [f"{number}: {words}" for number, (words, _) in zip(numbers, kinds, strict=True)]
    rows = [
        [_IN_WORDS[way], *(_size(ways[way], asked) for _, ways in kinds)] for way in kinds[0][1]
    ]
    header = ["combined by", *(f"size, {number}" for number in numbers)]
    return "; ".join(legend) + ".\n\n" + markdown.table(header, rows)


def _size(numbers: Mapping[str, Sequence[float]], asked: float) -> str:
    """The mean size, and a coverage beyond three standard errors from the one that was asked."""
    coverage, error = numbers["coverage"]
    size = f"{numbers['set_size'][0]:.2f}"
    return size if abs(coverage - asked) <= 3 * error else f"{size} ({coverage:.1%})"


def _named(text: str) -> tuple[str, tuple[np.ndarray, np.ndarray]]:
    name, _, path = text.partition("=")
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"must be NAME=FILE; got {text!r}")
    with np.load(path) as file:
        return name, (file["scores"], file["labels"])


def _measure(
    scores: np.ndarray, labels: np.ndarray, rng: np.random.Generator, *, alike: bool
) -> dict[str, dict[str, float]]:
    """The quality of each way in one repetition."""
    examples = _observations(scores, labels, rng, alike=alike)
    order = rng.permutation(int(examples[2].max()) + 1)
    # The same number in each repetition, so that the programs are compiled once.
    half = int(0.18 * len(labels))
    old, new = _part(examples, order[:half]), _part(examples, order[half : 2 * half])
    combined = {by: (_combined(old, by), _combined(new, by)) for by in _BY}
    means = combined["log_probabilities"]
    weights = sets.group_weights(means[0], np.bincount(old[2]), _labels(old))
    combined["trained"] = (_combined(old, weights=weights), _combined(new, weights=weights))
    combined["sum"] = (_added(old, means[0]), _added(new, means[1]))
    found = {
        name: _quality(np.exp(of_old), _labels(old), of_new, _labels(new))
        for name, (of_old, of_new) in combined.items()
    }
    found["trained"] |= {"w0": float(weights[0]), "w1": float(weights[1])}
    return found | _by_hand(old, new)


def _observations(
    scores: np.ndarray, labels: np.ndarray, rng: np.random.Generator, *, alike: bool
) -> Examples:
    """Each example once, in an observation of one to four examples of its class."""
    logs = np.maximum(np.log(np.maximum(scores, 1e-38)), _FLOOR)
    of_labels = scores[np.arange(len(labels)), labels]
    # Examples with one likeliest class and similar probabilities of their label are neighbours.
    order = np.lexsort(
        (of_labels, scores.argmax(axis=-1), labels) if alike else (rng.random(len(labels)), labels)
    )
    sizes = rng.integers(1, _LARGEST + 1, size=len(labels))
    # A new observation starts when the last one is full, and at another class.
    of_sizes = np.repeat(np.arange(len(sizes)), sizes)[: len(labels)]
    changes = np.flatnonzero(np.diff(labels[order], prepend=-1))
    starts = np.union1d(np.flatnonzero(np.diff(of_sizes, prepend=-1)), changes)
    groups = np.searchsorted(starts, np.arange(len(labels)), side="right") - 1
    return logs[order], labels[order], groups


def _part(examples: Examples, chosen: np.ndarray) -> Examples:
    """Some observations, numbered again in their order."""
    logs, labels, groups = examples
    is_chosen = np.zeros(int(groups.max()) + 1, np.bool_)
    is_chosen[chosen] = True
    here = is_chosen[groups]
    return logs[here], labels[here], (np.cumsum(is_chosen) - 1)[groups[here]]


def _combined(examples: Examples, by: Any = "log_probabilities", weights: Any = None) -> np.ndarray:
    logs, _, groups = examples
    # Padding with examples of no group, to one of a few sizes, so that few programs are compiled.
    rest = -len(groups) % 2048
    logs = np.pad(logs, ((0, rest), (0, 0)))
    number = int(groups.max()) + 1
    padded = np.pad(groups, (0, rest), constant_values=-1)
    return np.asarray(sets.combine(logs, padded, num_groups=number, by=by, weights=weights))


def _added(examples: Examples, means: np.ndarray) -> np.ndarray:
    """The sum of the log-probabilities, normalized, from their means."""
    sizes = np.bincount(examples[2])[:, None].astype(np.float32)
    return np.asarray(jax.nn.log_softmax(sizes * means))


def _labels(examples: Examples) -> np.ndarray:
    _, labels, groups = examples
    return labels[np.flatnonzero(np.diff(groups, prepend=-1))]


def _quality(
    of_old: np.ndarray, old: np.ndarray, logs: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    threshold = sets.conformal_threshold(of_old, old, error=_ERROR)
    chosen = np.asarray(sets.threshold_set(np.exp(logs), threshold))
    rows = np.arange(len(labels))
    return {
        "top_1": float(metrics.top_k_hits(logs, labels, k=1).mean()),
        "top_5": float(metrics.top_k_hits(logs, labels, k=5).mean()),
        "cross_entropy": float(-logs[rows, labels].mean()),
        "coverage": float(chosen[rows, labels].mean()),
        "set_size": float(chosen.sum(axis=-1).mean()),
    }


def _by_hand(old: Examples, new: Examples) -> dict[str, dict[str, float]]:
    """The union and the intersection of the sets of the photographs."""
    logs, labels, groups = new
    of_labels = np.sort(np.exp(old[0])[np.arange(len(old[1])), old[1]])
    # The conformal threshold, without a program for each number of photographs.
    threshold = of_labels[int(_ERROR * (len(of_labels) + 1)) - 1]
    chosen = np.exp(logs) >= threshold
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    ways: Mapping[str, Callable[..., Any]] = {
        "union": np.logical_or.reduceat,
        "intersection": np.logical_and.reduceat,
    }
    rows = np.arange(len(starts))
    found = {}
    for name, reduce in ways.items():
        of_groups = reduce(chosen, starts)
        covered = of_groups[rows, labels[starts]]
        found[name] = {
            "coverage": float(covered.mean()),
            "set_size": float(of_groups.sum(axis=-1).mean()),
        }
    return found


def _summary(repetitions: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, list[float]]]:
    """The mean of each number, and its standard error."""
    return {
        way: {
            name: [
                round(float(np.mean(values)), 5),
                round(float(np.std(values, ddof=1) / np.sqrt(len(values))), 5),
            ]
            for name in numbers
            for values in [[one[way][name] for one in repetitions]]
        }
        for way, numbers in repetitions[0].items()
    }


if __name__ == "__main__":
    main()
