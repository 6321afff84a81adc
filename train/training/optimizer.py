"""Stochastic gradient descent with Nesterov momentum, and the learning rate by step, in optax."""

from collections.abc import Mapping, Sequence
from typing import Any

import optax

SCHEDULES = ("step", "cosine")


def step_decay(
    learning_rate: float, *, decay_epochs: Sequence[int], decay_factor: float, steps_per_epoch: int
) -> optax.Schedule:
    """The learning rate by step, multiplied by the factor where a listed epoch (from 0) begins."""
    boundaries = {epoch * steps_per_epoch: decay_factor for epoch in decay_epochs}
    return optax.piecewise_constant_schedule(learning_rate, boundaries)


def cosine_decay(learning_rate: float, *, num_steps: int) -> optax.Schedule:
    """The learning rate by step: half a cosine, from the rate at step 0 to 0 after the last."""
    return optax.cosine_decay_schedule(learning_rate, num_steps)


def with_warmup(schedule: optax.Schedule, *, warmup_steps: int) -> optax.Schedule:
    """The schedule times (step + 1) / warmup_steps until that is 1; decays stay where they are."""
    if warmup_steps == 0:
        return schedule
    # From 1 / warmup_steps rather than 0: a step at rate 0 would be one for nothing.
    factor = optax.linear_schedule(1 / warmup_steps, 1.0, max(1, warmup_steps - 1))
    return lambda step: factor(step) * schedule(step)


def schedule(
    settings: Mapping[str, Any], *, num_epochs: int, steps_per_epoch: int
) -> optax.Schedule:
    """The learning rate by step that `config.optimizer` asks for."""
    if settings["schedule"] == "cosine":
        decaying = cosine_decay(settings["learning_rate"], num_steps=num_epochs * steps_per_epoch)
    else:
        decaying = step_decay(
            settings["learning_rate"],
            decay_epochs=settings["decay_epochs"],
            decay_factor=settings["decay_factor"],
            steps_per_epoch=steps_per_epoch,
        )
    return with_warmup(decaying, warmup_steps=round(settings["warmup_epochs"] * steps_per_epoch))


def sgd(
    learning_rate: optax.Schedule,
    *,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    clip_norm: float | None = None,
) -> optax.GradientTransformation:
    """SGD as the papers use it.

    The decay is the L2 kind: added to the gradient of every parameter before the momentum.

    Args:
        learning_rate: the learning rate by step.
        momentum: the factor of the velocity, in [0, 1).
        nesterov: whether the momentum is Nesterov's.
        weight_decay: the factor of the parameters in the gradient.
        clip_norm: the largest length that the gradient of all parameters together may have before
            the decay is added; a longer one is shortened to it. None for any.
    """
    clip = [] if clip_norm is None else [optax.clip_by_global_norm(clip_norm)]
    return optax.chain(
        *clip,
        optax.add_decayed_weights(weight_decay),
        optax.sgd(learning_rate, momentum=momentum, nesterov=nesterov),
    )
