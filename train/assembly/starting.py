"""The state that training starts or continues from."""

import dataclasses
import json

from absl import logging

from train.assembly.measured_norm import with_feature_norm
from train.assembly.parts import Assembly
from train.devices import processes
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.models import load_pretrained
from train.training import earlier_run
from train.training.state import TrainState, parameters_digest, start_from
from train.workdir.checkpoint import Checkpointer
from train.workdir.progress import Progress


def restore(
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
        state, progress = first or make_first_state(assembly), Progress()

    def digest() -> str:
        return parameters_digest(state) + json.dumps(dataclasses.asdict(progress))

    # Another file of weights, or another folder of checkpoints, would differ here.
    processes.check_same("the state to train from", digest)
    return assembly.devices.replicate(state), progress


def make_first_state(assembly: Assembly) -> TrainState:
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
