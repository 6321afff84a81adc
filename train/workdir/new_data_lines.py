"""The lines that reports of new data and unknown classes have on the terminal, below the tables."""

from collections.abc import Mapping
from typing import Any

from train.evaluation import conformal_rules, new_classes, selective
from train.foundation import messages
from train.foundation.console import show_line

# Names in a line.
_MOST_NAMED = 10


def show(report: Mapping[str, Any]) -> None:
    """Prints the lines, if the report has any of it."""
    if "unknown_classes" in report:
        _show_new_data(report)
    if (found := report.get("none_of_these")) is not None:
        if found["auroc"] is not None:
            show_line(
                f"examples of unknown classes: {found['num_examples_of_unknown_classes']:,}; the "
                f"outlier score {found['score']} has an AUROC of {found['auroc']:.3f} and an area "
                f"below OSCR of {found['oscr_area']:.3f}"
            )
        for coverage, of_coverage in found["coverages"].items():
            for name, values in of_coverage["rules"].items():
                show_line(
                    f"{name} with 'none of these', asked {coverage}, got "
                    f"{new_classes.in_words(values)}"
                )
    if (of_program := report.get("sets", {}).get("none_of_these")) is not None:
        show_line(f"with 'none of these': {new_classes.in_words(of_program)}")
    if (answers := report.get("selective")) is not None:
        show_line(selective.in_words(answers))


def _show_new_data(report: Mapping[str, Any]) -> None:
    """Prints whether examples contradict a promise, and what is counted apart or left out."""
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
