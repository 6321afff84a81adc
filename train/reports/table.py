"""The report on the terminal: a table with a row for each rule, and a few lines below it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Column, Table

from train.foundation.console import first_names, make_console, printable, show_line

# The columns of the table, by the numbers of rows; one without numbers is left out.
_COLUMNS = {
    **{"coverage": "coverage", "interval": "95%", "best coverage": "best"},
    **{"macro": "macro", "best macro": "best macro"},
    **{shot: shot for shot in ("few", "medium", "many")},
    **{"missed_labels": "missed", "example_f1": "F1", "macro_f1": "macro F1"},
    **{"answered": "answered", "error_of_answers": "wrong", "none_of_these": "none"},
    **{"coverage_of_all": "of all", "empty": "empty", "utility": "utility", "mean_cost": "cost"},
    "set_size": "size",
}
# Of a pipe or a file.
_WIDTH = 200
# What is left out first if the terminal is narrow.
_LEFT_OUT = ("best macro", "medium", "many", "few", "macro")
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
    on = report["calibrated_on"]
    source = "" if on is None else f"; limits from {on['on']} ({on['examples']:,})"
    groups = f" in {report['groups']:,} groups" if "groups" in report else ""
    show_line(
        f"{title}: {report['examples']:,} examples{groups}, {report['classes']:,} classes, loss "
        f"{report['loss']:.4g}{source}"
    )
    best = report.get("best_possible", {})
    rows = {text: row | _flat({"best": best.get(text, {})}) for text, row in report["sets"].items()}
    console = make_console(width_without_terminal=_WIDTH)
    columns = {
        name: [title, *(_number(name, row.get(name)) for row in rows.values())]
        for name, title in _COLUMNS.items()
        if any(_is_shown(name, row) for row in rows.values())
    }
    texts = ["sets", *(_CONFORMAL.sub(r"\2=\1", text) for text in rows)]
    for name in _LEFT_OUT:
        if sum(1 + max(map(len, column)) for column in (texts, *columns.values())) > console.width:
            columns.pop(name, None)
    console.print(plain_table([*zip(texts, *columns.values(), strict=True)]))
    for line in [*_lines(report), *(_further_lines(report) if full else ())]:
        show_line(line)
    if (found := report.get("observations")) is not None:
        show_line("")
        number = f"{found['mean_num_combined']:.3g} examples on average"
        show(found, f"observations of {number}, by {found['combined_by']}", full=full)


def absent_classes(evaluated: Mapping[str, Any]) -> Iterator[str]:
    """A line with the classes without examples, if there are some; see `summaries.counted`."""
    if number := evaluated["classes_without_examples"]:
        named = first_names([*map(printable, evaluated["named"])], _MOST_NAMED)
        yield f"classes without examples in this split, not counted: {number:,} ({named})"


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
        if number := row.get("in_every_set"):
            yield f"{text}: classes with too few examples, which are in every set: {number:,}"
    if "unknown_classes" in report:
        unknown = report["unknown_classes"]
        named = first_names([*unknown["classes"]], _MOST_NAMED)
        further = ""
        if (found := report.get("none_of_these")) is not None:
            further = f"; outlier scores: AUROC {found['auroc']:.3f}, OSCR {found['oscr_area']:.3f}"
        yield (
            f"examples of classes that the classifier does not know, counted apart: "
            f"{unknown['examples']:,}, of {named}{further}"
        )
    by = report.get("classes_by_coverage", {})
    for what in ("worst", "best"):
        if by.get(what):
            yield f"{what} classes by {by['rule']}: {_classes(by[what])}"
    if pairs := report["confusions"][:_MOST_LISTED]:
        listed = ", ".join(
            f"{printable(one['label'])} as {printable(one['predicted'])} ({one['examples']:,})"
            for one in pairs
        )
        yield f"confusions: {listed}"


def _further_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """All other numbers."""
    for name, of in report["evaluated"]["groups"].items():
        yield f"{name}: {of['classes']:,} classes with {of['examples']:,} examples"
    yield from absent_classes(report["evaluated"])
    for name in ("mean_average_precision", "mistake_height"):
        if name in report:
            yield f"{name}: {_number(name, report[name])}"
    for rank, accuracies in report.get("ranks", {}).items():
        yield f"{rank}: {_numbers(accuracies)}"
    for text, row in report["sets"].items():
        if numbers := _numbers({name: row[name] for name in row if name not in _COLUMNS}):
            yield f"{text}: {numbers}"
        if "least_covered" in row:
            yield f"{text}: least covered {_classes(row['least_covered'])}"


def _is_shown(name: str, row: Mapping[str, Any]) -> bool:
    # Most sets are not empty, and it is said only where it can be seen.
    if name == "empty":
        return bool(row[name] >= 0.0005)
    return row.get(name) is not None and (name != "coverage_of_all" or "none_of_these" in row)


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The numbers of a row, and of what is in it."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[before + name] = value
    return found


def _numbers(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_number(name, value)}" for name, value in _flat(row).items())


def _number(name: str, value: Any) -> str:
    """A number as people read it; what is no share is known by its name."""
    if value is None:
        return "-"
    if name == "interval":
        return "-".join(f"{100 * end:.1f}" for end in value)
    if isinstance(value, int):
        return f"{value:,}"
    if name.endswith("size"):
        return f"{value:.2f}"
    if name.startswith("utility") or name.endswith(("limit", "cost", "height", "names")):
        return f"{value:.4g}"
    return _per_cent(value)


def plain_table(rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts; the first row has the titles."""
    columns = [Column(printable(title), justify="right") for title in rows[0][1:]]
    table = Table(rows[0][0], *columns, box=SIMPLE, show_edge=False, padding=0)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _classes(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{printable(row['class'])} ({_per_cent(row['coverage'])} of {row['examples']:,})"
        for row in rows[:_MOST_LISTED]
    )


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f}%"
