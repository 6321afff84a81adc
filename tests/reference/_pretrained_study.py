"""The study on a pretrained network, computed a second time from its design and its results.

The rules are those of the words of `docs/evidence/pretrained.md`. Nothing is shared with the code
that runs the study and makes its tables, but the file of the design and the files of the results.
"""

import base64
import functools
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import _study_effects as effects
from tests.reference import _study_statistics as statistics
from tests.reference._studies import EVIDENCE

FOLDER = EVIDENCE / "pretrained"
RESULTS = FOLDER / "results"
HEADS = ("linear", "cosine")

Json = dict[str, Any]


@functools.cache
def plan() -> Json:
    """The design, as its file has it."""
    return tomllib.loads((FOLDER / "study.toml").read_text())


def digest() -> str:
    """The SHA-256 of the file of the design."""
    return hashlib.sha256((FOLDER / "study.toml").read_bytes()).hexdigest()


def read(folder: Path = RESULTS) -> dict[str, Json]:
    """The files of the settings that are complete, by the names of the settings."""
    names = [one["name"] for one in plan()["settings"]]
    found = {name: folder / f"{name}.json" for name in names}
    return {name: json.loads(path.read_text()) for name, path in found.items() if path.exists()}


# What is planned


def rules(setting: Json) -> list[str]:
    """The labels of validation images that select."""
    return ["correct", "wrong"] if "wrong" in setting else ["correct"]


def arms(setting: Json) -> list[tuple[str, str, str]]:
    """Every loss, head and search of a setting."""
    of_question = [one for one in plan()["losses"] if setting["question"] in one["questions"]]
    searches = [one["name"] for one in plan()["searches"]]
    return [
        (loss["name"], head, search)
        for loss in of_question
        for search in searches[: loss["searches"]]
        for head in HEADS
    ]


def contrasts(setting: Json) -> list[Json]:
    """The primary contrasts of a setting."""
    return [one for one in plan()["contrasts"] if one["question"] == setting["question"]]


def most_runs(setting: Json) -> int:
    """The most runs that a setting can have.

    All candidates have the first seed of a search, the finalists of each rule the others, and the
    candidate that a rule selects the fresh ones.
    """
    design = plan()
    num_rules = len(rules(setting))
    further = len(design["searches"][0]["seeds"]) - 1
    of_arm = design["candidates"] + num_rules * (
        design["finalists"] * further + len(design["seeds"])
    )
    return len(arms(setting)) * of_arm


def ranges(loss: str, head: str) -> dict[str, Any]:
    """The ranges of the parameters of a loss with a head; a fixed parameter is a number."""
    design = plan()
    (found,) = [one for one in design["losses"] if one["name"] == loss]
    return design["heads"][head]["space"] | found.get("space", {}) | found.get(head, {})


def candidate(setting: str, arm: tuple[str, str, str], index: int) -> dict[str, float]:
    """The parameters of a candidate, with four digits."""
    loss, head, search = arm
    space = ranges(loss, head)
    tuned = [name for name, one in space.items() if isinstance(one, Mapping)]
    words = f"{setting}\n{loss}\n{head}\n{search}".encode()
    seed = int(hashlib.sha256(words).hexdigest()[:16], 16)
    shift = np.random.default_rng(seed).random(len(tuned))
    place = (_best_lattice(plan()["candidates"], len(tuned))[index] + shift) % 1
    found = {name: one for name, one in space.items() if name not in tuned}
    for name, share in zip(tuned, place.tolist(), strict=True):
        low, high = space[name]["from"], space[name]["to"]
        linear = space[name].get("scale") == "linear"
        value = low + share * (high - low) if linear else low * (high / low) ** share
        found[name] = float(f"{value:.4g}")
    return found


