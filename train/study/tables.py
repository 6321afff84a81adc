"""Finished runs as a table: a line a run in a file, and the means over seeds on the terminal."""

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from train.configuration import LossFields, declaring
from train.data.sources.table import encode_rows
from train.foundation.console import first_names, printable_lines, show_line
from train.foundation.errors import UserError
from train.foundation.kinds import did_you_mean
from train.reports.metric import LOSS, Metric
from train.reports.outcomes import Outcomes
from train.run import run_folder
from train.run.runs import StoredRun, identity
from train.study.statistics import Estimate, difference, mean
from train.training.losses import find_loss

# These choose the data; the other fields of the data set choose how it is used.
_DATA = ("dataset.name", "dataset.path", "dataset.part", "data")
_FIRST = (*_DATA, "model.name", "loss.name")
# Losses are evaluated without these.
_ONLY_TRAINED = ("loss.label_smoothing", "loss.class_weights")
ABSENT = "-"
# The comma between two parts of a baseline. Values may also have commas.
_COMMA = re.compile(r",\s*(?=[\w.]+=)")


@dataclass(frozen=True)
class Group:
    """The runs of one experiment, which differ only in the seed.

    Attributes:
        fields: what their results depend on, without the seed and parameters of other losses;
            `data` is a digest of a user's own files.
        seeds: the runs by their seeds; repeated runs are left out.
    """

    fields: Mapping[str, Any]
    seeds: dict[int, StoredRun]

    def text(self, field: str) -> str:
        """The value of a field as the command line takes it; a dash if there is no such field."""
        value = self.fields.get(field, ABSENT)
        return str(tuple(value) if isinstance(value, list) else value)

    def order(self, field: str) -> tuple[float, str]:
        """Sorts numbers by their size, after texts such as the dash."""
        value = self.fields.get(field)
        return float(value) if isinstance(value, int | float) else -math.inf, self.text(field)

    @property
    def data(self) -> tuple[str, ...]:
        """What is equal for groups on the same data."""
        return tuple(map(self.text, _DATA))

    @property
    def loss(self) -> tuple[str, ...]:
        """What is equal for groups whose values of the loss can be compared."""
        names = [name for name in self.fields if name.startswith("loss.")]
        return tuple(map(self.text, (one for one in names if not one.startswith(_ONLY_TRAINED))))

    def values(self, metric: Metric, split: str) -> dict[int, float]:
        """A metric by seed, of the runs that have it: few-shot classes may not occur."""
        of = {seed: run.results.get(split, {}).get(metric.name) for seed, run in self.seeds.items()}
        found = {seed: float(value) for seed, value in of.items() if value is not None}
        for seed, value in found.items():
            if metric.is_accuracy and not 0 <= value <= 1:
                reason = f"{metric.name} is {value}"
                raise UserError(f"{self.seeds[seed].workdir} is damaged ({reason}): delete it")
        return found

    def examples(self, metric: Metric, split: str) -> int | None:
        """The number of examples that an accuracy is a mean over; None for means over classes."""
        counted = next(iter(self.seeds.values())).results.get("evaluated", {}).get(split)
        if counted is None or not metric.is_accuracy or metric.average != "micro":
            return None
        return int(counted.get("num_examples", counted["groups"]["all"]["examples"]))


@dataclass(frozen=True)
class Rows:
    """Groups of runs, and the fields in which they differ, the most important first."""

    groups: Sequence[Group]
    fields: Sequence[str]

    @property
    def heads(self) -> dict[str, str]:
        """The fields by the last parts of their names, unless two would be the same."""
        short = {field: _short_name(field) for field in self.fields}
        counts = Counter(short.values())
        return {head if counts[head] == 1 else field: field for field, head in short.items()}

    def label(self, group: Group, without: str | None = None) -> str:
        """The name of a group: `loss=focal, gamma=2.0`, without a field, and those it lacks."""
        told = [
            f"{head}={group.text(field)}"
            for head, field in self.heads.items()
            if field in group.fields and field != without
        ]
        return ", ".join(told) or f"loss={group.fields['loss.name']}"


def _short_name(field: str) -> str:
    """The last part of a field's name; for names such as `model.name` the part before it."""
    return field.removesuffix(".name").split(".")[-1]


