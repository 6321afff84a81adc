"""Optimizers by name and the learning rate by step. To add an optimizer, add it to `OPTIMIZERS`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax

from train.training.objectives import Hyperparameters

SCHEDULES = ("step", "cosine")
# The fields of `config.optimizer` that are inputs of the compiled step. Some may be None.
_HYPERPARAMETERS = (
    "learning_rate",
    "momentum",
    "beta2",
    "weight_decay",
    "clip_norm",
    "average_decay",
)


# The transformations that an optimizer chains.
Parts = tuple[optax.GradientTransformation, ...]
# Takes the learning rate by step, the hyperparameters, and whether the momentum is Nesterov's.
Entry = Callable[[optax.Schedule, Hyperparameters, bool], Parts]


class Optimizer(NamedTuple):
    """An optimizer and the learning rate by step that is part of it."""

    transformation: optax.GradientTransformation
    schedule: optax.Schedule


def hyperparameters(settings: Mapping[str, Any]) -> Hyperparameters:
    """The fields of `config.optimizer` that are inputs of the compiled step, without None."""
    return {
        name: np.float32(settings[name]) for name in _HYPERPARAMETERS if settings[name] is not None
    }


def build(
    settings: Mapping[str, Any], values: Hyperparameters, *, num_epochs: int, steps_per_epoch: int
) -> Optimizer:
    """The optimizer that `config.optimizer` asks for.

    Args:
        settings: `config.optimizer`; the fields that are constants are taken from it.
        values: what `hyperparameters` returned; they may be traced.
        num_epochs: the epochs of the whole run.
        steps_per_epoch: the steps of one epoch.
    """
    rate = schedule(
        settings, values["learning_rate"], num_epochs=num_epochs, steps_per_epoch=steps_per_epoch
    )
    # The gradient is clipped before the weight decay is added.
    clip = [optax.clip_by_global_norm(values["clip_norm"])] if "clip_norm" in values else []
    parts = OPTIMIZERS[settings["name"]](rate, values, settings["nesterov"])
    return Optimizer(optax.chain(*clip, *parts), rate)


def schedule(
    settings: Mapping[str, Any], learning_rate: Any, *, num_epochs: int, steps_per_epoch: int
) -> optax.Schedule:
    """The learning rate by step that `config.optimizer` asks for."""
    if settings["schedule"] == "cosine":
        decaying = cosine_decay(learning_rate, num_steps=num_epochs * steps_per_epoch)
    else:
        decaying = step_decay(
            learning_rate,
            decay_epochs=settings["decay_epochs"],
            decay_factor=settings["decay_factor"],
            steps_per_epoch=steps_per_epoch,
        )
    return with_warmup(decaying, warmup_steps=round(settings["warmup_epochs"] * steps_per_epoch))


def step_decay(
    learning_rate: Any, *, decay_epochs: Sequence[int], decay_factor: float, steps_per_epoch: int
) -> optax.Schedule:
    """The learning rate by step, multiplied by the factor where a listed epoch (from 0) begins."""
    boundaries = {epoch * steps_per_epoch: decay_factor for epoch in decay_epochs}
    return optax.piecewise_constant_schedule(learning_rate, boundaries)


def cosine_decay(learning_rate: Any, *, num_steps: int) -> optax.Schedule:
    """The learning rate by step: half a cosine, from the rate at step 0 to 0 after the last."""
    return optax.cosine_decay_schedule(learning_rate, num_steps)


def with_warmup(schedule: optax.Schedule, *, warmup_steps: int) -> optax.Schedule:
    """The schedule times (step + 1) / warmup_steps until that is 1; decays stay where they are."""
    if warmup_steps == 0:
        return schedule
    # From 1 / warmup_steps: a step at the rate 0 would change nothing.
    factor = optax.linear_schedule(1 / warmup_steps, 1.0, max(1, warmup_steps - 1))
    return lambda step: factor(step) * schedule(step)


def _sgd(rate: optax.Schedule, values: Hyperparameters, nesterov: bool) -> Parts:
    """SGD as the papers use it: the weight decay is added to the gradient before the momentum."""
    return (
        optax.add_decayed_weights(values["weight_decay"]),
        optax.sgd(rate, momentum=values["momentum"], nesterov=nesterov),
    )


def _rmsprop(rate: optax.Schedule, values: Hyperparameters, nesterov: bool) -> Parts:
    """RMSProp; the weight decay is added to the gradient, as in SGD."""
    decay = {"decay": values["beta2"]} if "beta2" in values else {}
    return (
        optax.add_decayed_weights(values["weight_decay"]),
        optax.rmsprop(rate, momentum=values["momentum"], nesterov=nesterov, **decay),
    )


def _lars(rate: optax.Schedule, values: Hyperparameters, nesterov: bool) -> Parts:
    """LARS (You et al. 2017), for large batches."""
    settings = {"momentum": values["momentum"], "nesterov": nesterov}
    return (optax.lars(rate, values["weight_decay"], **settings),)


def _decoupled(optimizer: Callable[..., optax.GradientTransformation]) -> Entry:
    """An entry for an optimizer with two moments, whose weight decay is not in the gradient."""

    def build(rate: optax.Schedule, values: Hyperparameters, _nesterov: bool) -> Parts:
        beta2 = {"b2": values["beta2"]} if "beta2" in values else {}
        settings = {"b1": values["momentum"], "weight_decay": values["weight_decay"], **beta2}
        return (optimizer(rate, **settings),)

    return build


OPTIMIZERS: dict[str, Entry] = {
    "sgd": _sgd,
    "adamw": _decoupled(optax.adamw),
    "lamb": _decoupled(optax.lamb),
    "lars": _lars,
    "lion": _decoupled(optax.lion),
    "rmsprop": _rmsprop,
}
