"""The state that training starts or continues from."""

import json
import math
from typing import Any

import jax
import msgspec
import numpy as np
from absl import logging

from train.data import streaming
from train.data.batches import Batches
from train.devices import processes
from train.foundation.console import show_line
from train.models import feature_norm, load_pretrained
from train.models.classifier import Classifier
from train.run import transfer
from train.run.checkpoints import Checkpoints, Progress
from train.run.parts import Run
from train.training.state import TrainState, parameters_digest, start_from

# Training examples whose features are measured: their deviations are then known to some per cent.
_MOST_MEASURED = 1024


def restore(
    checkpoints: Checkpoints, run: Run, first: TrainState | None
) -> tuple[TrainState, Progress]:
    """The state, on the devices, and the progress of the latest checkpoint, or of a new run.

    Args:
        checkpoints: the checkpoints of the run.
        run: the parts of the run.
        first: the state before the first step; None to make it if there is no checkpoint.
    """
    if checkpoints.latest:
        state, progress = checkpoints.restore(first or run.initial_state(), checkpoints.latest)
    else:
        state, progress = first or first_state(run), Progress()

    def digest() -> str:
        return parameters_digest(state) + json.dumps(msgspec.to_builtins(progress))

    # Another file of weights, or another folder of checkpoints, would differ here.
    processes.check_same("the state to train from", digest)
    return run.devices.place(state), progress


def first_state(run: Run) -> TrainState:
    """The state before the first step, with the weights that the configuration names in it."""
    state, model = run.initial_state(), run.config.model
    variables, loaded = (state.params, state.batch_stats), None
    if model.pretrained is not None:
        loaded = load_pretrained(model.name, model.pretrained, *variables, new_head=model.new_head)
    elif model.start_from is not None:
        loaded = transfer.load(model, *variables, run.data.facts)
    elif model.freeze and processes.is_first():
        logging.warning(
            "config.model.freeze: the frozen network has random weights; config.model.pretrained "
            "or config.model.start_from gives it trained ones"
        )
    if loaded is not None:
        state = start_from(state, loaded.params, loaded.batch_stats)
        if processes.is_first():
            show_line(loaded.message)
    if run.normalizes_features and (loaded is None or loaded.why_new_head):
        norm = _measured_norm(run, state)
        state = start_from(state, state.params, {**state.batch_stats, "norm": norm})
    return state


def _measured_norm(run: Run, state: TrainState) -> dict[str, np.ndarray]:
    """The norm of the features below a new head, measured on training examples."""
    train = run.data.dataset.train
    chosen = np.random.default_rng(run.config.seed).permutation(len(train))[:_MOST_MEASURED]
    size = math.ceil(run.config.dataset.batch_size / jax.device_count())
    batches = Batches(examples=train.take(np.sort(chosen)), size=size)
    # Without the head, because a device may not have room for all of it.
    collections = {"params": state.params, "batch_stats": state.batch_stats}
    network = {name: {"features": found.get("features", {})} for name, found in collections.items()}

    @jax.jit
    def features(variables: Any, inputs: jax.Array) -> Any:
        inputs = run.normalize(inputs)
        return run.model.apply(variables, inputs, method=Classifier.features_in_evaluation)

    variables = jax.device_put(network)
    rows = [
        np.asarray(features(variables, batch["images"]))[batch["mask"]]
        for batch in streaming.stream(batches, num_workers=run.data.num_workers)
    ]
    # A GPU chooses algorithms by their times: two processes may round features differently.
    return processes.of_first(feature_norm.measure(np.concatenate(rows)))
