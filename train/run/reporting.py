"""What a run writes and shows: metrics, TensorBoard, trackers, the bar, results and curves."""

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging
from rich.progress import TextColumn
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from train.configuration import Config
from train.data import Dataset
from train.data.near_duplicates import COLUMNS, Alike
from train.data.sources.table import encode_rows
from train.foundation import files
from train.foundation.console import make_bar, make_console, show_line
from train.reports import metric
from train.reports.metric import LOSS, Metric
from train.reports.summaries import Evaluation
from train.run import closing_table, run_folder
from train.run.run_folder import Facts
from train.run.trackers import Trackers

# The steps after which the seconds of an epoch are told.
_TIMED_STEPS = 20


class Reporter:
    """Receives every step, epoch and result of a run; writes them and shows them.

    Making one makes the workdir and drops what was logged after `first_step`, which the run is
    about to repeat. Epochs are counted from 1.

    Args:
        workdir: where everything is written.
        config: the configuration of the run.
        facts: what is known about the data set.
        dataset: the data set.
        steps_per_epoch: the steps of one.
        first_step: the steps that an earlier start made and that are not repeated.
        pending: the metrics of the last of these steps, which are not logged yet.

    Raises:
        UserError: what was logged is damaged.
        OSError: something could not be written; it names the file. All methods raise it, too.
    """

    def __init__(
        self,
        workdir: Path,
        config: Config,
        facts: Facts,
        dataset: Dataset,
        *,
        steps_per_epoch: int,
        first_step: int,
        pending: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self._workdir, self._config = workdir, config
        self._steps_per_epoch = steps_per_epoch
        self._steps_between_logs = min(max(5, steps_per_epoch // 10), 100)
        self._pending, self._last_step = list(pending), first_step
        ks, num_classes = config.eval.ks, len(facts.classes.names)
        _, self._select_by = metric.of_classes(ks, config.select_by, num_classes)
        # The speed is measured from the end of the first step of a start, which compiles, and of
        # each epoch; it is told once.
        self._since: tuple[float, int] | None = None
        self._is_told = self._has_results = False
        _write_beginning(workdir, config, facts, dataset, begins=first_step == 0)
        self._metrics_path = workdir / run_folder.METRICS
        self._metrics_path.touch()
        lines = run_folder.read_metrics(workdir)
        kept = [files.to_json(line) for line in lines if line["step"] <= first_step]
        files.write_whole(self._metrics_path, b"".join(kept))
        self._metrics = self._metrics_path.open("ab", buffering=0)
        self._events_path = workdir / run_folder.EVENTS
        self._events_path.mkdir(exist_ok=True)
        # TensorBoard reads the files in the order of their names, and two starts can share a
        # second. tensorboardX's SummaryWriter writes in a thread: on a full disk it hangs.
        starts = sum(1 for _ in self._events_path.iterdir())
        with files.name_in_errors(self._events_path):
            self._events = EventsWriter(str(self._events_path / "events"), f".{starts}")
        # TensorBoard hides what earlier files have of later steps.
        self._add_event(first_step + 1, session_log=SessionLog(status=SessionLog.START))
        self._trackers = Trackers(config.trackers, workdir, config.to_plain())
        self._shown = ""
        self._console = make_console()
        self._bar = make_bar(
            self._console,
            before="epoch {task.fields[epoch]}/" + str(config.num_epochs),
            after=[TextColumn("{task.fields[metrics]}")],
        )
        epochs, steps = divmod(first_step, steps_per_epoch)
        total = config.num_epochs * steps_per_epoch
        self._task = self._bar.add_task(
            "", total=total, completed=first_step, epoch=epochs, metrics=""
        )
        if first_step > 0:
            within = f" and {steps} of {steps_per_epoch} steps" if steps else ""
            self._show(f"continuing after epoch {epochs} of {config.num_epochs}{within}")
        self._bar.start()

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_exception: object) -> None:
        self._bar.stop()
        self._trackers.close(finished=self._has_results)
        self._metrics.close()
        with files.name_in_errors(self._events_path):
            self._events.close()

    @property
    def pending(self) -> tuple[Mapping[str, float], ...]:
        """The metrics of the steps since the last log."""
        return tuple(self._pending)

    def flush(self) -> None:
        """Has all lines of the metrics on the disk, so that no checkpoint is ahead of them."""
        with files.name_in_errors(self._metrics_path):
            os.fsync(self._metrics.fileno())

    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of a step; some ten times an epoch, and at its end, logs their means.

        Args:
            step: the steps made, this one included.
            metrics: the metrics of the step.
        """
        self._pending.append(metrics)
        self._last_step = step
        now = time.perf_counter()
        start, first = self._since = self._since or (now, step)
        steps_per_second = (step - first) / (now - start) if step > first else 0.0
        if step == first + _TIMED_STEPS and not self._is_told:
            self._is_told = True
            number, seconds = jax.device_count(), self._steps_per_epoch / steps_per_second
            on = f"{number} {jax.devices()[0].platform} device{'' if number == 1 else 's'}"
            self._show(f"an epoch takes about {seconds:,.1f} s on {on}")
        if step % self._steps_per_epoch % self._steps_between_logs:
            return
        means = {
            name: float(np.mean([one[name] for one in self._pending], dtype=np.float64))
            for name in metrics
        }
        self._pending.clear()
        self._log(step, "train", means)
        self._shown = f"loss {means['loss']:.4g}, accuracy {means['accuracy']:.2%}"
        examples = steps_per_second * self._config.dataset.batch_size
        self._bar.update(
            self._task,
            completed=step,
            epoch=self._epoch_of(step),
            metrics=self._shown + (f"  {examples:,.0f} examples/s" if examples else ""),
        )

    def epoch(
        self, epoch: int, step: int, seconds: float, validation: Evaluation, is_best: bool
    ) -> None:
        """Logs a finished epoch.

        Args:
            epoch: the epoch, counted from 1.
            step: the steps made.
            seconds: how long its training took.
            validation: what is reported of the validation split.
            is_best: whether it is the selected one up to now.
        """
        self._log(step, "validation", metric.to_json(validation.metrics), seconds=seconds)
        shown = ", ".join(
            f"{one.in_few_words} {one.format(value)}"
            for one, value in self._headline(validation.metrics).items()
        )
        best = f"  best {self._select_by.in_words} so far" if is_best else ""
        self._show(
            f"epoch {epoch}/{self._config.num_epochs}  training: {self._shown}  "
            f"validation: {shown}  {seconds:.1f} s{best}"
        )
        self._since, self._is_told = None, True

    def results(self, results: Mapping[str, Any], tests: Mapping[str, Evaluation]) -> None:
        """Writes the results, outcomes and learning curves, and prints the closing table.

        Args:
            results: the fields of `results.json`, as JSON has them.
            tests: what is reported of each test split, "test" among them.
        """
        from train.reports import figure_style  # noqa: PLC0415 (matplotlib; few commands draw)
        from train.run import curves  # noqa: PLC0415 (matplotlib; few commands draw)

        validation = metric.from_json(results["validation"])
        figure = curves.learning_curves(
            run_folder.read_metrics(self._workdir),
            steps_per_epoch=self._steps_per_epoch,
            best_epoch=results["best_epoch"],
            select_by=self._select_by,
            accuracies=[one for one in self._headline(validation) if one != LOSS],
        )
        drawn = figure_style.encode(figure, ".png")
        files.write_whole(self._workdir / run_folder.CURVES, drawn)
        for split, tested in tests.items():
            tested.outcomes.write(run_folder.outcomes(self._workdir, split))
            self._copy(self._last_step, split, results[split])
        # Last, because these results mark the run as finished.
        files.write_whole(self._workdir / run_folder.RESULTS, files.to_json(results, indent=2))
        self._has_results = True
        self._bar.stop()
        closing_table.show(results, self._config, self._workdir)

    def _headline(self, metrics: Mapping[Metric, float]) -> dict[Metric, float]:
        """The few metrics that a line or a plot has room for."""
        return {
            one: value
            for one, value in metrics.items()
            if one in (LOSS, self._select_by)
            or (one.is_accuracy and one.rule == "top" and one.average == "micro")
        }

    def _epoch_of(self, step: int) -> int:
        return -(-step // self._steps_per_epoch)

    def _log(self, step: int, split: str, metrics: Mapping[str, float], **further: float) -> None:
        """Adds a line to the metrics, and copies it."""
        line = {"step": step, "epoch": self._epoch_of(step), "split": split, **further, **metrics}
        with files.name_in_errors(self._metrics_path):
            self._metrics.write(files.to_json(line))
        self._copy(step, split, metrics)

    def _copy(self, step: int, split: str, metrics: Mapping[str, float | None]) -> None:
        """Gives TensorBoard and the trackers the metrics that have a value."""
        finite = {
            name: value
            for name, value in metrics.items()
            if value is not None and math.isfinite(value)
        }
        values = [
            Summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in finite.items()
        ]
        self._add_event(step, summary=Summary(value=values))
        self._trackers.write(step, split, finite)

    def _add_event(self, step: int, **what: Any) -> None:
        with files.name_in_errors(self._events_path):
            self._events.write_event(Event(wall_time=time.time(), step=step, **what))
            self._events.flush()

    def _show(self, line: str) -> None:
        """Prints a line above the bar."""
        show_line(line, self._console)


class SilentReporter:
    """The reporter of the other processes: it writes and shows nothing."""

    pending: tuple[Mapping[str, float], ...] = ()

    def __enter__(self) -> "SilentReporter":
        return self

    def training_step(self, *_arguments: object, **_named: object) -> None:
        """Nothing."""

    __exit__ = epoch = flush = results = training_step


def _write_beginning(
    workdir: Path, config: Config, facts: Facts, dataset: Dataset, *, begins: bool
) -> None:
    """Makes the workdir, with what a run keeps of its configuration and its data."""
    workdir.mkdir(parents=True, exist_ok=True)
    run_folder.write_config(config, workdir)
    if dataset.seen is not None:
        seen = files.to_json(dataclasses.asdict(dataset.seen), indent=1)
        files.write_whole(workdir / run_folder.SEEN, seen)
    if begins:
        run_folder.write_facts(facts, workdir)
        if dataset.alike is not None:
            write_alike(dataset.alike, workdir)


def write_alike(alike: Alike, workdir: Path) -> None:
    """Lists images that look like images of other splits, if there are some, and warns of them."""
    if alike.rows:
        path = workdir / run_folder.NEAR_DUPLICATES
        files.write_whole(path, encode_rows([COLUMNS, *alike.rows], "\r\n"))
        logging.warning("%s; listed in %s", alike.line, path)
