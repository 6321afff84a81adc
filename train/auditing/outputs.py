"""What an audit found, as a table of examples, as JSON and on the terminal."""

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from train.auditing.findings import Findings
from train.data import corrections
from train.data.corrections import Correction
from train.data.examples import Examples, Split
from train.data.sources.table import encode_rows
from train.foundation.console import make_console, show_line
from train.foundation.names import in_utf8
from train.reports.table import plain_table

_COLUMNS = (
    *("rank", "name", "group", "split", "label", "likely"),
    *("margin", "probability", "correction"),
)
# The classes that are printed.
_MOST_SHOWN = 10
# Measured with 5 % of wrong labels: the estimate is 1.1 times their number if the heads agree with
# 91 % of the labels, and 12 times if they agree with 34 %.
_ENOUGH = 0.8


def to_csv(findings: Findings, corrected: Sequence[Correction]) -> bytes:
    """The examples: the least plausible labels first, then those that cannot be judged.

    `config.dataset.corrections` reads it. Its mark of byte order lets a spreadsheet, in which
    people write corrections, know that it is UTF-8. The corrections that the data set has already
    are kept: the label is the one before the correction. Examples that are left out come last.
    """
    rows = ([row.get(name) for name in _COLUMNS] for row in _rows(findings, corrected))
    return codecs.BOM_UTF8 + encode_rows([_COLUMNS, *rows], "\r\n")


def _rows(findings: Findings, corrected: Sequence[Correction]) -> Iterator[dict[str, Any]]:
    left = {corrections.key(one.name): one for one in corrected}
    names = findings.examples.class_names
    for rank, index in enumerate(findings.order.tolist(), start=1):
        yield {
            "rank": rank,
            **_described(findings.examples, index, left),
            "likely": names[findings.likely[index]],
            "margin": round(float(findings.margins[index]), 4),
            "probability": float(f"{findings.probabilities[index]:.3g}"),
        }
    for index in range(len(findings.others)):
        yield _described(findings.others, index, left)
    for one in left.values():
        yield {"name": one.name, "label": one.label or "", "correction": one.correction}


def _described(examples: Examples, index: int, left: dict[str, Correction]) -> dict[str, str]:
    """An example, with its correction if this is left."""
    label, name = examples.class_names[examples.labels[index]], examples.name(index)
    kept = left.pop(corrections.key(name), None)
    return {
        "name": name,
        "group": "" if examples.groups is None else examples.groups[index],
        "split": Split(examples.splits[index]).word,
        "label": label if kept is None or kept.label is None else kept.label,
        "correction": "" if kept is None else kept.correction,
    }


def to_plain(findings: Findings) -> dict[str, Any]:
    """The numbers as a JSON value."""
    names = [*map(in_utf8, findings.examples.class_names)]
    classes = zip(names, findings.counts.tolist(), findings.wrong_by_class.tolist(), strict=True)
    pairs = zip(*(column.tolist() for column in findings.pairs), strict=True)
    return {
        "examples": len(findings.examples),
        "not_judged": len(findings.others),
        "accuracy": findings.accuracy,
        "wrong": float(findings.wrong_by_class.sum()),
        "classes": [
            {"class": name, "examples": count, "wrong": wrong} for name, count, wrong in classes
        ],
        "pairs": [
            {"label": names[label], "likely": names[likely], "wrong": wrong}
            for label, likely, wrong in pairs
        ],
    }


def show(findings: Findings) -> None:
    """Prints the numbers, and the classes with the most wrong labels."""
    names, counts, wrong = findings.examples.class_names, findings.counts, findings.wrong_by_class
    number, total = len(findings.examples), wrong.sum()
    estimated = f"estimated: {total:,.0f} of {number:,} labels are wrong"
    show_line(f"{estimated} ({_per_cent(total / number)})")
    agree = f"the heads agree with {_per_cent(findings.accuracy)} of the labels"
    if findings.accuracy < _ENOUGH:
        agree += "; the estimates are too high, because they count the mistakes of the heads, too"
    show_line(agree)
    if len(findings.others):
        such = "examples of classes with all examples in one fold"
        show_line(f"not judged: {len(findings.others):,} {such}")
    order = np.argsort(-wrong, kind="stable")[:_MOST_SHOWN]
    rows = [
        (names[one], f"{counts[one]:,}", f"{wrong[one]:,.1f}", _per_cent(wrong[one] / counts[one]))
        for one in order[wrong[order] > 0].tolist()
    ]
    if rows:
        make_console().print(plain_table([("class", "examples", "wrong", "part"), *rows]))


def _per_cent(part: float) -> str:
    return f"{100 * part:.1f} %"
