"""Shows what was evaluated, and writes its files."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.classifiers import fitted
from train.evaluating import figures
from train.evaluating.asked import CONFUSIONS, PAGE, Outputs
from train.evaluating.limits import Limits
from train.evaluating.source import Source
from train.foundation import files, json_files
from train.foundation.console import show_line
from train.prediction import error_page
from train.reports import table as tables
from train.reports.examples import ExampleTable
from train.reports.rules import parse
from train.scores import files as score_files
from train.workdir import figure_style, terminal

_WHAT = {".json": "report", ".csv": "rows", ".npz": "scores"}


def write(
    source: Source, report: Mapping[str, Any], found: Limits, outputs: Outputs, *, full: bool
) -> None:
    """Shows a report, and writes the files that are asked for.

    Args:
        source: where the scores come from.
        report: the report.
        found: the examples that are evaluated, and the rules with limits.
        outputs: the files.
        full: whether everything is shown.
    """
    # First, for the numbers are there whether they can be written or not.
    tables.show(report, source.title, full=full)
    if (best := report.get("best_possible")) is not None:
        shares = ", ".join(
            f"{text} {100 * row['coverage']:.1f}% (macro {100 * row['macro']:.1f}%)"
            for text, row in best.items()
        )
        show_line(f"best possible: {shares}")
    written = {}
    for path in outputs.out:
        what = _WHAT.get(path.suffix, f"figure {path.suffix}")
        match what:
            case "report":
                files.write_whole(path, json_files.sealed(dict(report), indent=1))
            case "rows":
                files.write_whole(path, _rows(report))
            case "scores":
                score_files.write(path, found.scores)
            case _:
                drawn = figures.of_rules(report["sets"])
                files.write_whole(path, figure_style.encode(drawn, path.suffix))
        written[what] = path
    if outputs.examples is not None:
        written |= _write_examples(outputs.examples, source, report["sets"], found)
    if outputs.limits is not None and source.classifier is not None:
        fitted.write(outputs.limits, source.classifier, found.rules)
        written["limits"] = outputs.limits
    terminal.show_files(written)


def _rows(report: Mapping[str, Any]) -> bytes:
    """The rows of a report as CSV: a line for each rule, of examples and of observations."""
    found = []
    for what, of in {"examples": report, "observations": report.get("observations", {})}.items():
        for text, row in of.get("sets", {}).items():
            low, high = row["interval"]
            numbers = {key: one for key, one in row.items() if not isinstance(one, list | dict)}
            found.append({"of": what, "sets": text, **numbers, "low": low, "high": high})
    columns = list(dict.fromkeys(name for row in found for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue().encode()


def _write_examples(
    path: Path, source: Source, rows: Mapping[str, Any], found: Limits
) -> dict[str, Path]:
    """Writes the tables of the examples, the figure of their confusions, and their page.

    The sets are those of the first rule that promises something, or else of the first.
    """
    promised = (text for text, row in rows.items() if "promised" in row)
    text = next(promised, next(iter(rows), "top_k=1"))
    rule = found.rules.get(text) or parse(text).fit(found.scores, "")
    ks = sorted(int(one.value) for one in map(parse, rows) if one.name == "top_k")
    table = ExampleTable.of(found.scores, rule, ks or [1])
    written = table.write(path)
    drawn = figures.of_confusions(table)
    written["figure of confusions"] = path.with_suffix(CONFUSIONS)
    files.write_whole(written["figure of confusions"], figure_style.encode(drawn, ".png"))
    if path.suffix == PAGE:
        facts = error_page.ErrorPageFacts(
            source.title,
            rule.in_words,
            "example" if source.classifier is None else source.classifier.what,
            {what: file for what, file in written.items() if file.suffix == ".csv"},
            source.unreadable,
        )
        error_page.write(path, table, facts, source.examples)
        written["page of errors"] = path
    return written
