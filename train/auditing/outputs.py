"""What an audit found, as a table of examples, as JSON and on the terminal."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from train.auditing.examples import AuditedExamples
from train.auditing.findings import Findings
from train.data import corrections
from train.data.corrections import Correction
from train.data.sources.table import escaped
from train.foundation.console import show_line
from train.foundation.names import in_utf8
from train.series.printing import Column, console_of_tables, show_columns

_COLUMNS = ("rank", "name", "group", "split", "label", "likely", "margin", "probability")
# The classes and the pairs that are printed.
_MOST_SHOWN = 10
# Measured with 5 % of wrong labels: the estimate is 1.0 times their number if the heads agree with
# 91 % of the labels, and 12 times if they agree with 34 %.
_ENOUGH = 0.8


def to_csv(findings: Findings, corrected: Sequence[Correction]) -> bytes:
    """The examples: the least plausible labels first, then those that cannot be judged.

    The file is written so that `config.dataset.corrections` reads it. Its mark of byte order lets a
    spreadsheet, in which people write corrections, know that it is UTF-8.

    Args:
        findings: the findings.
        corrected: the corrections that the data set has already. They are kept: in its row, the
            label is the one before the correction. Examples that are left out come last.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, (*_COLUMNS, "correction"), restval="")
    writer.writeheader()
    left = {corrections.key(one.name): one for one in corrected}
    for row in _rows(findings):
        kept = left.pop(corrections.key(row["name"]), None)
        writer.writerow(_cells(row if kept is None else row | _kept(kept)))
    for kept in left.values():
        writer.writerow(_cells({"name": kept.name} | _kept(kept)))
    return text.getvalue().encode("utf-8-sig")


def _kept(correction: Correction) -> dict[str, str]:
    """The cells of a correction; without a label, the row keeps its own."""
    label = {} if correction.label is None else {"label": correction.label}
    return {**label, "correction": correction.correction}


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """A row, whose texts a spreadsheet does not compute."""
    return {
        name: escaped(in_utf8(cell)) if isinstance(cell, str) else cell
        for name, cell in row.items()
    }


def _rows(findings: Findings) -> Iterator[dict[str, Any]]:
    """A row of the table for each example, in the order of the table."""
    order = findings.order
    names = findings.examples.class_names
    judged = zip(
        _described(findings.examples.take(order)),
        findings.likely[order].tolist(),
        findings.margins[order].tolist(),
        findings.probabilities[order].tolist(),
        strict=True,
    )
    for rank, (row, likely, margin, probability) in enumerate(judged, start=1):
        yield {
            "rank": rank,
            **row,
            "likely": names[likely],
            "margin": round(margin, 4),
            "probability": float(f"{probability:.3g}"),
        }
    yield from _described(findings.others)


def _described(examples: AuditedExamples) -> Iterator[dict[str, str]]:
    columns = (examples.names, examples.group_names(), examples.splits, examples.labels.tolist())
    for name, group, split, label in zip(*columns, strict=True):
        yield {
            "name": name,
            "group": group,
            "split": split,
            "label": examples.class_names[label],
        }


def to_plain(findings: Findings) -> dict[str, Any]:
    """The numbers as a JSON value."""
    names = findings.examples.class_names
    return {
        "examples": len(findings.examples),
        "not_judged": len(findings.others),
        "accuracy": findings.accuracy,
        "wrong": float(findings.wrong_by_class.sum()),
        "classes": [
            {
                "class": in_utf8(name),
                "examples": int(count),
                "wrong": float(wrong),
            }
            for name, count, wrong in zip(
                names, findings.counts, findings.wrong_by_class, strict=True
            )
        ],
        "pairs": [
            {
                "label": in_utf8(names[pair.label]),
                "likely": in_utf8(names[pair.likely]),
                "wrong": pair.wrong,
            }
            for pair in findings.pairs
        ],
    }


def show(findings: Findings) -> None:
    """Prints the numbers."""
    names, counts, wrong = findings.examples.class_names, findings.counts, findings.wrong_by_class
    total = wrong.sum()
    show_line(
        f"estimated: {total:,.0f} of {len(findings.examples):,} labels are wrong "
        f"({_per_cent(total / len(findings.examples))})"
    )
    agree = f"the heads agree with {_per_cent(findings.accuracy)} of the labels"
    if findings.accuracy < _ENOUGH:
        agree += "; the estimates are too high, because they count the mistakes of the heads, too"
    show_line(agree)
    if len(findings.others):
        classes = len(np.unique(findings.others.labels))
        show_line(
            f"not judged: {len(findings.others):,} examples of {classes:,} classes with all "
            "examples in one fold"
        )
    order = np.lexsort((np.arange(len(wrong)), -wrong))
    order = order[wrong[order] > 0][:_MOST_SHOWN]
    if not len(order):
        return
    console = console_of_tables()
    show_columns(
        console,
        [
            Column("class", tuple(names[label] for label in order.tolist()), is_number=False),
            Column("examples", tuple(f"{counts[label]:,}" for label in order.tolist())),
            Column("wrong", tuple(f"{wrong[label]:,.1f}" for label in order.tolist())),
            Column(
                "part",
                tuple(_per_cent(wrong[label] / counts[label]) for label in order.tolist()),
            ),
        ],
    )
    pairs = findings.pairs[:_MOST_SHOWN]
    show_columns(
        console,
        [
            Column("label", tuple(names[pair.label] for pair in pairs), is_number=False),
            Column("likely", tuple(names[pair.likely] for pair in pairs), is_number=False),
            Column("wrong", tuple(f"{pair.wrong:,.1f}" for pair in pairs)),
        ],
    )


def _per_cent(part: float) -> str:
    return f"{100 * part:.1f} %"