@functools.cache
def _best_lattice(count: int, dimensions: int) -> np.ndarray:
    """Korobov's lattice with the smallest wrap-around discrepancy of Hickernell (1998), [n, d].

    Point i has i times (1, g, g², …), modulo the number of points, over that number. The squared
    discrepancy is a constant plus the mean over all pairs of points of the product over dimensions
    of 3/2 - |x - y| (1 - |x - y|).
    """

    def points(generator: int) -> list[list[float]]:
        return [
            [index * generator**power % count / count for power in range(dimensions)]
            for index in range(count)
        ]

    def discrepancy(of: list[list[float]]) -> float:
        total = 0.0
        for first, second in itertools.product(of, of):
            apart = [abs(x - y) for x, y in zip(first, second, strict=True)]
            total += math.prod(1.5 - one * (1 - one) for one in apart)
        return round(total, 9)

    generators = [one for one in range(1, count) if math.gcd(one, count) == 1]
    return np.array(min((points(one) for one in generators), key=discrepancy))


# What the files have


def labels(result: Json) -> np.ndarray:
    """The labels of the test examples, [n]."""
    return np.frombuffer(base64.b64decode(result["labels"]), "<i4")


def hits(result: Json, arm: Json) -> np.ndarray:
    """Which test examples have their label in the set, 0 or 1, [seeds, n]."""
    seeds, number = len(result["seeds"]), len(labels(result))
    octets = np.frombuffer(base64.b64decode(arm["hits"]), np.uint8)
    bits = (octets[:, None] >> np.arange(7, -1, -1)) & 1
    return bits.ravel()[: seeds * number].reshape(seeds, number).astype(np.float64)


def mistakes(results: Mapping[str, Json]) -> Iterator[str]:
    """What the files have that the design does not allow."""
    design = plan()
    searched = {seed for one in design["searches"] for seed in one["seeds"]}
    for setting in design["settings"]:
        name = setting["name"]
        if name not in results:
            continue
        result = results[name]
        if result["design"] != digest():
            yield f"{name} is of another design"
        if result["seeds"] != design["seeds"] or searched & {*result["seeds"]}:
            yield f"{name} is not compared on fresh seeds"
        main = "average_5" if setting["question"] == "sets" else "top_5"
        if result["metric"] != main:
            yield f"{name} is compared by {result['metric']}"
        found = [(one["loss"], one["head"], one["search"], one["rule"]) for one in result["arms"]]
        expected = [(*arm, rule) for arm in arms(setting) for rule in rules(setting)]
        if sorted(found) != sorted(expected):
            yield f"{name} has other arms than were planned"
        yield from (f"{name}: {text}" for text in _mistakes_of_arms(result))
        yield from (f"{name}: {text}" for text in _mistakes_of_searches(setting, result))
        yield from (f"{name}: {text}" for text in _mistakes_of_runs(setting, result))


def _mistakes_of_arms(result: Json) -> Iterator[str]:
    for one in result["arms"]:
        arm = one["loss"], one["head"], one["search"]
        if not 0 <= one["candidate"] < plan()["candidates"]:
            yield f"{arm} has no candidate {one['candidate']}"
        elif one["parameters"] != candidate(result["setting"], arm, one["candidate"]):
            yield f"{arm} has other parameters than its candidate"
        if not 0 <= one["validation"] <= 1:
            yield f"{arm} has a validation accuracy of {one['validation']}"
        of_seeds = hits(result, one).mean(axis=1)
        stored = one["accuracies"][result["metric"]]
        if len(stored) != len(of_seeds) or np.abs(of_seeds - stored).max() > 1e-12:
            yield f"{arm} has other accuracies than its hits"


def _mistakes_of_searches(setting: Json, result: Json) -> Iterator[str]:
    """Whether what was selected follows from what the searches saw."""
    design = plan()
    names = "loss", "head", "search", "rule"
    seen = {tuple(one[name] for name in names): one for one in result["searched"]}
    expected = {(*arm, rule) for arm in arms(setting) for rule in rules(setting)}
    if len(result["searched"]) != len(seen) or {*seen} != expected:
        yield "there are other searches than were planned"
        return
    for one in result["arms"]:
        key = tuple(one[name] for name in names)
        of_first = seen[key]["candidates"]
        if len(of_first) != design["candidates"]:
            yield f"{key} has {len(of_first)} candidates"
            continue
        # A stable sort keeps the order of equals.
        ranked = sorted(range(len(of_first)), key=of_first.__getitem__, reverse=True)
        best = ranked[: design["finalists"]]
        finalists = {int(name): values for name, values in seen[key]["finalists"].items()}
        (seeds,) = (each["seeds"] for each in design["searches"] if each["name"] == one["search"])
        if {*finalists} != {*best} or any(len(each) != len(seeds) for each in finalists.values()):
            yield f"{key} has other finalists than its candidates say"
            continue
        if any(values[0] != of_first[index] for index, values in finalists.items()):
            yield f"{key} has finalists with other values than as candidates"
        means = {index: sum(values) / len(values) for index, values in finalists.items()}
        if means.get(one["candidate"]) != max(means.values()):
            yield f"{key} has not the best finalist"
        elif abs(means[one["candidate"]] - one["validation"]) > 1e-12:
            yield f"{key} has another validation accuracy than its finalist"


