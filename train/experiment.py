"""Trains, selects and tests one classifier."""

import contextlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from absl import logging

from train.assembly import assemble, check_batch_size, data_checks, result_fields, starting
from train.assembly.data_lines import show_data
from train.assembly.parts import Assembly
from train.configuration import Config
from train.configuration.datasets import path_of
from train.configuration.parsing import parse
from train.devices import parallel, processes
from train.foundation import folder_lock, json_files
from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.reports.metric import Metric
from train.training.loop import AfterEpoch, Loop, stoppable
from train.training.losses import find_loss
from train.training.state import TrainState
from train.training.stop_signals import StopSignals
from train.workdir import (
    continuing,
    extensions,
    reporting,
    run_files,
    run_inputs,
    runs,
    trackers,
)
from train.workdir.checkpoint import Checkpointer
from train.workdir.orbax_folder import check_path
from train.workdir.progress import Progress
from train.workdir.reporting import Reporter, SilentReporter


def run(
    config: Mapping[str, Any],
    workdir: Path,
    *,
    extend: bool = False,
    after_epoch: AfterEpoch | None = None,
) -> dict[str, Any]:
    """Trains, selects and tests one classifier; resumes an earlier run of it that stopped.

    Args:
        config: the fields of the configuration, nested.
        workdir: the folder that the run writes to; nothing is written before the configuration, the
            data set and the devices were checked.
        extend: whether the run in the workdir may have fewer epochs; it is then trained further.
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
        InterruptedRunError: a signal came; the run has saved, and resumes when called again.
    """
    # Before anything is made.
    check_path(workdir / run_files.CHECKPOINTS)
    parsed, shorter = _parsed(config, workdir, extend=extend)
    finished = _earlier_results(workdir)
    if finished is not None and shorter is None:
        runs.check_same_run(workdir, parsed.to_plain(), finished)
        _note_changes(parsed, workdir)
        if processes.is_first():
            loss = find_loss(parsed.loss.name)
            reporting.show_finished(workdir, parsed, finished, optimizes_top_k=loss.optimizes_top_k)
        return finished
    run_files.check_places(workdir)
    trackers.check(parsed.trackers)
    assembly = _assembled(parsed, workdir)
    # Weights that do not fit are refused here, before anything is written.
    state = None if run_files.has_checkpoints(workdir) else starting.make_first_state(assembly)
    processes.check_shared("--workdir", workdir)
    with (
        _alone_in(workdir),
        Checkpointer(workdir / run_files.CHECKPOINTS) as checkpointer,
    ):
        if _parsed(config, workdir, extend=extend) != (parsed, shorter):
            raise UserError(
                f"another command has extended the run in --workdir {workdir} in the meantime; "
                "repeat the same command"
            )
        state, progress = starting.restore(checkpointer, assembly, state)
        if shorter is not None:
            _extend(assembly, workdir, progress, shorter)
        with _reporter(assembly, workdir, progress) as reporter:
            state, progress = _train(assembly, checkpointer, reporter, state, progress, after_epoch)
            with stoppable(progress):
                best = assembly.devices.replicate(checkpointer.restore(progress.best_step, state))
                found = assembly.evaluator.evaluate_selected(best)
                results = result_fields.collect(assembly, state, progress, found)
                return reporter.results(results, found.tests)


def _parsed(config: Mapping[str, Any], workdir: Path, *, extend: bool) -> tuple[Config, int | None]:
    """The configuration of the run; see `extensions.add`."""
    # The configuration that a run has written may be given without a change.
    parsed = parse({name: value for name, value in config.items() if name != json_files.SEAL})
    if processes.are_several():
        # Before one process alone refuses what is in the workdir.
        given = [parsed.to_plain(), extend]
        processes.check_same(
            "the configuration, with --extend,", lambda: json.dumps(given, sort_keys=True)
        )
    return continuing.check_workdir(parsed, workdir, extend=extend)


def _note_changes(config: Config, workdir: Path) -> None:
    """Writes fields that may change, such as the place of the data, into a finished run.

    Raises:
        UserError: the data are not the same.
    """
    earlier, now = (
        dict(flatten(one)) for one in (run_files.read_config(workdir) or {}, config.to_plain())
    )
    if any(earlier.get(name) != now.get(name) for name in runs.PLACES_OF_DATA):
        _assembled(config, workdir)
    if processes.is_first():
        reporting.write_config(config, workdir)