def rows(runs: Sequence[StoredRun]) -> Rows:
    """The runs in a table.

    Raises:
        UserError: a run has a loss that is not known.
    """
    found: dict[str, Group] = {}
    for run in sorted(runs, key=lambda one: int(one.fields["seed"])):
        fields = _used_fields(run)
        group = found.setdefault(json.dumps(fields, sort_keys=True), Group(fields, {}))
        group.seeds.setdefault(run.fields["seed"], run)
    groups = [*found.values()]
    names = dict.fromkeys([*_FIRST, *(name for one in groups for name in one.fields)])
    texts = {name: [one.text(name) for one in groups] for name in names}
    # Only if nothing else tells two experiments apart are these columns: the digest, and a field
    # that some lack where the others agree, as it is a parameter of a loss.
    differing = [name for name in names if len({*texts[name]} - {ABSENT}) > 1 and name != "data"]
    if len({*zip(*(texts[name] for name in differing), strict=True)}) < len(groups):
        differing = [name for name in names if len({*texts[name]}) > 1] or ["loss.name"]
    groups.sort(key=lambda one: [*map(one.order, differing)])
    return Rows(groups, differing)


def _used_fields(run: StoredRun) -> dict[str, Any]:
    """The fields that the results depend on, without the seed and parameters of other losses."""
    taken = (*declaring.of_group(LossFields), *find_loss(run.fields["loss.name"]).parameters)
    of_loss = {f"loss.{name}" for name in taken}
    # Other files under the same name are other data.
    fields = identity(run.fields) | {"data": str(run_folder.read_digest(run.workdir))[:8]}
    return {
        name: value
        for name, value in fields.items()
        if name in of_loss or not name.startswith(("seed", "loss."))
    }


def choose(runs: Sequence[StoredRun], split: str, names: Sequence[str] = ()) -> list[Metric]:
    """The metrics of a table: those with these names, or what selected and top-K accuracies.

    Raises:
        UserError: no run has a metric of that name, or any, on the split.
    """
    known = {name for run in runs for name in run.results.get(split, {})}
    if not known:
        raise UserError(f"--split: no run has metrics on {split!r}")
    for name in names:
        if name not in known:
            raise UserError(f"--metrics: no run has {name} on {split}{did_you_mean(name, known)}")
    ks = sorted({k for run in runs for k in run.fields["eval.ks"]})
    usual = [run.fields["select_by"] for run in runs]
    usual += [Metric.accuracy("top", k).name for k in ks]
    return [Metric.parse(name) for name in dict.fromkeys(names or usual) if name in known]


def to_csv(found: Rows, split: str) -> str:
    """A line for each run: its folder, the fields, the seed, and every metric of the split."""
    lines = [
        {
            "run": str(run.workdir),
            **{field: group.text(field) for field in found.fields},
            "seed": seed,
            **run.results.get(split, {}),
        }
        for group in found.groups
        for seed, run in group.seeds.items()
    ]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = encode_rows([columns, *([line.get(name) for name in columns] for line in lines)])
    return printable_lines(text.decode())


def show(
    console: Console,
    found: Rows,
    metrics: Sequence[Metric],
    split: str,
    baseline: str | None = None,
) -> None:
    """Prints a row for each group, and what its intervals are about.

    Args:
        console: where to print.
        found: the runs.
        metrics: the columns, of `choose`.
        split: the split of the metrics.
        baseline: the group that the others on the same data are compared with, as `loss=focal`;
            several fields with commas between them.

    Raises:
        UserError: the baseline is not one group.
    """
    bases = {} if baseline is None else _find(found, baseline)
    body, noises, of_examples = [], set(), 0.0
    for group in found.groups:
        base = bases.get(group.data)
        cells = [*map(group.text, found.fields), str(len(group.seeds))]
        for metric in metrics:
            values, examples = group.values(metric, split), group.examples(metric, split)
            ours = mean([*values.values()], examples)
            text = _cell(ours, metric, group)
            noises.add(ours.noise)
            if values and examples:
                of_examples = max(of_examples, mean([ours.value], examples).error)
            if group is base:
                text += "\nbaseline"
            elif baseline is not None:
                change = _difference(group, base, metric, split)
                text += f"\n{_cell(change, metric, group, '+')}"
                noises.add(change.noise)
            cells.append(text)
        body.append(cells)
    below = "" if baseline is None else "\ndifference"
    heads = [one.in_few_words + " (%)" * one.is_accuracy + below for one in metrics]
    print_table(console, [*found.heads, "seeds", *heads], body, len(found.heads))
    runs = [run for group in found.groups for run in group.seeds.values()]
    selected = dict.fromkeys(Metric.parse(run.fields["select_by"]).in_words for run in runs)
    notes = [f"Each run: its epoch with the best {' or '.join(selected)} on validation."]
    if "seeds" in noises:
        notes.append("Several seeds: mean ± 95 % interval of other seeds (Student's t).")
    if "seeds" in noises and of_examples:
        points = f"{196 * of_examples:.2f} points"
        notes.append(f"Other examples alone move an accuracy by up to ± {points}.")
    if "test examples" in noises:
        notes.append("One seed: ± 95 % interval of other examples, with this seed.")
    if LOSS in metrics and len({group.loss for group in found.groups}) > 1:
        notes.append("Values of different losses cannot be compared.")
    for note in notes:
        show_line(note, console)