def _mistakes_of_runs(setting: Json, result: Json) -> Iterator[str]:
    """Whether the number of runs can be that of the design.

    How many finalists two rules share is not in the files.
    """
    design = plan()
    further = len(design["searches"][0]["seeds"]) - 1
    fewest = most = 0
    for arm in arms(setting):
        selected = {
            one["candidate"]
            for one in result["arms"]
            if (one["loss"], one["head"], one["search"]) == arm
        }
        always = design["candidates"] + len(selected) * len(design["seeds"])
        fewest += always + further * max(design["finalists"], len(selected))
        most += always + further * design["finalists"] * len(rules(setting))
    if not fewest <= result["runs"] <= most:
        yield f"{result['runs']} runs are not the {fewest} to {most} of the design"


# The answers


@dataclass(frozen=True)
class Answer:
    """A primary contrast, in points."""

    setting: str
    contrast: str
    points: float
    of_seeds: float
    of_searches: float
    freedom: float
    published: list[float]
    is_equivalence: bool
    corrected: float = 1.0

    @property
    def error(self) -> float:
        """The standard error."""
        return float(np.hypot(self.of_seeds, self.of_searches))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval."""
        return statistics.half_width(self.error, self._seeds)

    @property
    def p_value(self) -> float:
        """The p-value before any correction."""
        return statistics.p_value(self.points, self.error, self._seeds)

    @property
    def detectable(self) -> float:
        """What one of all planned tests finds with a probability of 80 %."""
        return self.error * statistics.detectable_errors(self._seeds, num_planned())

    @property
    def verdict(self) -> str:
        """The word for the answer."""
        margin = plan()["equivalence"]
        within = statistics.equivalence_p_value(self.points, self.error, self._seeds, margin)
        if self.is_equivalence and within < statistics.LEVEL:
            return "equivalent"
        if self.corrected < statistics.LEVEL:
            return "better" if self.points > 0 else "worse"
        sizes = [abs(one) for one in self.published]
        return "cannot tell" if sizes and max(sizes) < self.detectable else "undecided"

    @property
    def _seeds(self) -> float:
        """As many seeds would have the degrees of freedom."""
        return self.freedom + 1


def num_planned() -> int:
    """The primary contrasts of all settings."""
    return sum(len(contrasts(setting)) for setting in plan()["settings"])


def complete(results: Mapping[str, Json]) -> list[Json]:
    """The settings of the questions that have the files of all their settings."""
    settings = plan()["settings"]
    without = {one["question"] for one in settings if one["name"] not in results}
    return [one for one in settings if one["question"] not in without]


def answers(results: Mapping[str, Json]) -> list[Answer]:
    """Those of the questions that are complete; a contrast that has not run has a p-value of 1."""
    found = [
        _answer(setting, contrast, results)
        for setting in complete(results)
        for contrast in contrasts(setting)
    ]
    missing = num_planned() - len(found)
    corrected = statistics.holm([*(one.p_value for one in found), *[1.0] * missing])
    return [
        Answer(**{**vars(one), "corrected": p_value})
        for one, p_value in zip(found, corrected[: len(found)], strict=True)
    ]


def _answer(setting: Json, contrast: Json, results: Mapping[str, Json]) -> Answer:
    result = results[setting["name"]]
    first, second = (
        np.mean(_sides(result, contrast[side]), axis=0) for side in ("first", "second")
    )
    difference = 100 * (first - second)
    of_seeds = statistics.bootstrap_standard_error(
        difference, labels(result), macro=setting["question"] == "tail"
    )
    luck, number = _luck(setting, results)
    squares = of_seeds**2, luck
    freedom = sum(squares) ** 2 / (
        squares[0] ** 2 / (len(difference) - 1) + squares[1] ** 2 / number
    )
    published = [
        float(
            effects.effect(
                *contrast["losses"],
                *(part.replace("{wrong}", str(setting.get("wrong"))) for part in cell),
            )
        )
        for cell in contrast.get("cells", [])
    ]
    return Answer(
        setting["name"],
        f"{contrast['first']} - {contrast['second']}",
        float(difference.mean()),
        of_seeds,
        luck**0.5,
        freedom,
        published,
        contrast.get("equivalence", False),
    )


def secondary(results: Mapping[str, Json]) -> list[list[str | tuple[float, float] | None]]:
    """Each loss with each head: setting, name, and differences with half of their intervals.

    To cross-entropy with the same head, with its better head, in top-1 accuracy with the same head,
    and what selection by wrong labels changes. None is of runs to themselves or not measured.
    """
    found: list[list[str | tuple[float, float] | None]] = []
    for setting in complete(results):
        result = results[setting["name"]]
        macro = setting["question"] == "tail"

        def mean_hits(loss: str, head: str, rule: str, result: Json = result) -> np.ndarray:
            return np.mean([hits(result, one) for one in _of(result, loss, head, rule)], axis=0)

        def told(values: np.ndarray, result: Json = result, macro: bool = macro) -> Any:
            error = statistics.bootstrap_standard_error(100 * values, labels(result), macro=macro)
            return 100 * values.mean(), statistics.half_width(error, len(values))

        def top_1(loss: str, head: str, result: Json = result) -> np.ndarray:
            of_loss = _of(result, loss, head, "correct")
            return np.mean([one["accuracies"]["top_1"] for one in of_loss], axis=0)

        for loss in dict.fromkeys(loss for loss, _, _ in arms(setting)):
            for head in HEADS:
                own = mean_hits(loss, head, "correct")
                row: list[str | tuple[float, float] | None] = [setting["name"], f"{loss}, {head}"]
                is_plain = loss == "cross-entropy"
                row.append(
                    None if is_plain else told(own - mean_hits("cross-entropy", head, "correct"))
                )
                better = np.mean(_sides(result, "cross-entropy"), axis=0)
                row.append(None if np.array_equal(own, better) else told(own - better))
                if is_plain or setting["question"] == "sets":
                    row.append(None)
                else:
                    values = 100 * (top_1(loss, head) - top_1("cross-entropy", head))
                    error = values.std(ddof=1) / len(values) ** 0.5
                    row.append((values.mean(), statistics.half_width(error, len(values))))
                by_wrong = "wrong" in rules(setting)
                row.append(told(mean_hits(loss, head, "wrong") - own) if by_wrong else None)
                found.append(row)
    return found


def _of(result: Json, loss: str, head: str, rule: str) -> list[Json]:
    """The selected candidates of a loss with a head, one for each search."""
    names = "loss", "head", "rule"
    return [one for one in result["arms"] if [one[name] for name in names] == [loss, head, rule]]


def _sides(result: Json, loss: str) -> list[np.ndarray]:
    """The hits of a loss in each search, with the head that validation prefers."""
    found = []
    for search in plan()["searches"]:
        of_search = [
            one
            for one in result["arms"]
            if (one["loss"], one["search"], one["rule"]) == (loss, search["name"], "correct")
        ]
        validation = [one["validation"] for one in of_search]
        found.append(hits(result, of_search[int(np.argmax(validation))]))
    return found


def _luck(setting: Json, results: Mapping[str, Json]) -> tuple[float, int]:
    """The variance of one search, in points squared, and how many differences estimate it."""
    kind = setting["question"], setting["data_set"]
    twice = [
        one["name"]
        for one in plan()["losses"]
        if one["searches"] == 2 and setting["question"] in one["questions"]
    ]
    halves = []
    for other in complete(results):
        if (other["question"], other["data_set"]) == kind:
            for loss in twice:
                of_a, of_b = (100 * one.mean() for one in _sides(results[other["name"]], loss))
                halves.append((of_a - of_b) ** 2 / 2)
    return float(np.mean(halves)), len(halves)
