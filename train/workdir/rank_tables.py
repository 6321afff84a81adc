"""What train.evaluate prints of the ranks above the classes: accuracies, and sets by rank."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from train.data.taxonomy import plural
from train.evaluation.metric import from_json
from train.foundation.console import show_line
from train.foundation.printable import printable


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Prints the tables of the ranks of a report; nothing without a taxonomy."""
    if "ranks" in report:
        height = report.get("mistake_height")
        far = "" if height is None else f"; mistakes are {height:.2f} ranks up on average"
        show_line(f"by rank, with the sums of the probabilities of their classes{far}:")
        console.print(_accuracies(report["ranks"]))
    if "bayes_ranks" in report:
        show_line("the best possible by rank, on the same examples:")
        console.print(_accuracies(report["bayes_ranks"]))
    sets = [*_sets(report)]
    if sets:
        show_line(
            "sets by rank: the coverage, the mean number (in the plural), the mean ranks up to the "
            "answer, and the mean number of names:"
        )
        console.print(_coverages(sets))


def _accuracies(ranks: Mapping[str, Mapping[str, Any]]) -> Table:
    metrics = [*dict.fromkeys(metric for one in ranks.values() for metric in from_json(one))]
    columns = ("rank", "nodes", *(metric.in_few_words for metric in metrics))
    table = Table(*(Column(name, justify="right") for name in columns), box=SIMPLE)
    for rank, values in ranks.items():
        table.add_row(
            printable(rank),
            f"{values['nodes']:,}",
            *(metric.format(values.get(metric.name)) for metric in metrics),
        )
    return table


def _sets(report: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The coverages, the names and the values of sets that are reported by rank."""
    for level, kinds in report["coverages"].items():
        # A conformal rule may have the name of a kind.
        rules = report.get("conformal_rules", {}).get(level, {})
        for name, values in {**kinds, **rules}.items():
            if "height" in values:
                yield level, name, values
    own = report.get("sets", {})
    if "height" in own:
        yield f"{own.get('promised', '-')}", "program", own


def _coverages(sets: list[tuple[str, str, Mapping[str, Any]]]) -> Table:
    ranks = [*sets[0][2]["ranks"]]
    by_rank = (printable(name) for rank in ranks for name in (rank, plural(rank)))
    columns = ("asked", "sets", *by_rank, "up", "names")
    table = Table(
        *(Column(name, justify="right") for name in columns), box=SIMPLE, padding=(0, 1, 0, 0)
    )
    for level, name, values in sets:
        of_ranks = (values["ranks"][rank] for rank in ranks)
        shares = (
            cell
            for one in of_ranks
            for cell in (f"{one['coverage']:.1%}", f"{one['set_size']:.2f}")
        )
        up = "-" if values["height"] is None else f"{values['height']:.2f}"
        table.add_row(level, name.replace("_", " "), *shares, up, f"{values['names']:.2f}")
    return table