def _find(found: Rows, baseline: str) -> dict[tuple[str, ...], Group]:
    """The group of the baseline for each data set that has it."""
    parts = [part.partition("=") for part in _COMMA.split(baseline)]
    wanted = {(name.strip(), text.strip()) for name, _, text in parts}

    def told(group: Group) -> set[tuple[str, str]]:
        fields = {*group.fields, *found.fields}
        return {(name, group.text(one)) for one in fields for name in (one, _short_name(one))}

    matching = [group for group in found.groups if wanted <= told(group)]
    bases = {group.data: group for group in matching}
    if not 0 < len(matching) == len(bases):
        labels = first_names([repr(found.label(one)) for one in matching or found.groups])
        how_many = f"{len(matching)} groups" if matching else "none of"
        raise UserError(
            field="--baseline",
            must_be="a group of the table, one for each data set",
            but=f"{baseline!r} is {how_many}: {labels}",
        )
    return bases


class _OtherExamplesError(UserError):
    """Two runs were tested on other examples, or on such without a label each."""


def _difference(ours: Group, base: Group | None, metric: Metric, split: str) -> Estimate:
    """The mean difference in the seeds that both have; one seed has the noise of the examples."""
    if base is None or (metric == LOSS and ours.loss != base.loss):
        return mean([])
    first, second = ours.values(metric, split), base.values(metric, split)
    shared = [seed for seed in first if seed in second]
    if len(shared) == 1 and metric.is_accuracy and metric.average in ("micro", "macro"):
        pair = ours.seeds[shared[0]], base.seeds[shared[0]]
        # The validation split has none.
        if all(run_folder.outcomes(run.workdir, split).exists() for run in pair):
            with contextlib.suppress(_OtherExamplesError):
                return paired([pair], metric, split)
    return mean([first[seed] - second[seed] for seed in shared])


def paired(
    runs: Sequence[tuple[StoredRun | None, StoredRun | None]], metric: Metric, split: str
) -> Estimate:
    """The difference of pairs of runs in an accuracy, over their seeds and the test examples.

    Args:
        runs: a pair for each seed; None for a run that diverged: none of its sets has the label.
        metric: the accuracy, a mean over the examples or the classes.
        split: the split.

    Raises:
        UserError: a run has no outcomes of the split, or they are of other examples.
    """
    workdirs = [run.workdir for pair in runs for run in pair if run is not None]
    outcomes = {one: Outcomes.read(run_folder.outcomes(one, split)) for one in workdirs}
    labels = outcomes[workdirs[0]].labels
    for workdir, one in outcomes.items():
        if not one.are_of_labels or not np.array_equal(one.labels, labels):
            raise _OtherExamplesError(
                f"{workdirs[0]} and {workdir} have other labels on {split}: differences of runs "
                "need the same examples, with a label each"
            )

    def hits(run: StoredRun | None) -> np.ndarray:
        found = np.zeros(len(labels)) if run is None else outcomes[run.workdir].hits(metric)
        return found.astype(np.float64)

    differences = np.stack([hits(one) - hits(other) for one, other in runs])
    return difference(differences, labels, macro=metric.average == "macro")


def _cell(one: Estimate, metric: Metric, group: Group, sign: str = "") -> str:
    counted = 1 if math.isinf(one.freedom) else int(one.freedom) + 1
    text, seeds = with_interval(one, metric, sign), len(group.seeds)
    return text if counted == seeds or text == ABSENT else f"{text}\n({counted} of {seeds} seeds)"


def with_interval(one: Estimate, metric: Metric, sign: str = "") -> str:
    """A number with its interval if it has one, in per cent if it is an accuracy; a dash for NaN.

    Args:
        one: the number.
        metric: what it is, or what it is a difference of.
        sign: "+" for a difference.
    """
    factor, digits, width = (100, ".2f", ".2f") if metric.is_accuracy else (1, ".4g", ".2g")
    text = ABSENT if math.isnan(one.value) else f"{factor * one.value:{sign}{digits}}"
    return text if one.noise == "none" else f"{text} ± {factor * one.half_width:{width}}"


def print_table(
    console: Console, heads: Sequence[str], body: Sequence[Sequence[str]], num_texts: int
) -> None:
    """Prints a table, whose first columns are texts and the others numbers; none is cut."""
    texts = [Column(head, overflow="fold") for head in heads[:num_texts]]
    numbers = [Column(head, overflow="fold", justify="right") for head in heads[num_texts:]]
    table = Table(*texts, *numbers, box=SIMPLE_HEAD)
    for cells in body:
        table.add_row(*cells)
    console.print(table)
