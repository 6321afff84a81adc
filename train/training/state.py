"""The state of training: one frozen pytree."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax import struct

from train.models.classifier import Classifier


@struct.dataclass
class TrainState:
    """The state that a training step takes and returns.

    Attributes:
        step: the number of steps so far, int32.
        params: the parameters.
        batch_stats: batch norm's statistics.
        opt_state: the optimiser's state.
        averages: moving averages of the parameters and the statistics, {"params", "batch_stats"};
            None without averaging.
        label_logits: the logits of the estimated labels of all training examples, [N, L]; None
            if labels are not estimated.
    """

    step: jax.Array
    params: Any
    batch_stats: Any
    opt_state: Any
    averages: Any = None
    label_logits: Any = None

    @property
    def evaluated(self) -> tuple[Any, Any]:
        """The parameters and statistics that are evaluated: the averages if there are any."""
        if self.averages is None:
            return self.params, self.batch_stats
        return self.averages["params"], self.averages["batch_stats"]


def initializer(
    model: Classifier, image_shape: tuple[int, ...]
) -> Callable[[jax.Array], Mapping[str, Any]]:
    """Makes the variables of a network from a key. It is traced once, for shapes and for values.

    Args:
        model: the network.
        image_shape: height, width and channels; for features, only their number.
    """
    images = np.zeros((1, *image_shape), np.float32)
    return jax.jit(lambda key: model.init(key, images, train=True))


def initial_state(
    init: Callable[[jax.Array], Mapping[str, Any]],
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    *,
    averaged: bool = False,
    frozen: Collection[str] = (),
) -> TrainState:
    """The state before the first step.

    Args:
        init: the `initializer` of the network.
        optimizer: the optimizer.
        key: the key of the initial parameters.
        averaged: whether moving averages are kept.
        frozen: the parts of the network that are not trained and have no state of the optimizer.
    """
    variables = init(key)
    params, batch_stats = variables["params"], variables.get("batch_stats", {})
    return TrainState(
        step=jax.numpy.zeros((), np.int32),
        params=params,
        batch_stats=batch_stats,
        opt_state=optimizer.init(trained_parts(params, frozen)),
        averages={"params": params, "batch_stats": batch_stats} if averaged else None,
    )


def trained_parts(variables: Any, frozen: Collection[str]) -> Any:
    """The parameters or statistics of all parts of the network but the frozen ones."""
    return {name: part for name, part in variables.items() if name not in frozen}


def start_from(state: TrainState, params: Any, batch_stats: Any) -> TrainState:
    """The state before the first step with the given parameters and statistics."""
    averages = None if state.averages is None else {"params": params, "batch_stats": batch_stats}
    return dataclasses.replace(state, params=params, batch_stats=batch_stats, averages=averages)


def num_parameters(params: Any) -> int:
    """The number of scalar parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def parameters_digest(params: Any) -> str:
    """The SHA-256 of the parameters' names, shapes, dtypes and bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
