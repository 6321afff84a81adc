"""The norm of the features below a new head, measured before the first step."""

import math
from typing import Any

import jax
import numpy as np

from train.assembly.parts import Assembly
from train.data import streaming
from train.data.batches import Batches
from train.devices import processes
from train.models import feature_norm
from train.models.classifier import Classifier
from train.training.state import TrainState, start_from
from train.workdir import terminal

# Training examples whose features are measured: their deviations are then known to some per cent.
_MOST_MEASURED = 1024


def with_feature_norm(assembly: Assembly, state: TrainState) -> TrainState:
    """The state before the first step, with the norm of the features below a new head.

    It is measured on training examples, in the form in which examples are evaluated. Every process
    looks at the same ones, on one of its devices, and takes what the first process has measured.
    """
    data, seed = assembly.data, assembly.config.seed
    train = data.dataset.train
    chosen = np.random.default_rng(seed).permutation(len(train))[:_MOST_MEASURED]
    batch_size = assembly.config.dataset.batch_size
    share = math.ceil(batch_size / jax.device_count())
    examples = Batches(examples=train.take(np.sort(chosen)), size=share)
    # Without the head, because a device may not have room for all of it.
    variables = jax.device_put(
        {
            "params": {"features": state.params.get("features", {})},
            "batch_stats": {"features": state.batch_stats.get("features", {})},
        }
    )

    @jax.jit
    def features(variables: Any, inputs: jax.Array) -> jax.Array:
        found: Any = assembly.model.apply(
            variables, assembly.normalize(inputs), method=Classifier.features_in_evaluation
        )
        return found

    batches = terminal.tracked(
        streaming.stream(examples, num_workers=data.num_workers),
        total=len(examples),
        what=f"features of {len(chosen):,} training {data.spec.example}s",
    )
    norm = feature_norm.measure(
        np.asarray(features(variables, batch["images"]))[batch["mask"]] for batch in batches
    )
    assert norm is not None
    # A GPU chooses algorithms by their times: two processes may round features differently.
    norm = processes.of_first(norm)
    return start_from(state, state.params, {**state.batch_stats, "norm": norm})
