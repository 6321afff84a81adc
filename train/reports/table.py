"""The report on the terminal: a table with a row for each rule, and a few lines below it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from train.data.taxonomy import plural
from train.foundation import messages
from train.foundation.console import make_console, show_line
from train.foundation.printable import printable

# The numbers of rows in the order of their columns; a column without numbers is left out.
_SHARES = (
    *("coverage", "interval", "macro", "few", "medium", "many", "missed_labels", "example_f1"),
    *("macro_f1", "answered", "error_of_answers", "none_of_these", "coverage_of_all", "empty"),
)
_NUMBERS = ("utility", "mean_cost", "set_size")
_TITLES = {
    "interval": "95%",
    "missed_labels": "missed",
    "example_f1": "F1",
    "macro_f1": "macro F1",
    "error_of_answers": "wrong",
    "none_of_these": "none",
    "coverage_of_all": "of all",
    "mean_cost": "cost",
    "set_size": "size",
}
# Columns that are left out first if the terminal is narrow.
_LEFT_OUT = ("medium", "many", "few", "macro")
# A conformal rule has a short text, too.
_CONFORMAL = re.compile(r"coverage=([^,]+), rule=(\w+)")
# Classes and confusions that a line names, and classes without examples or that are not known.
_MOST_LISTED, _MOST_NAMED = 5, 10


def show(report: Mapping[str, Any], title: str, *, full: bool) -> None:
    """Prints a report, and below it the report of its observations.

    Args:
        report: the report; see `train.reports.report`.
        title: what is evaluated.
        full: whether all of it is printed, not only the first 20 lines of it.
    """
    console = make_console()
    on = report["calibrated_on"]
    source = "" if on is None else f"; limits from {on['on']} ({on['examples']:,})"
    groups = f" in {report['groups']:,} groups" if "groups" in report else ""
    show_line(
        f"{title}: {report['examples']:,} examples{groups}, {report['classes']:,} classes, loss "
        f"{report['loss']:.4g}{source}"
    )
    console.print(_table(report["sets"], console.width))
    for line in _lines(report):
        show_line(line)
    if full:
        _show_rest(report, console)
    if (found := report.get("observations")) is not None:
        show_line("")
        number = f"{found['mean_num_combined']:.3g} examples on average"
        show(found, f"observations of {number}, by {found['combined_by']}", full=full)


def _table(rows: Mapping[str, Mapping[str, Any]], width: int) -> Table:
    """The table of rules, with as many columns as there is room for."""
    # Most sets are not empty, and it is said only where it can be seen.
    used = [
        name
        for name in (*_SHARES, *_NUMBERS)
        if any(row.get(name) is not None for row in rows.values())
        and (name != "empty" or any(row[name] >= 0.0005 for row in rows.values()))
        and (name != "coverage_of_all" or any("none_of_these" in row for row in rows.values()))
    ]
    columns = {
        name: [_TITLES.get(name, name), *(_cell(name, row.get(name)) for row in rows.values())]
        for name in used
    }
    texts = ["sets", *(_CONFORMAL.sub(r"\2=\1", text) for text in rows)]
    for name in _LEFT_OUT:
        if sum(1 + max(map(len, cells)) for cells in [texts, *columns.values()]) > width:
            columns.pop(name, None)
    return plain_table([*zip(texts, *columns.values(), strict=True)])


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "interval":
        return "-".join(f"{100 * end:.1f}" for end in value)
    if name in _NUMBERS:
        return f"{value:.2f}" if name == "set_size" else f"{value:.4g}"
    return _per_cent(value)


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What every reader must know: contradicted promises, unknown classes, the worst."""
    for text, row in report["sets"].items():
        if row.get("contradicted"):
            of_all = "none_of_these" in row and "unknown" in row
            share = row["coverage_of_all" if of_all else "coverage"]
            yield (
                f"{text}: these examples contradict the promise of {_per_cent(row['promised'])}; "
                f"they have {_per_cent(share)}"
            )
    if "unknown_classes" in report:
        unknown = report["unknown_classes"]
        named = messages.first_names([*unknown["classes"]], _MOST_NAMED)
        further = ""
        if (found := report.get("none_of_these")) is not None:
            further = f"; outlier scores: AUROC {found['auroc']:.3f}, OSCR {found['oscr_area']:.3f}"
        yield (
            f"examples of classes that the classifier does not know, counted apart: "
            f"{unknown['examples']:,}, of {named}{further}"
        )
    if (by := report.get("classes_by_coverage")) is not None:
        for what in ("worst", "best"):
            yield f"{what} classes by {by['rule']}: {_classes(by[what][:_MOST_LISTED])}"
    if pairs := report["confusions"][:_MOST_LISTED]:
        listed = ", ".join(
            f"{printable(one['label'])} as {printable(one['predicted'])} {one['examples']:,}"
            for one in pairs
        )
        yield f"confusions: {listed}"


