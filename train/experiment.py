"""Trains, selects and tests one classifier."""

import contextlib
import dataclasses
import itertools
import json
import stat
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from absl import logging

from train.assembly import assemble, check_batch_size, result_fields
from train.assembly.measured_norm import with_feature_norm
from train.assembly.parts import Assembly
from train.assembly.run_data import RunData
from train.configuration import Config
from train.configuration.datasets import OwnImageFields, StreamedFields, path_of
from train.configuration.parsing import parse
from train.data.batches import LEAVES_OUT
from train.data.own import unreadable_images
from train.devices import parallel, processes
from train.evaluation import summaries
from train.evaluation.metric import Metric
from train.foundation import folder_lock, json_files
from train.foundation.console import show_line
from train.foundation.errors import NO_PATH, UserError
from train.foundation.nested import differences, flatten
from train.models import load_pretrained
from train.training import earlier_run, normalization, optimizer
from train.training.loop import AfterEpoch, Loop
from train.training.losses import find_loss
from train.training.state import TrainState, parameters_digest, start_from
from train.training.stop_signals import StopSignals
from train.workdir import (
    checked_images,
    extensions,
    output_files,
    overlooked,
    reporting,
    run_files,
    run_inputs,
    runs,
    skipped_images,
    trackers,
)
from train.workdir.checked_images import Unreadable
from train.workdir.checkpoint import Checkpointer
from train.workdir.orbax_folder import check_path
from train.workdir.overlooked import Overlooked
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
    finished = _earlier_results(parsed, workdir)
    if finished is not None and shorter is None:
        runs.check_same_run(workdir, parsed.to_plain(), finished)
        _note_changes(parsed, workdir, finished)
        if processes.is_first():
            loss = find_loss(parsed.loss.name)
            reporting.show_finished(workdir, parsed, finished, optimizes_top_k=loss.optimizes_top_k)
        return finished
    run_files.check_places(workdir)
    trackers.check(parsed.trackers)
    assembly = _assembled(parsed, workdir)
    unreadable = _checked_images(assembly.data, workdir)
    found_alike = _overlooked(assembly.data, workdir)
    # Weights that do not fit are refused here, before anything is written.
    state = None if run_files.has_checkpoints(workdir) else _first_state(assembly)
    with (
        _alone_in(workdir),
        Checkpointer(workdir / run_files.CHECKPOINTS) as checkpointer,
    ):
        if _parsed(config, workdir, extend=extend) != (parsed, shorter):
            raise UserError(
                f"another command has extended the run in --workdir {workdir} in the meantime; "
                "the same command, given again, looks at it anew"
            )
        state, progress = _restore(checkpointer, assembly, state)
        if shorter is not None:
            _extend(assembly, workdir, progress, shorter)
        with _reporter(assembly, workdir, progress, unreadable, found_alike) as reporter:
            state, progress = _train(assembly, checkpointer, reporter, state, progress, after_epoch)
            best = assembly.devices.replicate(checkpointer.restore(progress.best_step, state))
            found = assembly.evaluator.evaluate_selected(best)
            results = result_fields.collect(assembly, state, progress, found)
            return reporter.results(results, found.tests)


def _parsed(config: Mapping[str, Any], workdir: Path, *, extend: bool) -> tuple[Config, int | None]:
    """The configuration of the run; see `extensions.add`."""
    # What a run has written may be given as it is.
    parsed = parse({name: value for name, value in config.items() if name != json_files.SEAL})
    if parsed.model.tau_normalized is not None:
        raise UserError(
            "config.model.tau_normalized is of runs that train.export has written; they are not "
            "trained, and config.model.start_from starts from one"
        )
    return _config_of_workdir(parsed, workdir, extend=extend)


def _config_of_workdir(config: Config, workdir: Path, *, extend: bool) -> tuple[Config, int | None]:
    """The configuration with the extensions of the run in the workdir; see `extensions.add`.

    Refuses a workdir that is a file, or that holds a run of another configuration. Fields of the
    machine, and the place of its data, may change when the run resumes: the devices, the processes
    that decode, what is done about images that cannot be read. config.json has the last values.
    """
    try:
        if not stat.S_ISDIR(workdir.stat().st_mode):
            raise UserError(field="--workdir", must_be="a directory", but=f"{workdir} is a file")
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in NO_PATH:
            raise
        raise UserError(
            f"--workdir must be a directory; {workdir} cannot be one: {error.strerror}"
        ) from error
    output_files.refuse_folders_of_the_system("workdir", workdir, is_folder=True)
    earlier = run_files.read_config(workdir)
    if earlier is None and run_files.has_checkpoints(workdir):
        raise UserError(
            f"--workdir {workdir} holds checkpoints, and no config.json that says of what run; "
            "give another --workdir, or delete it"
        )
    continued, shorter = extensions.add(config, earlier, workdir, extend=extend)
    if earlier is None:
        return continued, shorter
    # An extension changes these two, and nothing else.
    extended = () if shorter is None else ("num_epochs", "extensions")
    before, now = (runs.canonical(one) for one in (earlier, continued.to_plain()))
    may_change = {*runs.MAY_CHANGE, *extended}
    if run_files.read_digest(workdir) is None:
        # It is not known whether the data at another path are the same.
        may_change.discard(runs.DATASET_PATH)
    before |= {name: now[name] for name in may_change if name in now}
    differing = differences(before, now)
    if differing:
        epochs = earlier.get("num_epochs")
        is_shorter = isinstance(epochs, int) and epochs < config.num_epochs
        hint = (
            " or --extend, which trains the run further"
            if is_shorter and len(differing) == 1
            else ""
        )
        raise UserError(
            f"--workdir {workdir} holds a run of another configuration ({'; '.join(differing)}); "
            f"give another --workdir{hint}",
            usually="a field was changed after the run began, which goes on as it began",
        )
    return continued, shorter


