"""What a finished run shows: its test metrics in a table, notes on them, and what comes next."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.configuration import Config
from train.foundation.console import make_console, show_line
from train.reports.metric import LOSS, Metric, Rule, from_json
from train.reports.table import absent_classes, plain_table
from train.run import run_folder
from train.training.losses import find_loss

# In `results.json`: the number of images that were left out as unreadable.
LEFT_OUT = "left_out"
# The order of the columns: accuracies over all examples, over classes, and over classes by their
# number of training images. Other columns come last.
_COLUMNS = ("all", "macro", "few", "medium", "many", "set size")
# Further metrics in the results that have a table, with its title.
_FURTHER = {
    "balanced_test": "on the class-balanced test set:",
    # The accuracies of the best classifiers.
    "bayes": "the best possible on the same examples, over all images and over classes:",
    "bayes_balanced_test": "and on the class-balanced test set:",
}


def show(results: Mapping[str, Any], config: Config, workdir: Path) -> None:
    """Prints the tables of a finished run and the notes.

    Args:
        results: what `results.json` has.
        config: the configuration of the run.
        workdir: its folder.
    """
    if number := results.get(LEFT_OUT):
        show_line(
            f"images left out as unreadable: {number:,}; listed in {workdir / run_folder.SEEN}"
        )
    evaluated, select_by = results.get("evaluated", {}), Metric.parse(results["selected_by"])
    test = from_json(results["test"])
    show_line(
        f"test, with the parameters of epoch {results['best_epoch']}, which has the best "
        f"{select_by.in_words} on validation: loss {LOSS.format(test[LOSS])}"
    )
    _show_table(test, evaluated.get("test"))
    for name, title in _FURTHER.items():
        if name in results:
            show_line(title)
            _show_table(from_json(results[name]), evaluated.get(name))
    if find_loss(config.loss.name).optimizes_top_k and (k := config.loss.parameters["k"]) > 1:
        show_line(
            f"Note: {config.loss.name} with k = {k} is a top-{k} loss. Read its top-{k} accuracy: "
            "it does not optimise the top-1 accuracy."
        )
    # Without class weights, the field is missing.
    if results["best_epoch"] < (first := results.get("class_weights_epoch", 1)):
        show_line(
            f"Note: the selected epoch {results['best_epoch']} is before the class weights start, "
            f"in epoch {first}: --config.select_by=macro_top_{min(config.eval.ks)}_accuracy may "
            "select a later one."
        )
    command = f"python -m train.evaluate --workdir={workdir}"
    show_line(f"all files are in {workdir}; sets with promises, classes and ranks: {command}")


def _show_table(
    metrics: Mapping[Metric, float | None], evaluated: Mapping[str, Any] | None
) -> None:
    """Prints a row for each rule that makes sets, and a column for each kind of accuracy it has.

    Args:
        metrics: the metrics of a split.
        evaluated: what `train.reports.summaries.counted` says of it, which is printed too.
    """
    rows: dict[tuple[int, Rule], dict[str, str]] = {}
    for metric, value in metrics.items():
        if metric.rule is not None and metric.k is not None and value is not None:
            row = rows.setdefault((metric.k, metric.rule), {})
            row[_column(metric)] = metric.format(value)
    filled = [column for row in rows.values() for column in row]
    columns = [column for column in dict.fromkeys([*_COLUMNS, *filled]) if column in filled]
    table = [("accuracy", *columns)]
    for k, rule in sorted(rows, key=lambda row: (row[0], row[1] == "average")):
        cells = rows[k, rule]
        table.append((f"{rule}-{k}", *(cells.get(column, "-") for column in columns)))
    if evaluated is not None:
        groups = evaluated["groups"]
        of_columns = [groups.get("all" if column == "macro" else column) for column in columns]
        for what in ("classes", "examples"):
            title = "labels" if what == "examples" and "num_examples" in evaluated else what
            table.append((title, *("" if of is None else f"{of[what]:,}" for of in of_columns)))
    make_console().print(plain_table(table))
    for line in () if evaluated is None else absent_classes(evaluated):
        show_line(line)


def _column(metric: Metric) -> str:
    if metric.is_accuracy:
        return "all" if metric.average == "micro" else metric.average
    return metric.quantity.replace("_", " ")
