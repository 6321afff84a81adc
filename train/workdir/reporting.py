"""Writes what a run leaves: its configuration, metrics, events, results and learning curves.

Only this part of the program writes the files of a run, except checkpoints. A file is written
completely or not at all, through `files.py`. Files that grow may have a torn end, which readers
ignore.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from absl import logging

from train.configuration import Config
from train.data import Dataset
from train.data.near_duplicates import COLUMNS, Alike
from train.data.sources.table import encode_rows
from train.foundation import files, json_files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.invocation import as_typed
from train.foundation.nested import flatten
from train.foundation.printable import printable
from train.reports import metric
from train.reports.metric import LOSS, Metric
from train.reports.summaries import Evaluation
from train.workdir import metrics_file, run_files, runs, terminal
from train.workdir.events import Events
from train.workdir.facts import Facts
from train.workdir.metrics_file import MetricsFile
from train.workdir.trackers import Trackers

# In `results.json`: the number of images that were left out as unreadable.
LEFT_OUT = "left_out"


def show_finished(
    workdir: Path, config: Config, results: dict[str, Any], *, optimizes_top_k: bool
) -> None:
    """Prints the closing table of a run that was finished before; see `terminal.show_results`."""
    show_line("this run is finished; these are its results (another --workdir trains again)")
    _show_left_out(workdir, results)
    terminal.show_results(
        results, config, run_files.present(workdir), optimizes_top_k=optimizes_top_k
    )
    _point_to_ranks(workdir)


def _show_left_out(workdir: Path, results: Mapping[str, Any]) -> None:
    """Prints how many images the run left out as unreadable."""
    if number := results.get(LEFT_OUT):
        show_line(
            f"images left out as unreadable: {number:,}; listed in {workdir / run_files.SEEN}"
        )


def _write_alike(workdir: Path, alike: Alike) -> None:
    """Warns of images that look like images of other splits, and lists them."""
    if not alike.rows:
        return
    path = workdir / run_files.NEAR_DUPLICATES
    files.write_whole(path, encode_rows([COLUMNS, *alike.rows], "\r\n"))
    logging.warning("%s; listed in %s", alike.line, path)


def _point_to_ranks(workdir: Path) -> None:
    """Prints the command that reports the ranks above the classes, if there are some."""
    # Runs of earlier versions do not have the file.
    has_classes = (workdir / run_files.CLASSES).exists()
    tree = run_files.read_classes(workdir).tree if has_classes else None
    if tree is not None:
        above = ", ".join(printable(rank) for rank in tree.ranks[:-1])
        command = as_typed(f"python -m train.evaluate --workdir={printable(str(workdir))}")
        show_line(f"accuracies and sets by {above}: {command}")


class Reporter:
    """Receives every step, epoch and result of a run; writes them and shows them.

    Making one makes the workdir, writes the configuration unless it is there for the same devices,
    and drops what was logged after `first_step`, which the run is about to repeat. Epochs are
    counted from 1.

    Args:
        workdir: where everything is written.
        config: the configuration of the run.
        facts: what is known about the data set.
        dataset: the data set, if the run has one.
        steps_per_epoch: the steps of one.
        first_step: the steps that an earlier run made and that are not repeated.
        optimizes_top_k: whether the loss is made for the top-K accuracy of its own K.
        unlogged: the metrics of the last of these steps, which are not logged yet.
        metrics_digest: the digest of what was logged of these steps; None if it is not known.

    Raises:
        UserError: the classes, or what was logged, are not what the run wrote.
        OSError: something could not be written; it names the file. All methods raise it, too.
    """

    def __init__(
        self,
        workdir: Path,
        config: Config,
        facts: Facts,
        dataset: Dataset | None = None,
        *,
        steps_per_epoch: int,
        first_step: int,
        optimizes_top_k: bool,
        unlogged: Sequence[Mapping[str, float]] = (),
        metrics_digest: str | None = None,
    ) -> None:
        self._workdir = workdir
        self._config = config
        self._steps_per_epoch = steps_per_epoch
        self._batch_size = config.dataset.batch_size
        self._optimizes_top_k = optimizes_top_k
        self._steps_between_logs = min(max(5, steps_per_epoch // 10), 100)
        self._pending = list(unlogged)
        self._last_step = first_step
        self._select_by = Metric.parse(config.select_by)
        self._window_start: float | None = None
        self._window_steps = 0
        self._has_results = False
        workdir.mkdir(parents=True, exist_ok=True)
        write_config(config, workdir)
        classes = workdir / run_files.CLASSES
        is_kept = classes.exists() and run_files.read_classes(workdir) == facts.classes
        # A run that starts from scratch may leave out other images than an earlier start.
        if not is_kept and (first_step == 0 or not classes.exists()):
            files.write_whole(classes, files.to_json(facts.classes.to_plain(), indent=1))
        elif not is_kept:
            raise UserError(
                f"{classes} does not have the classes of the data set: it was changed or damaged "
                "since the run started; delete it, and the run writes it again"
            )
        # A run that starts from scratch may be normalized differently than by an earlier version.
        begins = first_step == 0 or not (workdir / run_files.DATA).exists()
        if dataset is not None and dataset.seen is not None:
            seen = json_files.sealed(dataset.seen.to_plain(), 1)
            files.write_whole(workdir / run_files.SEEN, seen)
        if dataset is not None and dataset.alike is not None and begins:
            _write_alike(workdir, dataset.alike)
        if begins and (facts.digest is not None or facts.mean is not None):
            files.write_whole(workdir / run_files.DATA, json_files.sealed(facts.to_plain(), 1))
        self._metrics = MetricsFile(workdir / run_files.METRICS, first_step, metrics_digest)
        self._events = Events(workdir / run_files.EVENTS, first_step)
        self._trackers = Trackers(config.trackers, workdir, config.to_plain())
        self._terminal = terminal.Terminal(
            num_epochs=config.num_epochs,
            steps_per_epoch=steps_per_epoch,
            first_step=first_step,
            select_by=self._select_by,
        )

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception is not None:
            self._pending.clear()
        self.close()

    @property
    def unlogged(self) -> tuple[Mapping[str, float], ...]:
        """The metrics of the steps since the last log."""
        return tuple(self._pending)

    @property
    def metrics_digest(self) -> str:
        """The digest of all lines of the metrics, which are on the disk when it is returned."""
        return self._metrics.digest()

    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of a step; some ten times an epoch, and at its end, logs their means.

        Args:
            step: the steps made, this one included.
            metrics: the metrics of the step.
        """
        self._pending.append(metrics)
        self._last_step = step
        if self._window_start is None:
            # The first step is left out of the speed: compiling it takes longer than an epoch.
            self._window_start, self._window_steps = time.perf_counter(), 0
        else:
            self._window_steps += 1
        if step % self._steps_per_epoch % self._steps_between_logs == 0:
            self._log_pending()

    def epoch(
        self,
        epoch: int,
        step: int,
        seconds: float,
        validation: Evaluation,
        is_best: bool,
    ) -> None:
        """Logs a finished epoch.

        Args:
            epoch: the epoch, counted from 1.
            step: the steps made.
            seconds: how long its training took.
            validation: what is reported of the validation split.
            is_best: whether it is the selected one up to now.
        """
        line = {"step": step, "epoch": epoch, "split": "validation", "seconds": seconds}
        metrics = metric.to_json(validation.metrics)
        self._append({**line, **metrics})
        self._events.write(step, "validation", metrics, metric.to_json(validation.size_counts))
        self._trackers.write(step, "validation", metrics)
        self._events.flush()
        self._terminal.epoch(epoch, seconds, self._headline(validation.metrics), is_best)
        # Evaluation does not count in the speed of training.
        self._window_start = None

    def results(self, results: dict[str, Any], tests: Mapping[str, Evaluation]) -> dict[str, Any]:
        """Writes the results, outcomes and learning curves, and prints the closing table.

        Args:
            results: the fields of `results.json`.
            tests: what is reported of each test split, "test" among them.

        Returns:
            What was written: what is not finite is None.
        """
        from train.workdir import figure_style, plots  # noqa: PLC0415 (matplotlib; few commands draw)

        validation = metric.from_json(results["validation"])
        figure = plots.learning_curves(
            metrics_file.read(self._metrics.path),
            steps_per_epoch=self._steps_per_epoch,
            best_epoch=results["best_epoch"],
            select_by=self._select_by,
            accuracies=[one for one in self._headline(validation) if one != LOSS],
        )
        curves = figure_style.encode(figure, ".png")
        files.write_whole(self._workdir / run_files.CURVES, curves)
        for split, tested in tests.items():
            tested.outcomes.write(run_files.outcomes(self._workdir, split))
            self._events.write(
                self._last_step, split, results[split], metric.to_json(tested.size_counts)
            )
            self._trackers.write(self._last_step, split, results[split])
        self._events.write_image(self._last_step, "learning_curves", curves)
        self._events.flush()
        # Last, because these results mark the run as finished.
        run_files.write_results(self._workdir, results, {run_files.METRICS: self._metrics.digest()})
        self._has_results = True
        self._terminal.close()
        written = _read_back(results)
        _show_left_out(self._workdir, written)
        terminal.show_results(
            written,
            self._config,
            run_files.present(self._workdir),
            optimizes_top_k=self._optimizes_top_k,
        )
        _point_to_ranks(self._workdir)
        return written

    def close(self) -> None:
        """Logs what is pending and closes the files; may be called again."""
        self._terminal.close()
        try:
            self._log_pending()
        finally:
            self._events.close()
            self._trackers.close(finished=self._has_results)

    def _log_pending(self) -> None:
        if not self._pending:
            return
        means = {
            name: float(np.mean([metrics[name] for metrics in self._pending], dtype=np.float64))
            for name in self._pending[-1]
        }
        self._pending.clear()
        examples_per_second = self._end_window()
        step = self._last_step
        epoch = -(-step // self._steps_per_epoch)
        self._append({"step": step, "epoch": epoch, "split": "train", **means})
        self._events.write(step, "train", means)
        self._trackers.write(step, "train", means)
        self._terminal.training(epoch, step, means, examples_per_second)

    def _end_window(self) -> float | None:
        """The examples a second since the last log, and a new start; None if no step was timed."""
        now = time.perf_counter()
        start, steps = self._window_start, self._window_steps
        self._window_start, self._window_steps = now, 0
        return None if start is None or steps == 0 else steps * self._batch_size / (now - start)

    def _headline(self, metrics: Mapping[Metric, float]) -> dict[Metric, float]:
        """The few metrics that a line or a plot has room for."""
        return {
            one: value
            for one, value in metrics.items()
            if one in (LOSS, self._select_by)
            or (one.is_accuracy and one.rule == "top" and one.average == "micro")
        }

    def _append(self, line: Mapping[str, Any]) -> None:
        self._metrics.append(line)


class SilentReporter:
    """The reporter of the other processes: it writes and shows nothing."""

    unlogged: tuple[Mapping[str, float], ...] = ()
    metrics_digest: str | None = None

    def __enter__(self) -> "SilentReporter":
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def epoch(
        self,
        epoch: int,
        step: int,
        seconds: float,
        validation: Evaluation,
        is_best: bool,
    ) -> None:
        """Nothing."""

    def results(
        self,
        results: dict[str, Any],
        tests: Mapping[str, Evaluation],  # noqa: ARG002 (as those of `Reporter`)
    ) -> dict[str, Any]:
        """The results as the first process writes them."""
        return _read_back(results)


def write_config(config: Config, workdir: Path) -> None:
    """Writes the configuration of a run, unless it is there with all that may change."""
    plain, earlier = config.to_plain(), run_files.read_config(workdir)
    if earlier is not None:
        before, now = dict(flatten(earlier)), dict(flatten(plain))
        if all(before.get(name) == now.get(name) for name in runs.MAY_CHANGE):
            return
    files.write_whole(workdir / run_files.CONFIG, json_files.sealed(plain, indent=2))


def _read_back(results: dict[str, Any]) -> dict[str, Any]:
    """What is read back from `results.json`: numbers that are not finite are None."""
    written: dict[str, Any] = json.loads(files.to_json(results))
    return written
