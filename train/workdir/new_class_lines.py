"""The lines of a report about classes that a classifier does not know, and about sure answers."""

from collections.abc import Mapping
from typing import Any

from train.evaluation import new_classes, selective
from train.foundation.console import show_line


def show(report: Mapping[str, Any]) -> None:
    """Prints the lines, if the report has any of it."""
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
