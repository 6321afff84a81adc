"""Makes the runs of the first edition and collects their numbers.

    python docs/evidence/first_edition_runs.py

The runs are of `synthetic_species`. A command that was stopped can be given again: it makes only
the runs that are not finished.
"""

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from train.evaluation.metric import Metric
from train.foundation import command_line, files
from train.papers.tables import collecting, outputs
from train.papers.tables.layouts import Variant, average_k, epsilon_columns, make_table, top_k
from train.papers.tables.readings import Reading
from train.papers.tables.table import Table
from train.series.execution import execute
from train.series.planner import Planner
from train.series.recipe import Recipe
from train.series.runs_folder import RunsFolder
from train.workdir.runs import Run

RUNS = Path("runs")
NUMBERS = Path(__file__).parent

_K = 5
# Half of the epochs of the recipe, to save time.
_SHORTER = {"num_epochs": 10, "optimizer.decay_epochs": (6, 8)}
_ALPHAS = (0.01, 0.1, 0.3, 1.0, 10.0, 100.0)

# A table of five seeds on the species.
_table = functools.partial(make_table, seeds=5, on="synthetic_species", has_best=True)


@dataclass(frozen=True)
class NonzeroGradients(Reading):
    """The gradient coordinates other than 0, as the mean over the steps of the first epoch."""

    def read(self, run: Run) -> float | None:
        """The mean. There are 100 coordinates, so that it is in per cent."""
        return run.first_epoch_mean("nonzero_gradients")

    def to_json(self) -> dict[str, Any]:
        """Its name, its split and its epoch."""
        return {"name": "nonzero_gradients", "split": "train", "epoch": 1}


def _recipe(select_by: Metric, changes: Mapping[str, Any]) -> Callable[[str], Recipe]:
    def recipe(loss: str) -> Recipe:
        shorter = Recipe("synthetic_species", loss).changed(_SHORTER)
        return shorter.changed({"select_by": select_by.name}).changed(changes)

    return recipe


def _by_alpha() -> Table:
    metric = average_k(_K)
    return _table(
        "E7",
        f"test average-{_K} accuracy (%) by alpha, on a long tail",
        ("average_k",),
        {f"alpha={alpha:g}": Variant(metric, (("loss.alpha", alpha),)) for alpha in _ALPHAS},
        _recipe(metric.metric, {}),
    )


def _gradient_sparsity() -> Table:
    balanced = {"dataset.long_tail_exponent": 0.0, "loss.num_samples": 3, "num_epochs": 1}
    return _table(
        "E8",
        "gradient coordinates other than 0 (%), an image, in the first epoch, M = 3, balanced "
        "classes",
        ("noised_balanced",),
        epsilon_columns(NonzeroGradients()),
        _recipe(top_k(_K).metric, balanced),
        note="Of 100; an image that the hinge is at rest for has none.",
    )


TABLES = (_by_alpha(), _gradient_sparsity())


def make(table: Table) -> None:
    """Makes the runs of a table that are not finished, prints the numbers and writes them."""

    def look() -> Planner:
        return Planner(RunsFolder(RUNS), (cell.arm for cell in table.cells.values()), table.seeds)

    execution = execute(look)
    numbers = collecting.collect(table, look())
    outputs.show(numbers)
    if execution.failed:
        execution.show_failed()
        sys.exit(1)
    content = files.to_json(outputs.to_plain(numbers), indent=2)
    files.write_whole(NUMBERS / f"{table.number}.json", content)


def main() -> None:
    """Makes the tables, one after the other."""
    for table in TABLES:
        make(table)


if __name__ == "__main__":
    command_line.run(main)
