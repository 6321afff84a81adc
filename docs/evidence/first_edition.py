"""The tables of the first edition in design.md.

The numbers are what `python docs/evidence/first_edition_runs.py` writes.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from markdown_tables import markdown_table

from train.papers.tables.layouts import EPSILONS
from train.series.statistics import half_width, summarize
from train.training.losses import LOSSES

NUMBERS = Path(__file__).parent


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes:
        values: by run.
        best: what the best classifier reaches; None where it is not known.
    """

    values: Sequence[float]
    best: float | None


@dataclass(frozen=True)
class Interval:
    """A 95 % interval around an estimate, by Student's t.

    Attributes:
        center: the estimate.
        half_width: half of the interval.
        standard_error: that of the estimate.
        freedom: the degrees of freedom.
    """

    center: float
    half_width: float
    standard_error: float
    freedom: float

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
        return Interval(center, 0.0, 0.0, math.inf)
    freedom = variance**2 / sum(
        part**2 / (len(values) - 1) for part, (_, values) in zip(parts, terms, strict=True)
    )
    error = math.sqrt(variance)
    return Interval(center, half_width(error, freedom), error, freedom)


def difference(cell: Cell, other: Cell) -> Interval:
    """The difference of two means: that of the first cell less that of the other."""
    return contrast((1, cell.values), (-1, other.values))


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
    table = markdown_table(["difference", "", "claimed", ""], rows)
    found = [one.verdict for one in comparisons]
    counts = f"as claimed: {found.count('holds')}, contrary: {found.count('does not')}"
    return f"{table}**{verdict(comparisons)}** ({counts}, of {len(found)}).\n\n"


def accuracies(name: str) -> str:
    """A table of accuracies with their intervals, and what the best classifier reaches."""
    table = read(name)
    rows, columns = (list(dict.fromkeys(key[index] for key in table)) for index in (0, 1))
    lines = [
        [LOSSES[row].title, *(_mean(table[row, column].values) for column in columns)]
        for row in rows
    ]
    best = [table[rows[0], column].best for column in columns]
    if any(value is not None for value in best):
        lines.append(["best possible", *("" if b is None else f"{b:.2f}" for b in best)])
    return markdown_table(["", *(column.replace("=", " = ") for column in columns)], lines)


def _mean(values: Sequence[float]) -> str:
    summary = summarize(values)
    return f"{summary.mean:.2f} ± {summary.half_width:.2f}"


def _bounds(one: Comparison) -> str:
    bounds = [(">", one.above), ("<", one.below)]
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


# With what stands between the comments of design.md.
TABLES: Mapping[str, Callable[[], str]] = {
    **{name: functools.partial(accuracies, name) for name in ("E7", "E8")},
    **{name: functools.partial(claim, name) for name in CLAIMS},
}