def _note_changes(config: Config, workdir: Path, finished: Mapping[str, Any]) -> None:
    """Writes fields that may change, such as the place of the data, into a finished run.

    Images that a run left out stay left out for the commands that read it.

    Raises:
        UserError: the data are not the same.
    """
    earlier, now = (
        dict(flatten(one)) for one in (run_files.read_config(workdir) or {}, config.to_plain())
    )
    if any(earlier.get(name) != now.get(name) for name in runs.PLACES_OF_DATA):
        _assembled(config, workdir)
    if skipped_images.FIELD in finished:
        assert isinstance(config.dataset, StreamedFields)
        dataset = dataclasses.replace(config.dataset, skip_unreadable=True)
        config = dataclasses.replace(config, dataset=dataset)
    if processes.is_first():
        reporting.write_config(config, workdir)


def _earlier_results(config: Config, workdir: Path) -> dict[str, Any] | None:
    """The results of the run if it was finished before."""
    processes.check_joined()
    finished = run_files.read_whole_results(workdir)
    reason = run_files.why_no_results(workdir, whole=True) if processes.is_first() else None
    if finished is None and reason is not None:
        logging.warning("%s; they are made anew", reason)
    processes.check_same("the configuration", lambda: json.dumps(config.to_plain(), sort_keys=True))
    processes.check_same("what --workdir holds", lambda: json.dumps(finished, sort_keys=True))
    return finished


def _alone_in(workdir: Path) -> AbstractContextManager[None]:
    """Refuses a second run in the workdir. If there are several processes, the first checks."""
    if not processes.is_first():
        return contextlib.nullcontext()
    return folder_lock.held(workdir, "another run")


def _extend(assembly: Assembly, workdir: Path, progress: Progress, shorter: int) -> None:
    """Makes the run in the workdir one of more epochs than `shorter`."""
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
    _check_fits(assembly.data, workdir)
    return assembly


def _checked_images(data: RunData, workdir: Path) -> Unreadable:
    """The images that cannot be read. A new run does not count them in their classes.

    Raises:
        UserError: there are some and the run does not leave them out, or a split has no others.
    """
    settings = data.config.dataset
    if not isinstance(settings, OwnImageFields):
        return {}
    begins = not run_files.has_checkpoints(workdir)
    found = checked_images.find_unreadable(data.dataset, settings.check_images, begins=begins)
    if found and not settings.skip_unreadable:
        images = itertools.chain.from_iterable(one.values() for one in found.values())
        raise unreadable_images.refused([*images], LEAVES_OUT)
    is_counted = not begins and (workdir / run_files.CLASSES).exists()
    if "train" in found and not is_counted:
        data.leave_out(found["train"])
        _check_selects(data)
    return found


def _overlooked(data: RunData, workdir: Path) -> Overlooked:
    """What makes the accuracies of a new run too good; a resumed run has reported it."""
    settings = data.config.dataset
    if not isinstance(settings, OwnImageFields) or run_files.has_checkpoints(workdir):
        return overlooked.NOTHING
    return overlooked.find(data.dataset, settings)


def _check_fits(data: RunData, workdir: Path) -> None:
    """Refuses what the data set cannot be trained with, or selected by, before anything is done."""
    if (workdir / run_files.DATA).exists():
        earlier = run_files.read_facts(workdir, data.classes, data.image_shape)
        if earlier.digest != data.facts.digest:
            # Only a user's own files have a path.
            name = data.spec.name
            which = path_of(data.config.dataset) or f"the data set {name}"
            raise UserError(
                f"the files of {which}, their labels or their splits changed since the run in "
                f"--workdir {workdir} began; give another --workdir"
            )
    _ = data.steps_per_epoch
    _check_selects(data)


def _check_selects(data: RunData) -> None:
    """Refuses a metric to select by that the validation split does not have."""
    # Without this check the error would come at the end of an epoch, which can take an hour.
    select_by = Metric.parse(data.config.select_by)
    summaries.check_has_value(select_by, data.dataset.validation.labels, data.class_counts)


