"""What a run shows on the terminal: a progress bar or lines, and the closing table."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import TextColumn

from train.configuration import Config
from train.foundation.console import make_console, show_line
from train.foundation.progress_bar import make_bar
from train.reports.metric import LOSS, Metric, Rule, from_json
from train.reports.table import absent_classes, plain_table

Batch = TypeVar("Batch")

# The order of the columns of the closing table: accuracies over all examples, over classes, and
# over classes by their number of training images. Other columns come last.
_COLUMNS = ("all", "macro", "few", "medium", "many", "set size")
# Above the accuracies of the best classifiers, by their names in the results.
_BEST_POSSIBLE = {
    "bayes": "the best possible on the same examples, over all images and over classes:",
    "bayes_balanced_test": "and on the class-balanced test set:",
}


class Terminal:
    """Shows a run on standard output; plain lines without animation if that is not a terminal.

    Args:
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one.
        first_step: the steps that an earlier run made.
        select_by: the validation metric that selects an epoch.
    """

    def __init__(
        self, *, num_epochs: int, steps_per_epoch: int, first_step: int, select_by: Metric
    ) -> None:
        self._num_epochs = num_epochs
        self._best = f"  best {select_by.in_words} so far"
        self._console = make_console()
        self._bar = make_bar(
            self._console,
            before="epoch {task.fields[epoch]}/" + str(num_epochs),
            after=[TextColumn("{task.fields[metrics]}")],
        )
        self._task = self._bar.add_task(
            "training",
            total=num_epochs * steps_per_epoch,
            completed=first_step,
            epoch=first_step // steps_per_epoch,
            metrics="",
        )
        self._training: Mapping[str, float] = {}
        if first_step > 0:
            epochs, steps = divmod(first_step, steps_per_epoch)
            within = f" and {steps} of {steps_per_epoch} steps" if steps else ""
            show_line(f"continuing after epoch {epochs} of {num_epochs}{within}", self._console)
        self._bar.start()

    def training(
        self, epoch: int, step: int, metrics: Mapping[str, float], examples_per_second: float | None
    ) -> None:
        """Moves the bar to a step, with its loss and accuracy and the speed up to there."""
        self._training = metrics
        shown = _format_training(metrics)
        if examples_per_second is not None:
            shown += f"  {examples_per_second:,.0f} examples/s"
        self._bar.update(self._task, completed=step, epoch=epoch, metrics=shown)

    def epoch(
        self, epoch: int, seconds: float, validation: Mapping[Metric, float], is_best: bool
    ) -> None:
        """Prints a line for a finished epoch, above the bar if there is one."""
        show_line(
            f"epoch {epoch}/{self._num_epochs}  training: {_format_training(self._training)}  "
            f"validation: {_in_words(validation)}  {seconds:.1f} s{self._best if is_best else ''}",
            self._console,
        )

    def close(self) -> None:
        """Leaves the bar as it is; may be called again."""
        self._bar.stop()


def show_results(
    results: Mapping[str, Any], config: Config, files: Mapping[str, Path], *, optimizes_top_k: bool
) -> None:
    """Prints the closing table: the test metrics, notes on them, and where every file is.

    Args:
        results: what `results.json` has.
        config: the configuration of the run.
        files: where every file is, by what it is.
        optimizes_top_k: whether the loss is made for the top-K accuracy of its own K.
    """
    evaluated, select_by = results.get("evaluated", {}), Metric.parse(config.select_by)
    test = from_json(results["test"])
    show_line(
        f"test, with the parameters of epoch {results['best_epoch']}, which has the best "
        f"{select_by.in_words} on validation: loss {LOSS.format(test[LOSS])}"
        f"{_note_unknown(results, evaluated.get('test'))}"
    )
    _show_table(test, evaluated.get("test"))
    if "balanced_test" in results:
        show_line("on the class-balanced test set:")
        _show_table(from_json(results["balanced_test"]), evaluated.get("balanced_test"))
    for name, title in _BEST_POSSIBLE.items():
        if name in results:
            show_line(title)
            _show_table(from_json(results[name]), None)
    if optimizes_top_k and (k := config.loss.parameters["k"]) > 1:
        show_line(
            f"Note: {config.loss.name} with k = {k} is a top-{k} loss. Read its top-{k} accuracy: "
            "it does not optimise the top-1 accuracy."
        )
    # Without class weights, the field is missing.
    if results["best_epoch"] < (first := results.get("class_weights_epoch", 1)):
        other = Metric.accuracy("top", min(config.eval.ks), "macro").name
        advice = f" --config.select_by={other} may select a later epoch."
        show_line(
            f"Note: the selected epoch {results['best_epoch']} is before the class weights start, "
            f"in epoch {first}. Its parameters were trained without them."
            f"{'' if config.select_by == other else advice}"
        )
    show_files(files)


def tracked(batches: Iterable[Batch], total: int, what: str) -> Iterator[Batch]:
    """The batches, with a bar on standard error if that is a terminal."""
    with make_bar(make_console(stderr=True), before=what, transient=True) as bar:
        yield from bar.track(batches, total=total)


def show_files(files: Mapping[str, Path], console: Console | None = None) -> None:
    """Prints the paths of files with their descriptions; by default on standard output."""
    width = max((len(what) for what in files), default=0)
    for what, path in files.items():
        show_line(f"{what:<{width}}  {_shorten(path)}", console)


def _note_unknown(fields: Mapping[str, Any], evaluated: Mapping[str, Any] | None) -> str:
    """The number of examples of classes that the classifier does not know, and of these classes."""
    unknown = fields.get("num_examples_of_unknown_classes", 0)
    if not unknown or evaluated is None:
        return ""
    all_classes = evaluated["groups"]["all"]["classes"] + evaluated["classes_without_examples"]
    further = all_classes - fields["num_classes"]
    what = "class" if further == 1 else "classes"
    return (
        f"; {unknown:,} examples are of {further:,} further {what} without training examples, and "
        "count as misses"
    )


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
    if evaluated is None:
        make_console().print(plain_table(table))
        return
    groups = evaluated["groups"]
    of_columns = [groups.get("all" if column == "macro" else column) for column in columns]
    counted = "labels" if "num_examples" in evaluated else "examples"
    for title, what in (("classes", "classes"), (counted, "examples")):
        table.append((title, *("" if of is None else f"{of[what]:,}" for of in of_columns)))
    if "num_examples" in evaluated:
        show_line(f"labels are counted: {evaluated['num_examples']:,} examples have these:")
    make_console().print(plain_table(table))
    for line in absent_classes(evaluated):
        show_line(line)


def _column(metric: Metric) -> str:
    if metric.is_accuracy:
        return "all" if metric.average == "micro" else metric.average
    return metric.quantity.replace("_", " ")


def _format_training(metrics: Mapping[str, float]) -> str:
    """The loss and the accuracy of training steps; a line does not have room for more."""
    return f"loss {metrics['loss']:.4g}, accuracy {metrics['accuracy']:.2%}"


def _in_words(metrics: Mapping[Metric, float]) -> str:
    """The metrics with their values, in a line."""
    return ", ".join(f"{one.in_few_words} {one.format(metrics[one])}" for one in metrics)


def _shorten(path: Path) -> str:
    """The path, relative to the working directory if it is below it."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
