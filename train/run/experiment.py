"""Trains, selects and tests one classifier: from a configuration to `results.json`."""

import contextlib
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from train.configuration import Config
from train.configuration.parsing import parse
from train.devices import devices, processes
from train.foundation import files
from train.foundation.console import show_line
from train.foundation.errors import explained
from train.foundation.nested import flatten
from train.run import (
    closing_table,
    evaluation,
    loop,
    results,
    run_folder,
    runs,
    starting,
    trackers,
)
from train.run.checkpoints import Checkpoints, Progress
from train.run.loop import AfterEpoch
from train.run.parts import Run, assemble
from train.run.reporting import Reporter, SilentReporter


def run(
    config: Mapping[str, Any], workdir: Path | str, *, after_epoch: AfterEpoch | None = None
) -> dict[str, Any]:
    """Trains, selects and tests one classifier; resumes an earlier run of it that stopped.

    Args:
        config: the fields of the configuration, nested.
        workdir: the folder that the run writes to; nothing is written before the configuration, the
            data set and the devices were checked.
        after_epoch: called as `after_epoch(epoch, metrics)` after each epoch that this call trains,
            once its checkpoint is saved: the epoch, counted from 1, and the validation metrics by
            the names that `metrics.jsonl` has. What it raises ends the run and reaches the caller.
            The run is then unfinished, and resumes after that epoch when it is called again. If
            there are several processes, each calls it with the same metrics, and all have to raise
            together.

    Returns:
        The contents of `results.json`. If the run was finished before, they are returned without
        training.

    Raises:
        UserError: the configuration, the data set or the workdir does not fit the run.
        Stopped: a signal came; the run has saved, and resumes when called again.
    """
    workdir = Path(workdir)
    parsed = _parse(config, workdir)
    finished = _earlier_results(workdir)
    if finished is not None:
        _show_finished(parsed, workdir, finished)
        return finished
    trackers.check(parsed.trackers)
    parts = _assemble(parsed, workdir)
    # Weights that do not fit are refused here, before anything is written.
    first = None if run_folder.has_checkpoints(workdir) else starting.first_state(parts)
    is_first = processes.is_first()
    with (
        files.lock(workdir, "another run") if is_first else contextlib.nullcontext(),
        Checkpoints(workdir / run_folder.CHECKPOINTS) as checkpoints,
    ):
        state, progress = starting.restore(checkpoints, parts, first)
        batches = contextlib.closing(parts.data.training_batches(progress.step))
        with _reporter(parts, workdir, progress) as reporter:
            with batches as stream:
                state, progress = loop.run(
                    parts,
                    state,
                    progress,
                    stream,
                    validate=functools.partial(evaluation.validate, parts),
                    checkpoints=checkpoints,
                    reporter=reporter,
                    after_epoch=after_epoch,
                )
            # Training has ended, so a signal ends the run at once.
            with explained(loop.outcome(progress)):
                state = parts.devices.to_host(state)
                selected, best = checkpoints.restore(state, checkpoints.best)
                found = evaluation.evaluate_selected(parts, parts.devices.place(selected))
                collected = results.collect(parts, state, progress, best, *found)
                fields: dict[str, Any] = json.loads(files.to_json(collected))
                reporter.results(fields, found[1])
                return fields


def _parse(config: Mapping[str, Any], workdir: Path) -> Config:
    """The configuration of the run, which may continue the one in the workdir."""
    parsed = parse(config)
    if processes.are_several():
        # Before one process alone refuses what is in the workdir.
        processes.check_same(
            "the configuration", lambda: json.dumps(parsed.to_plain(), sort_keys=True)
        )
    runs.check_continues(parsed, workdir)
    return parsed


def _earlier_results(workdir: Path) -> dict[str, Any] | None:
    """The results of the run if it was finished before."""
    finished = run_folder.read_results(workdir)
    # Otherwise a process that has no checkpoints would wait for others in checks of a new run.
    held = [finished, run_folder.has_checkpoints(workdir)]
    processes.check_same("what --workdir holds", lambda: json.dumps(held, sort_keys=True))
    return finished


def _show_finished(config: Config, workdir: Path, finished: dict[str, Any]) -> None:
    """Shows the results of a finished run, and writes fields that may change into it.

    Raises:
        UserError: the data are at another place, and are not the same.
    """
    run_folder.read_facts(workdir)  # Other commands need them.
    earlier, now = (
        dict(flatten(one)) for one in (run_folder.read_config(workdir) or {}, config.to_plain())
    )
    if any(earlier.get(name) != now.get(name) for name in runs.PLACES_OF_DATA):
        _assemble(config, workdir)
    if processes.is_first():
        run_folder.write_config(config, workdir)
        show_line(
            "this run is finished, and these are its results; give another --workdir for a new run"
        )
        closing_table.show(finished, config, workdir)


def _assemble(config: Config, workdir: Path) -> Run:
    """The parts of the run, once they are found to fit the run in the workdir and each other."""
    # Before the data set is opened, which can take long.
    devices.check(config, jax.device_count(), jax.local_device_count())
    parts = assemble(config, workdir=workdir)
    parts.data.check()
    return parts


def _reporter(parts: Run, workdir: Path, progress: Progress) -> Reporter | SilentReporter:
    if not processes.is_first():
        return SilentReporter()
    parts.data.show()
    return Reporter(
        workdir,
        parts.data.given,
        parts.data.facts,
        parts.data.dataset,
        steps_per_epoch=parts.data.steps_per_epoch,
        first_step=progress.step,
        pending=progress.pending,
    )
