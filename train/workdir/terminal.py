"""What a run shows on the terminal: a progress bar or lines, and the closing table."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Column, Table

from train.configuration import Config
from train.evaluation.combinations import COMBINATIONS
from train.evaluation.metric import AVERAGES, LOSS, Metric, Rule, from_json
from train.foundation.console import make_console, show_line
from train.foundation.printable import printable
from train.foundation.progress_bar import make_bar
from train.workdir import rank_tables

Batch = TypeVar("Batch")

# The order of the columns of the closing table: accuracies over all examples, over classes, and
# over classes by their number of training images. Other columns come last.
_COLUMNS = ("all", "macro", "few", "medium", "many", "set size")
# Classes that a line names.
_MOST_NAMED = 10
# Above the accuracies of the two best classifiers.
_BEST_POSSIBLE = "the best possible on the same examples, over all images and over classes:"


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
    console = make_console()
    evaluated = results.get("evaluated", {})
    test, select_by = from_json(results["test"]), Metric.parse(config.select_by)
    show_line(
        f"test, with the parameters of epoch {results['best_epoch']}, which has the best "
        f"{select_by.in_words} on validation: loss {LOSS.format(test[LOSS])}"
        f"{_note_unknown(results, evaluated.get('test'))}"
    )
    _show_table(console, test, evaluated.get("test"))
    if "balanced_test" in results:
        show_line("on the class-balanced test set:")
        balanced = from_json(results["balanced_test"])
        _show_table(console, balanced, evaluated.get("balanced_test"))
    if "bayes" in results:
        show_line(_BEST_POSSIBLE)
        console.print(_table(from_json(results["bayes"])))
    if "bayes_balanced_test" in results:
        show_line("and on the class-balanced test set:")
        console.print(_table(from_json(results["bayes_balanced_test"])))
    notes = []
    if optimizes_top_k and (k := config.loss.parameters["k"]) > 1:
        notes.append(_note_on_metrics(config.loss.name, k))
    # Without class weights, and in a run of an earlier version, the field is missing.
    if results["best_epoch"] < results.get("class_weights_epoch", 1):
        notes.append(_note_on_class_weights(results, config))
    for note in notes:
        console.print(note)
        show_line("")
    show_files(files)


def show_report(title: str, report: Mapping[str, Any]) -> None:
    """Prints the report of an evaluation."""
    console = make_console()
    show_line(
        f"{title}: {report['num_examples']:,} examples, {report['num_classes']:,} classes"
        f"{_note_unknown(report, report['evaluated'])}{_note_thresholds(report)}",
    )
    _show_table(console, from_json(report["metrics"]), report["evaluated"])
    _show_intervals(report)
    if "bayes" in report:
        show_line(_BEST_POSSIBLE)
        console.print(_table(from_json(report["bayes"])))
        show_line("gap to the best possible:")
        console.print(_table(from_json(report["gap_to_bayes"])))
    _show_coverages(console, report)
    rank_tables.show(console, report)
    _show_worth(console, report)
    if "accuracy_by_count" in report:
        show_line("accuracy by the number of training examples of the class:")
        console.print(_count_table(report["accuracy_by_count"]))
    if "observations" in report:
        _show_observations(console, report["observations"])


def _show_observations(console: Console, report: Mapping[str, Any]) -> None:
    """Prints the report of observations, which are groups of the examples above."""
    left_out = report.get("num_of_several_classes", 0)
    without = f"; {left_out:,} further ones have examples of several classes" if left_out else ""
    number = report.get("num_calibration_examples")
    # Given thresholds are known by the examples of their observations.
    source = f"those of {report['calibrated_on']}" if number is None else f"{number:,} observations"
    show_line(
        f"observations: {report['num_examples']:,}, of {report['mean_num_combined']:.3g} examples "
        f"on average and {report['most_combined']:,} at most, combined by "
        f"{COMBINATIONS[report['combined_by']]}; thresholds from "
        f"{source}{without}"
    )
    _show_table(console, from_json(report["metrics"]), report["evaluated"])
    _show_intervals(report)
    _show_coverages(console, report)
    rank_tables.show(console, report)
    _show_worth(console, report)


def _show_intervals(report: Mapping[str, Any]) -> None:
    """Prints the confidence intervals of the accuracies over examples, if there are some."""
    if "intervals" not in report:
        return
    bounds = {name: value for name, value in report["intervals"].items() if name != "level"}
    shown = ", ".join(
        f"{Metric.parse(name).in_few_words} {_between(value)}" for name, value in bounds.items()
    )
    show_line(f"{report['intervals']['level']:.0%} intervals in per cent: {shown}")


def _show_coverages(console: Console, report: Mapping[str, Any]) -> None:
    """Prints the tables of sets that have the label with a given probability."""
    if "mean_average_precision" in report:
        show_line(f"mean average precision (mAP): {_per_cent(report, 'mean_average_precision')}")
    if report["coverages"]:
        show_line("sets for a given coverage, the probability that they have the label:")
        # Drawn at random from each observation.
        further = report.get("one_example", {})
        console.print(
            _coverage_table(
                {
                    level: {**kinds, **({"one_example": further[level]} if further else {})}
                    for level, kinds in report["coverages"].items()
                }
            )
        )
        for level, kinds in report["coverages"].items():
            if "false_negative_rate" in (sets := kinds["conformal"]):
                missed, by_example, by_class = (
                    _per_cent(sets, name)
                    for name in ("false_negative_rate", "example_f1", "macro_f1")
                )
                show_line(
                    f"several labels, conformal sets at {level}: {missed} of the labels missed; F1 "
                    f"{by_example} over examples, {by_class} over classes"
                )
        if further:
            show_line("one example: for one example of each observation, drawn at random")
    if "conformal_rules" in report:
        # Observations may be too few for any rule.
        found = {level: rules for level, rules in report["conformal_rules"].items() if rules}
        for level, rules in found.items():
            show_line(
                f"conformal rules at a coverage of {level}; least: of the least covered class:"
            )
            console.print(_rule_table(rules))


def _per_cent(values: Mapping[str, Any], name: str) -> str:
    return f"{100 * values[name]:.1f}%"


def _show_worth(console: Console, report: Mapping[str, Any]) -> None:
    """Prints the tables of sets of a largest expected utility, and of a bounded mean cost."""
    for name, values in report.get("utilities", {}).items():
        show_line(f"mean utility of sets, {name}: the best sets, and top-K sets:")
        of_sets = {"best": values["utility"], **values["utility_of"]}
        columns = [Column(one.replace("_", "-"), justify="right") for one in of_sets]
        columns += [Column(one, justify="right") for one in ("best: coverage", "set size")]
        table = Table(*columns, box=SIMPLE)
        table.add_row(
            *(f"{value:.4f}" for value in of_sets.values()),
            f"{values['coverage']:.2%}",
            f"{values['set_size']:.2f}",
        )
        console.print(table)
    if report.get("risks"):
        show_line(f"sets with a bounded mean cost, by {report['costs']}:")
        names = ("at most", "mean cost", "coverage", "set size")
        table = Table(*(Column(one, justify="right") for one in names), box=SIMPLE)
        for risk, values in report["risks"].items():
            table.add_row(
                risk,
                f"{values['mean_cost']:.4g}",
                f"{values['coverage']:.2%}",
                f"{values['set_size']:.2f}",
            )
        console.print(table)


def _between(bounds: Sequence[float]) -> str:
    """An interval of a share in per cent, without the sign: tables have eighty characters."""
    return f"{100 * bounds[0]:.1f}-{100 * bounds[1]:.1f}"


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


def _note_thresholds(report: Mapping[str, Any]) -> str:
    """What thresholds are from; nothing for a classifier without any, or with its own rule."""
    if not report["thresholds"] and not report["coverages"]:
        return ""
    number = report.get("num_calibration_examples")
    return f"; thresholds from {report['calibrated_on']}" + (
        "" if number is None else f" ({number:,})"
    )


def _note_on_metrics(name: str, k: int) -> str:
    return (
        f"Note: {name} with k = {k} is a top-{k} loss. Read its top-{k} accuracy: it does not "
        "optimise the top-1 accuracy."
    )


def _note_on_class_weights(results: Mapping[str, Any], config: Config) -> str:
    note = (
        f"Note: the selected epoch {results['best_epoch']} is before the class weights start, in "
        f"epoch {results['class_weights_epoch']}. Its parameters were trained without them."
    )
    other = Metric.accuracy("top", min(config.eval.ks), "macro").name
    if config.select_by == other:
        return note
    return f"{note} --config.select_by={other} may select a later epoch."


def _show_table(
    console: Console, metrics: Mapping[Metric, float | None], evaluated: Mapping[str, Any] | None
) -> None:
    """Prints the table of a split, and names the classes that have no example in it.

    Args:
        console: where it is printed.
        metrics: the metrics of the split.
        evaluated: what `train.evaluation.evaluated` writes about it; None in results of earlier
            versions.
    """
    if evaluated is None:
        console.print(_table(metrics))
        return
    counted = "examples"
    if "num_examples" in evaluated:
        counted = "labels"
        show_line(f"labels are counted: {evaluated['num_examples']:,} examples have these:")
    console.print(_table(metrics, evaluated["groups"], counted))
    absent = evaluated["classes_without_examples"]
    if absent:
        named = [printable(name) for name in evaluated["named"][:_MOST_NAMED]]
        more = absent - len(named)
        listed = ", ".join(named) + (f" and {more:,} more" if more else "")
        show_line(f"classes without examples in this split, not counted: {absent:,} ({listed})")


def _table(
    metrics: Mapping[Metric, float | None],
    groups: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    counted: str = "examples",
) -> Table:
    """A row for each rule that makes sets, and a column for each kind of accuracy it has.

    Args:
        metrics: the metrics.
        groups: the numbers of classes and examples that a column is the mean over, by its title;
            "macro" has the numbers of "all".
        counted: what the numbers of examples count, "examples" or "labels".
    """
    rows: dict[tuple[int, Rule], dict[str, str]] = {}
    for metric, value in metrics.items():
        if metric.rule is not None and metric.k is not None and value is not None:
            row = rows.setdefault((metric.k, metric.rule), {})
            row[_column(metric)] = metric.format(value)
    filled = [column for row in rows.values() for column in row]
    columns = [column for column in dict.fromkeys([*_COLUMNS, *filled]) if column in filled]
    table = Table("accuracy", *(Column(column, justify="right") for column in columns), box=SIMPLE)
    for k, rule in sorted(rows, key=lambda row: (row[0], row[1] == "average")):
        cells = rows[k, rule]
        table.add_row(f"{rule}-{k}", *(cells.get(column, "-") for column in columns))
    if groups:
        table.add_section()
        of_columns = [groups.get("all" if column == "macro" else column) for column in columns]
        for title, what in (("classes", "classes"), (counted, "examples")):
            table.add_row(title, *("" if of is None else f"{of[what]:,}" for of in of_columns))
    return table


def _column(metric: Metric) -> str:
    if metric.is_accuracy:
        return "all" if metric.average == "micro" else metric.average
    return metric.quantity.replace("_", " ")


def _coverage_table(coverages: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    """For each level and kind of sets: how often they have the label, and their sizes."""
    has_intervals = any(
        "coverage_interval" in values for kinds in coverages.values() for values in kinds.values()
    )
    interval = ["interval"] if has_intervals else []
    columns = ("asked", "sets", "coverage", *interval, "macro", "set size", "empty")
    table = Table(*(Column(name, justify="right") for name in columns), box=SIMPLE)
    for level, kinds in coverages.items():
        for kind, values in kinds.items():
            macro = values.get("macro_coverage")
            table.add_row(
                level,
                kind.replace("_", " "),
                f"{values['coverage']:.2%}",
                *([_between(values["coverage_interval"])] if has_intervals else []),
                "-" if macro is None else f"{macro:.2%}",
                f"{values['set_size']:.2f}",
                f"{values['empty_share']:.2%}",
            )
    return table


def _rule_table(rules: Mapping[str, Mapping[str, Any]]) -> Table:
    """For each rule: how often its sets have the label, by shot if known, and their mean size."""
    first = next(iter(rules.values()))
    averages = [
        name
        for name in ("", *(f"{average}_" for average in AVERAGES))
        if f"{name}coverage" in first
    ]
    titles = [name.removesuffix("_") or "all" for name in averages]
    columns = [Column(name, justify="right") for name in (*titles, "least", "size")]
    # Eight columns have room in eighty characters then.
    table = Table("rule", *columns, box=SIMPLE, padding=(0, 1, 0, 0))
    for name, values in rules.items():
        least = min(one["coverage"] for one in values["least_covered"])
        shares = [*(values[f"{average}coverage"] for average in averages), least]
        table.add_row(
            name,
            *("-" if math.isnan(share) else f"{share:.1%}" for share in shares),
            f"{values['set_size']:.2f}",
        )
    return table


def _count_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """For each group of classes: how many there are, and their accuracies."""
    metrics = list(from_json(rows[0]))
    columns = (
        "training examples",
        "classes",
        "examples",
        *(metric.in_few_words for metric in metrics),
    )
    table = Table(*(Column(name, justify="right") for name in columns), box=SIMPLE)
    for row in rows:
        if row["classes"]:
            first = row["from"] + 1 if row["from"] else 0
            table.add_row(
                f"{first} or more" if row["to"] is None else f"{first} to {row['to']}",
                f"{row['classes']:,}",
                f"{row['examples']:,}",
                *(metric.format(row[metric.name]) for metric in metrics),
            )
    return table


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
