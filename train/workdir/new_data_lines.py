"""The lines that the report of new data has on the terminal, below its tables."""

from collections.abc import Mapping
from typing import Any

from train.evaluation import conformal_rules
from train.foundation import messages
from train.foundation.console import show_line

# Names in a line.
_MOST_NAMED = 10


def show(report: Mapping[str, Any]) -> None:
    """Prints the lines: whether each promise holds, and what is counted apart or left out."""
    if "unknown_classes" not in report:
        return
    groups = report["num_groups"]
    if groups is not None:
        show_line(f"the examples are in {groups:,} groups, which the intervals take into account")
    for kinds in report["coverages"].values():
        show_line(f"conformal sets: {kinds['conformal']['in_words']}")
    for rules in report.get("conformal_rules", {}).values():
        for name, values in rules.items():
            if name != conformal_rules.DEFAULT:
                show_line(f"{name}: {values['in_words']}")
    for kinds in report.get("observations", {}).get("coverages", {}).values():
        show_line(f"conformal sets of observations: {kinds['conformal']['in_words']}")
    if (sets := report.get("sets")) is not None:
        low, high = sets["coverage_interval"]
        words = sets.get("in_words", f"{sets['coverage']:.3f} ({low:.3f} to {high:.3f}) have it")
        show_line(
            f"sets of {sets['rule']}: {words}; {sets['set_size']:.3g} classes on average, "
            f"{sets['empty_share']:.1%} empty"
        )
    unknown = report["unknown_classes"]
    if unknown["num_examples"]:
        names = list(unknown["classes"])
        show_line(
            f"examples of classes that the classifier does not know, counted apart: "
            f"{unknown['num_examples']:,}, of {messages.first_names(names, _MOST_NAMED)}"
        )
    unreadable = report["unreadable"]
    if unreadable:
        names = [one["path"] for one in unreadable]
        show_line(
            f"images left out as unreadable: {len(names):,} "
            f"({messages.first_names(names, _MOST_NAMED)}); the report has all"
        )