def _earlier_results(workdir: Path) -> dict[str, Any] | None:
    """The results of the run if it was finished before."""
    processes.check_joined()
    finished = run_files.read_whole_results(workdir)
    reason = run_files.why_no_results(workdir, whole=True) if processes.is_first() else None
    if finished is None and reason is not None:
        logging.warning("%s; they are written again", reason)
    # Otherwise a process that has no checkpoints would wait for others in checks of a new run.
    held = [finished, run_files.has_checkpoints(workdir)]
    processes.check_same("what --workdir holds", lambda: json.dumps(held, sort_keys=True))
    return finished


def _alone_in(workdir: Path) -> AbstractContextManager[None]:
    """Refuses a second run in the workdir. If there are several processes, the first checks."""
    if not processes.is_first():
        return contextlib.nullcontext()
    return folder_lock.held(workdir, "another run")


def _extend(assembly: Assembly, workdir: Path, progress: Progress, shorter: int) -> None:
    """Makes the run in the workdir one of more epochs than `shorter`."""
    if progress.step == 0:
        # Training from the start would drop what the run has logged.
        raise UserError(
            f"--extend needs a checkpoint to continue from; the run in --workdir {workdir} has "
            "none that can be read: give another --workdir to train from the start"
        )
    stop_after = assembly.config.stop_after
    if stop_after is not None and progress.epochs - progress.best_epoch >= stop_after:
        raise UserError(
            f"--extend cannot train the run in {workdir} further: it stopped in epoch "
            f"{progress.epochs}, {stop_after} epochs after its best one (config.stop_after)"
        )
    if processes.is_first():
        extensions.write(workdir, assembly.config, shorter)


def _assembled(config: Config, workdir: Path) -> Assembly:
    """The parts of the run, once they are found to fit the run in the workdir and each other."""
    # Before the data set is opened, which can take long.
    class_devices = config.class_devices
    parallel.check_class_devices(class_devices)
    is_found = class_devices is None and config.parallel == "mesh"
    if not is_found:
        check_batch_size(config, class_devices or 1)
    if run_files.read_config(workdir) is None:
        assembly = assemble(config, workdir=workdir)
    else:
        with run_inputs.naming_place(path_of(config.dataset), "--config.dataset.path"):
            assembly = assemble(config, workdir=workdir)
    if is_found:
        check_batch_size(config, assembly.devices.class_axis.size)
    if assembly.devices.splits_parameters:
        parallel.check_split(assembly.parameter_axis)
    data_checks.check_fits(assembly.data, workdir)
    return assembly


def _reporter(assembly: Assembly, workdir: Path, progress: Progress) -> Reporter | SilentReporter:
    if not processes.is_first():
        return SilentReporter()
    show_data(assembly)
    return Reporter(
        workdir,
        assembly.config,
        assembly.data.facts,
        assembly.data.dataset,
        steps_per_epoch=assembly.data.steps_per_epoch,
        first_step=progress.step,
        optimizes_top_k=assembly.loss.optimizes_top_k,
        unlogged=progress.unlogged,
        metrics_digest=progress.metrics_digest,
    )


def _train(
    assembly: Assembly,
    checkpointer: Checkpointer,
    reporter: Reporter | SilentReporter,
    state: TrainState,
    progress: Progress,
    after_epoch: AfterEpoch | None,
) -> tuple[TrainState, Progress]:
    """Trains from a state on the devices; the last state, on the host, and the progress with it."""
    config, devices = assembly.config, assembly.devices
    with (
        contextlib.closing(assembly.data.training_batches(progress.step)) as batches,
        StopSignals(config.checkpoint.every_minutes) as stop_signals,
    ):
        loop = Loop(
            train_step=assembly.train_step,
            validate=assembly.evaluator.validate,
            devices=devices,
            checkpointer=checkpointer,
            reporter=reporter,
            stop_signals=stop_signals,
            num_epochs=config.num_epochs,
            steps_per_epoch=assembly.data.steps_per_epoch,
            select_by=Metric.parse(config.select_by),
            stop_after=config.stop_after,
            save_every=config.checkpoint.every_steps,
            after_epoch=after_epoch,
        )
        state, progress = loop.run(state, progress, batches)
    return devices.to_host(state), progress
