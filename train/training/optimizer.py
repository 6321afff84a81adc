"""Optimizers by name and the learning rate by step. To add an optimizer, add it to `OPTIMIZERS`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from train.configuration import OptimizerFields, declaring
from train.training.objectives import Hyperparameters

# The compiled step counts in 32 bits.
MOST_STEPS = 2**31 - 1

# The transformations that an optimizer chains.
Parts = tuple[optax.GradientTransformation, ...]
# Maps parameters to True if they have the weight decay; None if all have it.
Mask = Callable[[Any], Any] | None
# Maps parameters, or a pytree of their structure, to their Euclidean norm.
Norm = Callable[[Any], jax.Array]
# Takes the learning rate by step, the hyperparameters, whether the momentum is Nesterov's, and the
# mask of the weight decay.
Entry = Callable[[optax.Schedule, Hyperparameters, bool, Mask], Parts]


class Optimizer(NamedTuple):
    """An optimizer and the learning rate by step that is part of it."""

    transformation: optax.GradientTransformation
    schedule: optax.Schedule


def hyperparameters(settings: OptimizerFields) -> Hyperparameters:
    """The fields of `config.optimizer` that are inputs of the compiled step, without None.

    The rate of the head is in units of the learning rate, whose schedule it shares.
    """
    values = declaring.inputs(settings)
    if (head := values.pop("head_learning_rate")) is not None:
        # Divided in 64 bits and rounded once.
        values["head_rate_ratio"] = head / settings.learning_rate
    return {name: np.float32(value) for name, value in values.items() if value is not None}


def has_rates_by_layer(settings: OptimizerFields) -> bool:
    """Whether some parameters have another learning rate than `config.optimizer.learning_rate`."""
    return settings.head_learning_rate is not None or settings.layer_decay is not None


def build(
    settings: OptimizerFields,
    values: Hyperparameters,
    *,
    num_epochs: int,
    steps_per_epoch: int,
    distances: Any = None,
    norm: Norm = optax.tree.norm,
) -> Optimizer:
    """The optimizer that `config.optimizer` asks for.

    Args:
        settings: `config.optimizer`; the fields that are constants are taken from it.
        values: what `hyperparameters` returned; they may be traced.
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one epoch.
        distances: for each parameter, how many layers it is below the head, as
            `train.models.layers_by_depth` counts them. Needed only with `has_rates_by_layer`.
        norm: computes the norm of the gradient; a device may have a part of it.
    """
    rate = schedule(
        settings, values["learning_rate"], num_epochs=num_epochs, steps_per_epoch=steps_per_epoch
    )
    # The gradient is clipped before the weight decay is added.
    clip = [_clip(values["clip_norm"], norm)] if "clip_norm" in values else []
    decayed = None if settings.decay_biases_and_norms else _is_kernel
    parts = OPTIMIZERS[settings.name](rate, values, settings.nesterov, decayed)
    by_layer = [_times_relative_rates(values, distances)] if has_rates_by_layer(settings) else []
    return Optimizer(optax.chain(*clip, *parts, *by_layer), rate)


def _clip(largest: jax.Array, norm: Norm) -> optax.GradientTransformation:
    """Like `optax.clip_by_global_norm`, with any function for the norm."""

    def clipped(updates: Any, _params: Any) -> Any:
        found = norm(updates)
        return jax.tree.map(
            lambda update: jax.lax.select(found < largest, update, update / found * largest),
            updates,
        )

    return optax.stateless(clipped)


def _is_kernel(params: Any) -> Any:
    """True for the parameters of two or more axes; biases and the scales of norms have one."""
    return jax.tree.map(lambda parameter: parameter.ndim > 1, params)


def _times_relative_rates(values: Hyperparameters, distances: Any) -> optax.GradientTransformation:
    """Multiplies each update by the rate of its layer, in units of the learning rate.

    The updates of every optimizer are proportional to its rate, also those that come from the
    weight decay and the momentum: the same as an optimizer of its own for each rate, without the
    state of several.
    """
    head = values.get("head_rate_ratio", 1.0)
    decay = values.get("layer_decay", 1.0)

    def scaled(distance: int, update: jax.Array) -> jax.Array:
        return update * (decay**distance if distance else head)

    return optax.stateless(lambda updates, _params: jax.tree.map(scaled, distances, updates))


def schedule(
    settings: OptimizerFields, learning_rate: Any, *, num_epochs: int, steps_per_epoch: int
) -> optax.Schedule:
    """The learning rate by step that `config.optimizer` asks for."""
    if settings.schedule == "cosine":
        decaying = cosine_decay(learning_rate, num_steps=num_epochs * steps_per_epoch)
    else:
        decaying = step_decay(
            learning_rate,
            decay_epochs=settings.decay_epochs,
            decay_factor=settings.decay_factor,
            steps_per_epoch=steps_per_epoch,
        )
    warmup = warmup_epochs(settings, num_epochs)
    return with_warmup(decaying, warmup_steps=round(warmup * steps_per_epoch))


def warmup_epochs(settings: OptimizerFields, num_epochs: int) -> float:
    """The epochs of the warm-up: half of the run if it would take all of it.

    So a recipe with a warm-up of an epoch can be tried for one epoch.
    """
    asked = settings.warmup_epochs
    return asked if asked < num_epochs else num_epochs / 2


def step_decay(
    learning_rate: Any, *, decay_epochs: Sequence[int], decay_factor: float, steps_per_epoch: int
) -> optax.Schedule:
    """The learning rate by step, multiplied by the factor at each listed epoch (from 0)."""
    boundaries = {
        epoch * steps_per_epoch: decay_factor
        for epoch in decay_epochs
        # No run comes to a later step, and JAX could not count to it.
        if epoch * steps_per_epoch <= MOST_STEPS
    }
    return optax.piecewise_constant_schedule(learning_rate, boundaries)


def cosine_decay(learning_rate: Any, *, num_steps: int) -> optax.Schedule:
    """The learning rate by step: half a cosine, from the rate at step 0 to 0 after the last."""
    return optax.cosine_decay_schedule(learning_rate, num_steps)


def with_warmup(schedule: optax.Schedule, *, warmup_steps: int) -> optax.Schedule:
    """The schedule times (step + 1) / warmup_steps until that is 1; it does not shift decays."""
    if warmup_steps == 0:
        return schedule
    # From 1 / warmup_steps: a step at the rate 0 would change nothing.
    factor = optax.linear_schedule(1 / warmup_steps, 1.0, max(1, warmup_steps - 1))
    return lambda step: factor(step) * schedule(step)


def _sgd(rate: optax.Schedule, values: Hyperparameters, nesterov: bool, decayed: Mask) -> Parts:
    """SGD as the papers use it: the weight decay is added to the gradient before the momentum."""
    return (
        optax.add_decayed_weights(values["weight_decay"], decayed),
        optax.sgd(rate, momentum=values["momentum"], nesterov=nesterov),
    )


def _rmsprop(rate: optax.Schedule, values: Hyperparameters, nesterov: bool, decayed: Mask) -> Parts:
    """RMSProp; the weight decay is added to the gradient, as in SGD."""
    decay = {"decay": values["beta2"]} if "beta2" in values else {}
    return (
        optax.add_decayed_weights(values["weight_decay"], decayed),
        optax.rmsprop(rate, momentum=values["momentum"], nesterov=nesterov, **decay),
    )


def _lars(rate: optax.Schedule, values: Hyperparameters, nesterov: bool, decayed: Mask) -> Parts:
    """LARS (You et al. 2017), for large batches."""
    settings = {"momentum": values["momentum"], "nesterov": nesterov}
    # Its default for the mask is True, for all of them.
    mask = True if decayed is None else decayed
    return (optax.lars(rate, values["weight_decay"], mask, **settings),)


def _decoupled(optimizer: Callable[..., optax.GradientTransformation]) -> Entry:
    """An entry for an optimizer with two moments, whose weight decay is not in the gradient."""

    def build(
        rate: optax.Schedule, values: Hyperparameters, _nesterov: bool, decayed: Mask
    ) -> Parts:
        beta2 = {"b2": values["beta2"]} if "beta2" in values else {}
        settings = {"b1": values["momentum"], "weight_decay": values["weight_decay"], **beta2}
        return (optimizer(rate, mask=decayed, **settings),)

    return build


OPTIMIZERS: dict[str, Entry] = {
    "sgd": _sgd,
    "adamw": _decoupled(optax.adamw),
    "lamb": _decoupled(optax.lamb),
    "lars": _lars,
    "lion": _decoupled(optax.lion),
    "rmsprop": _rmsprop,
}
# These divide by the norm of the weights of each layer. A device must have all of them.
NEED_WHOLE_LAYERS = ("lamb", "lars")
