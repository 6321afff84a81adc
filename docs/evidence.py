"""Writes the tables of evidence.md from the collected numbers: `python docs/evidence.py`.

The numbers are what `python -m train.tables --table=E4 --json=docs/evidence/E4.json` writes. What
is between the comments `<!-- NAME -->` and `<!-- end -->` is replaced by the table of that name.
"""

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from train.evaluation.metric import SHOTS
from train.papers.tables.catalogue import EVIDENCE
from train.papers.tables.layouts import EPSILONS
from train.series.statistics import half_width, summarize
from train.training.losses import LOSSES

PAGE = Path(__file__).with_suffix(".md")
NUMBERS = PAGE.with_suffix("")
PLACE = re.compile(r"(?<=<!-- )(?!end )(?P<name>[\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
# What tells the tunings of one loss apart.
APART = ("loss.epsilon", "dataset.label_noise")


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes:
        values: by run.
        shots: the same on classes of few, medium and many shots; empty where there are none.
        best: what the best classifier reaches; None where it is not known.
    """

    values: Sequence[float]
    shots: Mapping[str, Sequence[float]]
    best: float | None


@dataclass(frozen=True)
class Interval:
    """A 95 % interval around an estimate."""

    center: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.center:+.2f} ± {self.half_width:.2f}"


@dataclass(frozen=True)
class Comparison:
    """A difference in points, and the bounds that a claim gives for it.

    Attributes:
        label: between what.
        difference: its interval.
        above: a claim that it is larger than that; None without one.
        below: a claim that it is smaller than that; None without one.
    """

    label: str
    difference: Interval
    above: float | None = None
    below: float | None = None

    @property
    def verdict(self) -> Literal["holds", "does not", "undecided"]:
        """Whether the claim holds, by where the whole interval lies."""
        low = self.difference.center - self.difference.half_width
        high = self.difference.center + self.difference.half_width
        if (self.above is not None and high < self.above) or (
            self.below is not None and low > self.below
        ):
            return "does not"
        is_above = self.above is None or low > self.above
        is_below = self.below is None or high < self.below
        return "holds" if is_above and is_below else "undecided"


Table = Mapping[tuple[str, str], Cell]


def read(name: str) -> Table:
    """The numbers of a table by (row, column)."""
    table = json.loads((NUMBERS / f"{name}.json").read_text())
    if table["runs_to_go"]:
        raise ValueError(f"{name}.json was collected before its runs were finished")
    return {
        (cell["row"], cell["column"]): Cell(
            values=list(cell["values"].values()),
            shots={shot: list(found["values"].values()) for shot, found in cell["shots"].items()},
            best=table["best"].get(cell["column"], {}).get("value"),
        )
        for cell in table["cells"]
    }


def contrast(*terms: tuple[float, Sequence[float]]) -> Interval:
    """A weighted sum of the means of independent samples, with its interval by Welch's t."""
    center = sum(weight * float(np.mean(values)) for weight, values in terms)
    parts = [weight**2 * float(np.var(values, ddof=1)) / len(values) for weight, values in terms]
    variance = sum(parts)
    if variance == 0:
        return Interval(center, 0.0)
    freedom = variance**2 / sum(
        part**2 / (len(values) - 1) for part, (_, values) in zip(parts, terms, strict=True)
    )
    return Interval(center, half_width(math.sqrt(variance), freedom))


def difference(cell: Cell, other: Cell) -> Interval:
    """The difference of two means: that of the first cell less that of the other."""
    return contrast((1, cell.values), (-1, other.values))


def growth(table: Table, loss: str, first: str, last: str) -> Interval:
    """The lead of a loss over cross-entropy in the last column, less that in the first."""
    return contrast(
        (1, table[loss, last].values),
        (-1, table["cross_entropy", last].values),
        (-1, table[loss, first].values),
        (1, table["cross_entropy", first].values),
    )


def few_less_many(cell: Cell) -> list[float]:
    """How far each run is better on classes of few shots than on those of many."""
    return [few - many for few, many in zip(cell.shots["few"], cell.shots["many"], strict=True)]


# The claims: what each is about, and the differences that it names.


def _to_best_epsilon(name: str, epsilons: Sequence[str], **claim: float) -> Iterator[Comparison]:
    table = read(name)
    by_epsilon = {e: table["noised_balanced", f"epsilon={e}"] for e in EPSILONS}
    best = max(EPSILONS, key=lambda epsilon: float(np.mean(by_epsilon[epsilon].values)))
    for epsilon in epsilons:
        if epsilon != best:
            found = difference(by_epsilon[epsilon], by_epsilon[best])
            yield Comparison(f"epsilon {epsilon} less {best}", found, **claim)


def tiny_epsilon(name: str) -> Iterator[Comparison]:
    """Claim 1: without noise, or with hardly any, the loss learns badly."""
    return _to_best_epsilon(name, ("0", "1e-4", "1e-3"), below=-5)


def enough_epsilon(name: str) -> Iterator[Comparison]:
    """Claim 1: with noise of a hundredth of the scale and more it learns well."""
    return _to_best_epsilon(name, ("1e-2", "0.1", "1", "10", "100"), above=-2)


def broad_optimum(name: str) -> Iterator[Comparison]:
    """Claim 1: the optimum is broad."""
    return _to_best_epsilon(name, ("0.1", "1", "10"), above=-1)


def samples(name: str) -> Iterator[Comparison]:
    """Claim 2: the number of samples hardly matters."""
    table = read(name)
    ten = table["noised_balanced", "M=10"]
    for (_, column), cell in table.items():
        if column not in ("M=10", "M=inf"):
            label = f"{_in_words(column)} less M = 10"
            yield Comparison(label, difference(cell, ten), above=-0.5, below=0.5)


def expectation() -> Iterator[Comparison]:
    """Claim 2: the exact expectation is as good."""
    table = read("E2")
    ten, exact = table["noised_balanced", "M=10"], table["noised_balanced", "M=inf"]
    yield Comparison("expectation less M = 10", difference(exact, ten), above=-0.5)


TOP_K = ("smooth_top_k_hinge", "noised_balanced", "expected_balanced")


def _leads(
    name: str, column: str, losses: Sequence[str] = TOP_K, **claim: float
) -> Iterator[Comparison]:
    table = read(name)
    for loss in losses:
        found = difference(table[loss, column], table["cross_entropy", column])
        label = f"{LOSSES[loss].title} less cross-entropy, {_in_words(column)}"
        yield Comparison(label, found, **claim)


def under_noise(name: str, *noises: str) -> Iterator[Comparison]:
    """Claim 3: under label noise the top-K losses have the better top-5."""
    for noise in noises:
        yield from _leads(name, noise, above=0)


def more_under_more_noise(name: str) -> Iterator[Comparison]:
    """Claim 3: their lead grows with the noise."""
    table = read(name)
    for loss in TOP_K:
        label = f"{LOSSES[loss].title}: its lead at p = 0.4 less that at p = 0"
        yield Comparison(label, growth(table, loss, "p=0", "p=0.4"), above=0)


def top_1_without_noise() -> Iterator[Comparison]:
    """Claim 3: without noise they lose top-1."""
    return _leads("E3b", "p=0", below=0)


RIVALS = ("cross_entropy", "focal", "ldam", "noised_balanced", "smooth_top_k_hinge")
MACRO = "macro top-5"


def long_tail(name: str) -> Iterator[Comparison]:
    """Claim 4: the imbalanced loss has the best macro top-5."""
    table = read(name)
    ours = table["noised_imbalanced", MACRO]
    for loss in RIVALS:
        label = f"noised imbalanced less {LOSSES[loss].title}"
        yield Comparison(label, difference(ours, table[loss, MACRO]), above=0)


def long_tail_by_shot(name: str) -> Iterator[Comparison]:
    """Claim 4: most on classes of few shots."""
    table = read(name)
    ours = few_less_many(table["noised_imbalanced", MACRO])
    for loss in RIVALS:
        more = contrast((1, ours), (-1, few_less_many(table[loss, MACRO])))
        yield Comparison(f"lead over {LOSSES[loss].title}: on few less on many", more, above=0)


def over_images(name: str) -> Iterator[Comparison]:
    """Beside claim 4: on a long tail the top-K losses have the better top-5 over images too."""
    losses = ("smooth_top_k_hinge", "noised_balanced", "noised_imbalanced")
    return _leads(name, "top-5", losses, above=0)


def smooth_on_the_tail(name: str) -> Iterator[Comparison]:
    """Claim 5: the smooth top-K hinge fails."""
    table = read(name)
    smooth, plain = table["smooth_top_k_hinge", MACRO], table["cross_entropy", MACRO]
    label = f"{LOSSES['smooth_top_k_hinge'].title} less cross-entropy"
    yield Comparison(label, difference(smooth, plain), below=0)
    few = contrast((1, smooth.shots["few"]), (-1, plain.shots["few"]))
    yield Comparison(f"{label}, few shots", few, below=0)


def average_k(name: str) -> Iterator[Comparison]:
    """Claim 6: the average-K loss has the best average-K accuracy."""
    table = read(name)
    for (loss, column), cell in table.items():
        if loss != "average_k":
            label = f"average-K less {LOSSES[loss].title}, {_in_words(column)}"
            yield Comparison(label, difference(table["average_k", column], cell), above=0)


def average_k_by_k(name: str) -> Iterator[Comparison]:
    """Claim 6: more for larger K."""
    table = read(name)
    label = "lead over cross-entropy: at K = 10 less at K = 2"
    yield Comparison(label, growth(table, "average_k", "K=2", "K=10"), above=0)


def average_k_by_shot(name: str) -> Iterator[Comparison]:
    """Claim 6: more for fewer shots."""
    table = read(name)
    ours, plain = table["average_k", "K=5"], table["cross_entropy", "K=5"]
    more = contrast((1, few_less_many(ours)), (-1, few_less_many(plain)))
    yield Comparison("lead over cross-entropy: on few less on many", more, above=0)


def single_answers(name: str) -> Iterator[Comparison]:
    """Claim 6: fewer sets of one class."""
    table = read(name)
    fewer = difference(table["average_k", "K=5"], table["cross_entropy", "K=5"])
    yield Comparison("average-K less cross-entropy, share of sets", fewer, below=0)


def flat_alpha() -> Iterator[Comparison]:
    """Claim 7: alpha matters little below 10."""
    table = read("E7")
    for (_, column), cell in table.items():
        if column not in ("alpha=0.3", "alpha=100"):
            found = difference(cell, table["average_k", "alpha=0.3"])
            label = f"{column.replace('=', ' ')} less 0.3"
            yield Comparison(label, found, above=-1, below=1)


def sparsity() -> Iterator[Comparison]:
    """Claim 8: sparse gradients, which fill with epsilon."""
    table = read("E8")
    by_epsilon = {e: table["noised_balanced", f"epsilon={e}"] for e in EPSILONS}
    for smaller, larger in itertools.pairwise(EPSILONS):
        grows = difference(by_epsilon[larger], by_epsilon[smaller])
        yield Comparison(f"epsilon {larger} less {smaller}, coordinates", grows, above=0)
    last = contrast((1, by_epsilon["100"].values))
    yield Comparison("epsilon 100, coordinates", last, below=5)


CLAIMS: dict[str, Callable[[], Iterator[Comparison]]] = {
    "tiny epsilon": lambda: tiny_epsilon("E1"),
    "enough epsilon": lambda: enough_epsilon("E1"),
    "broad optimum": lambda: broad_optimum("E1"),
    "tiny epsilon on digits": lambda: tiny_epsilon("digits-4.2"),
    "enough epsilon on digits": lambda: enough_epsilon("digits-4.2"),
    "broad optimum on digits": lambda: broad_optimum("digits-4.2"),
    "samples": lambda: samples("E2"),
    "samples on digits": lambda: samples("digits-4.3"),
    "expectation": expectation,
    "under noise": lambda: under_noise("E3", "p=0.2", "p=0.4"),
    "more under more noise": lambda: more_under_more_noise("E3"),
    "top 1 without noise": top_1_without_noise,
    "under noise with few images": lambda: under_noise("E3c", "p=0.4"),
    "more under more noise with few images": lambda: more_under_more_noise("E3c"),
    "under noise at the end": lambda: under_noise("E3d", "p=0.4"),
    "more under more noise at the end": lambda: more_under_more_noise("E3d"),
    "long tail": lambda: long_tail("E4"),
    "long tail by shot": lambda: long_tail_by_shot("E4"),
    "long tail with few images": lambda: long_tail("E4b"),
    "long tail by shot with few images": lambda: long_tail_by_shot("E4b"),
    "over images with few images": lambda: over_images("E4b"),
    "smooth with few images": lambda: smooth_on_the_tail("E4b"),
    "smooth on the tail": lambda: smooth_on_the_tail("E4"),
    "smooth at larger rates": lambda: smooth_on_the_tail("E5"),
    "average K": lambda: average_k("E6"),
    "average K by K": lambda: average_k_by_k("E6"),
    "average K by shot": lambda: average_k_by_shot("E6"),
    "single answers": lambda: single_answers("E6b"),
    "average K by sigmoids": lambda: average_k("E6c"),
    "average K by K by sigmoids": lambda: average_k_by_k("E6c"),
    "average K by shot by sigmoids": lambda: average_k_by_shot("E6c"),
    "single answers by sigmoids": lambda: single_answers("E6d"),
    "flat alpha": flat_alpha,
    "sparsity": sparsity,
}


def verdict(comparisons: Sequence[Comparison]) -> str:
    """The verdict on a claim with these comparisons."""
    found = {comparison.verdict for comparison in comparisons}
    if "does not" in found:
        return "Does not hold"
    return "Undecided" if "undecided" in found else "Holds"


# Markdown


def claim(name: str) -> str:
    """The differences of a claim and the verdict."""
    comparisons = list(CLAIMS[name]())
    rows = [[one.label, str(one.difference), _bounds(one), one.verdict] for one in comparisons]
    table = _markdown(["difference", "", "claimed", ""], rows)
    found = [one.verdict for one in comparisons]
    counts = f"as claimed: {found.count('holds')}, contrary: {found.count('does not')}"
    return f"{table}\n**{verdict(comparisons)}** ({counts}, of {len(found)}).\n"


def accuracies(name: str) -> str:
    """A table of accuracies with their intervals, and what the best classifier reaches."""
    table = read(name)
    rows, columns = (list(dict.fromkeys(key[index] for key in table)) for index in (0, 1))
    lines = []
    for row in rows:
        cells = [table[row, column] for column in columns]
        lines.append([LOSSES[row].title, *(_mean(cell.values) for cell in cells)])
        if any(cell.shots for cell in cells):
            lines.append(["few / medium / many", *map(_shots, cells)])
    best = [table[rows[0], column].best for column in columns]
    if any(value is not None for value in best):
        lines.append(["best possible", *("" if b is None else f"{b:.2f}" for b in best)])
    return _markdown(["", *map(_in_words, columns)], lines)


def selected(name: str) -> str:
    """The candidate that tuning selected for each loss, or each cell."""
    table = json.loads((NUMBERS / f"{name}.json").read_text())
    lines = []
    for tuning in table["tuning"]:
        loss = LOSSES[tuning["config"].rpartition(":")[2]].title
        candidates = [
            f"{_changes(candidate['overrides'])}: {100 * candidate['values'][0]:.2f}"
            for candidate in tuning["candidates"]
        ]
        apart = {
            field: tuning["overrides"][field] for field in APART if field in tuning["overrides"]
        }
        lines.append(
            [
                ", ".join(filter(None, [loss, _changes(apart)])),
                _changes(tuning["selected"]),
                "; ".join(candidates),
            ]
        )
    return _markdown(["", "selected", "all candidates, with their validation accuracy"], lines)


def regret() -> str:
    """How far each loss is below the best classifier."""
    by_sigmoids = {
        (loss, column): cell
        for (loss, column), cell in read("E6c").items()
        if "sigmoid" in LOSSES[loss].scores
    }
    tables = {"E4": read("E4"), "E6": read("E6"), "E6c": by_sigmoids}
    columns = {
        "macro top-5": ("E4", MACRO),
        "top-5": ("E4", "top-5"),
        "top-1": ("E4", "top-1"),
        "average-5": ("E4", "average-5"),
        "average-5, tuned by it": ("E6", "K=5"),
        "the same by sigmoids": ("E6c", "K=5"),
    }
    rows = dict.fromkeys(row for table in tables.values() for row, _ in table)
    lines = []
    for loss in rows:
        cells = [tables[name].get((loss, column)) for name, column in columns.values()]
        lines.append([LOSSES[loss].title, *map(_regret, cells)])
    return _markdown(["", *columns], lines)


def sigmoids_less_softmax() -> str:
    """The difference that scoring by sigmoids makes for the average-K loss."""
    softmax, sigmoids = read("E6"), read("E6c")
    rows = []
    for column in ("K=2", "K=5", "K=10"):
        change = difference(sigmoids["average_k", column], softmax["average_k", column])
        rows.append([f"average-K, {_in_words(column)}: by sigmoids less by softmax", str(change)])
    return _markdown(["difference", ""], rows)


def _regret(cell: Cell | None) -> str:
    if cell is None or cell.best is None:
        return ""
    return _mean([cell.best - value for value in cell.values])


def _in_words(column: str) -> str:
    """The head of a column as the tables write it: `K=5` as `K = 5`."""
    return column.replace("=", " = ")


def _mean(values: Sequence[float]) -> str:
    summary = summarize(values)
    return f"{summary.mean:.2f} ± {summary.half_width:.2f}"


def _shots(cell: Cell) -> str:
    return " / ".join(f"{summarize(cell.shots[shot]).mean:.1f}" for shot in SHOTS if cell.shots)


def _bounds(one: Comparison) -> str:
    bounds = [(">", one.above), ("<", one.below)]
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def _changes(overrides: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {value:g}" for name, value in overrides.items())


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# The experiments that tune, less those that are other readings of the same tuning.
TUNED = ("E1", "E3", "E3c", "E3d", "E4", "E4b", "E5", "E6", "E6c")
TABLES: dict[str, Callable[[], str]] = {
    **{name: functools.partial(accuracies, name) for name in EVIDENCE},
    "digits 42": functools.partial(accuracies, "digits-4.2"),
    "digits 43": functools.partial(accuracies, "digits-4.3"),
    **{f"{name} selected": functools.partial(selected, name) for name in TUNED},
    "regret": regret,
    "sigmoids less softmax": sigmoids_less_softmax,
}


def filled(text: str) -> str:
    """The page, with its tables written from the numbers."""

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        content = TABLES[name]() if name in TABLES else claim(name)
        return f"{name}{match[2]}\n{content}\n"

    return PLACE.sub(fill, text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
