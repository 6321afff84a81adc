"""Writes the tables of the committed results to benchmarks/README.md and pages of docs.

python -m benchmarks.table
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    calibrated_losses,
    chunked,
    collection_report,
    data,
    deployment,
    estimators_report,
    exactness,
    frozen_heads,
    in_browser,
    kernel,
    losses_report,
    near_duplicates,
    networks_report,
    new_classes,
    observations,
    on_device,
    other_losses,
    program_formats,
    selection_report,
    set_construction,
    set_rules,
    set_sizes,
    steps_on_device,
    throughput,
    train_step_report,
)

PAGES = (
    Path(__file__).parent / "README.md",
    Path(__file__).parent.parent / "docs" / "evidence" / "proofs.md",
)
RESULTS = Path(__file__).parent / "results"
_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "calibrated_losses": calibrated_losses.tables,
    "chunked": chunked.tables,
    "collection": collection_report.tables,
    "data": data.tables,
    "deployment": deployment.tables,
    "estimators": estimators_report.tables,
    "exactness": exactness.tables,
    "frozen_heads": frozen_heads.tables,
    "in_browser": in_browser.tables,
    "kernel": kernel.tables,
    "losses": losses_report.tables,
    "losses_flat": losses_report.tables,
    "losses_memory": losses_report.tables,
    "near_duplicates": near_duplicates.tables,
    "networks": networks_report.tables,
    "new_classes": new_classes.tables,
    "observations": observations.tables,
    "on_device": on_device.tables,
    "other_losses": other_losses.tables,
    "program_formats": program_formats.tables,
    "selection": selection_report.tables,
    "set_construction": set_construction.tables,
    "set_rules": set_rules.tables,
    "set_sizes": set_sizes.tables,
    "steps_on_device": steps_on_device.tables,
    "throughput": throughput.tables,
    "train_step": train_step_report.tables,
    "train_step_densenet": train_step_report.tables,
    "train_step_resnet": train_step_report.tables,
}
_PLACE = re.compile(
    r"(?P<begin><!-- begin (?P<file>(?P<benchmark>\w+)-\w+\.json) -->\n).*?(?P<end><!-- end -->)",
    re.DOTALL,
)


def filled(text: str) -> str:
    """The text, with the tables of a result between the comments that name its file."""

    def tables(place: re.Match[str]) -> str:
        results = json.loads((RESULTS / place["file"]).read_text())
        made = _TABLES[place["benchmark"]](results).strip("\n")
        return f"{place['begin']}\n{made}\n\n{place['end']}"

    return _PLACE.sub(tables, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