def _show_rest(report: Mapping[str, Any], console: Console) -> None:
    """Prints what the first lines leave out."""
    rows = report["sets"]
    groups = report["evaluated"]["groups"]
    counted = ", ".join(
        f"{name} {of['classes']:,} classes with {of['examples']:,}" for name, of in groups.items()
    )
    show_line(f"classes with examples: {counted}")
    if absent := report["evaluated"]["classes_without_examples"]:
        named = messages.first_names([*map(printable, report["evaluated"]["named"])], _MOST_NAMED)
        show_line(f"classes without examples, not counted: {absent:,} ({named})")
    if "mean_average_precision" in report:
        show_line(f"mean average precision (mAP): {_per_cent(report['mean_average_precision'])}")
    for text, row in rows.items():
        if "utility_of" in row:
            of_top = ", ".join(f"{name} {value:.4g}" for name, value in row["utility_of"].items())
            show_line(f"{text}: {row['utility']:.4g}; {of_top}")
    for text, row in rows.items():
        if (unknown := row.get("unknown")) is not None:
            says = unknown.get("none_of_these")
            new = "" if says is None else f", 'none of these' in {_per_cent(says)}"
            show_line(f"{text}: of unknown classes {unknown['set_size']:.3g} classes{new}")
    for text, row in rows.items():
        if "least_covered" in row:
            show_line(f"{text}: least covered {_classes(row['least_covered'])}")
    if "mistake_height" in report:
        show_line(f"mistakes are {report['mistake_height']:.2f} ranks up on average")
    of_ranks = [*report.get("ranks", {}).items()]
    if of_ranks:
        names = [*dict.fromkeys(name for _, row in of_ranks for name in row if name != "nodes")]
        cells = [
            (rank, f"{row['nodes']:,}", *(_cell(name, row.get(name)) for name in names))
            for rank, row in of_ranks
        ]
        console.print(plain_table([("rank", "nodes", *names), *cells]))
    with_ranks = {text: row for text, row in rows.items() if "ranks" in row}
    if with_ranks:
        ranks = [*next(iter(with_ranks.values()))["ranks"]]
        titles = [name for rank in ranks for name in (rank, plural(rank))]
        cells = [(text, *_cells_of_ranks(row, ranks)) for text, row in with_ranks.items()]
        console.print(plain_table([("sets", *titles, "up", "names"), *cells]))


def _cells_of_ranks(row: Mapping[str, Any], ranks: Sequence[str]) -> Iterator[str]:
    for rank in ranks:
        yield _per_cent(row["ranks"][rank]["coverage"])
        yield f"{row['ranks'][rank]['set_size']:.2f}"
    yield "-" if row["height"] is None else f"{row['height']:.2f}"
    yield f"{row['names']:.2f}"


def plain_table(rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts; the first row has the titles."""
    columns = [Column(printable(title), justify="right") for title in rows[0][1:]]
    table = Table(rows[0][0], *columns, box=SIMPLE, show_edge=False, padding=0)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _classes(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{printable(row['class'])} {_per_cent(row['coverage'])} of {row['examples']:,}"
        for row in rows
    )


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f}%"