def _restore(
    checkpointer: Checkpointer, assembly: Assembly, first: TrainState | None
) -> tuple[TrainState, Progress]:
    """The state, on the devices, and the progress to continue from: the latest, or the first.

    Args:
        checkpointer: the checkpoints of the run.
        assembly: the parts of the run.
        first: the state before the first step; None to make it if no checkpoint can be restored.
    """
    restored = checkpointer.restore_latest(assembly.initial_state() if first is None else first)
    if restored is not None:
        state, progress = restored[0], Progress.from_saved(restored[1])
        if progress.epochs != progress.step // assembly.data.steps_per_epoch:
            raise UserError(
                f"the latest checkpoint has {progress.epochs} finished epochs after step "
                f"{progress.step}, but {assembly.data.steps_per_epoch} steps are an epoch; it was "
                "changed, or is of another version"
            )
    else:
        state, progress = first or _first_state(assembly), Progress()

    def digest() -> str:
        return parameters_digest(state) + json.dumps(dataclasses.asdict(progress))

    # Another file of weights, or another folder of checkpoints, would differ here.
    processes.check_same("the state to train from", digest)
    return assembly.devices.replicate(state), progress


def _first_state(assembly: Assembly) -> TrainState:
    """The state before the first step, with the weights that the configuration names in it."""
    initial = assembly.initial_state()
    settings = assembly.config.model
    name = settings.name
    if settings.pretrained is not None:
        loaded = load_pretrained(
            name,
            settings.pretrained,
            initial.params,
            initial.batch_stats,
            new_head=settings.new_head,
        )
    elif settings.start_from is not None:
        loaded = earlier_run.load(
            settings.start_from,
            initial.params,
            initial.batch_stats,
            model_name=name,
            facts=assembly.data.facts,
            new_head=settings.new_head,
        )
    else:
        if settings.freeze and processes.is_first():
            logging.warning(
                "config.model.freeze: the frozen network has random weights; "
                "config.model.pretrained or config.model.start_from gives it trained ones"
            )
        loaded = None
    state = initial
    if loaded is not None:
        state = start_from(initial, loaded.params, loaded.batch_stats)
        if processes.is_first():
            show_line(loaded.message)
    if assembly.normalizes_features and not (loaded and loaded.head_is_read):
        state = with_feature_norm(assembly, state)
        if processes.is_first():
            show_line(
                "features are normalized below the new head (config.model.normalize_features)"
            )
    return state


def _show_data(assembly: Assembly, workdir: Path, unreadable: Unreadable) -> None:
    """Says what was found in the data, before the first step, which takes long."""
    data = assembly.data
    dataset = data.dataset
    splits = {"training": dataset.train, "validation": dataset.validation, "the test": dataset.test}
    sizes = ", ".join(f"{len(split):,} for {name}" for name, split in splits.items())
    sharing = assembly.devices.class_axis.size
    shared = f", shared by {sharing} devices" if sharing > 1 else ""
    show_line(
        f"{data.num_classes:,} classes{shared}; {data.spec.example}s: {sizes}; the first step "
        "is compiled, which can take a minute"
    )
    if dataset.train.truths is not None:
        show_line(dataset.train.truths.in_words())
    groups = ", ".join(
        f"{len(set(split.groups)):,} for {name}"
        for name, split in splits.items()
        if split.groups is not None
    )
    if groups:
        show_line(f"groups: {groups}")
    if unreadable:
        numbers = ", ".join(f"{len(found):,} of {split}" for split, found in unreadable.items())
        replaced = "; the next one that can be read replaces an image in training"
        show_line(
            f"images that cannot be read, and are left out: {numbers}"
            f"{replaced if 'train' in unreadable else ''}; listed in {workdir / run_files.SKIPPED}"
        )
    settings, num_epochs = data.config.optimizer, data.config.num_epochs
    if (warmup := optimizer.warmup_epochs(settings, num_epochs)) < settings.warmup_epochs:
        show_line(
            f"the warm-up takes {warmup:g} epochs, half of the run, in place of "
            f"{settings.warmup_epochs:g} (config.optimizer.warmup_epochs)"
        )
    if data.spec.has_images and data.facts.mean is not None:
        show_line(normalization.describe(data.config.model, data.spec))


def _reporter(
    assembly: Assembly,
    workdir: Path,
    progress: Progress,
    unreadable: Unreadable,
    found_alike: Overlooked,
) -> Reporter | SilentReporter:
    if not processes.is_first():
        return SilentReporter()
    _show_data(assembly, workdir, unreadable)
    reporter = Reporter(
        workdir,
        assembly.config,
        assembly.data.facts,
        assembly.data.dataset.files,
        num_epochs=assembly.config.num_epochs,
        steps_per_epoch=assembly.data.steps_per_epoch,
        batch_size=assembly.config.dataset.batch_size,
        first_step=progress.step,
        optimizes_top_k=assembly.loss.optimizes_top_k,
        unlogged=progress.unlogged,
        metrics_digest=progress.metrics_digest,
    )
    # The reporter has made the folder that they are listed in.
    for split, found in unreadable.items():
        for skipped in found.values():
            assembly.data.skipped.add_told(skipped, split)
    found_alike.tell(workdir)
    return reporter


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
