"""Optimizers by name, and the learning rate by step."""

from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from train.configuration import OptimizerFields, declaring
from train.training.objectives import Hyperparameters

# The compiled step counts in 32 bits.
_MOST_STEPS = 2**31 - 1
# These do not have the weight decay in the gradient.
_DECOUPLED = {"adamw": optax.adamw, "lamb": optax.lamb, "lion": optax.lion}


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
) -> Optimizer:
    """The optimizer that `config.optimizer` asks for.

    Args:
        settings: `config.optimizer`; the fields that are constants are taken from it.
        values: what `hyperparameters` returned; they may be traced.
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one epoch.
        distances: for each parameter, how many layers it is below the head, as
            `train.models.layers_by_depth` counts them. Needed only with `has_rates_by_layer`.
    """
    rate = schedule(
        settings, values["learning_rate"], num_epochs=num_epochs, steps_per_epoch=steps_per_epoch
    )
    chained = _rule(settings, rate, values)
    if "clip_norm" in values:
        # Before the weight decay is added.
        chained = (optax.clip_by_global_norm(values["clip_norm"]), *chained)
    if has_rates_by_layer(settings):
        chained = (*chained, _times_relative_rates(values, distances))
    return Optimizer(optax.chain(*chained), rate)


def _rule(
    settings: OptimizerFields, rate: optax.Schedule, values: Hyperparameters
) -> tuple[optax.GradientTransformation, ...]:
    """What the optimizer of a name chains."""
    decay, momentum = values["weight_decay"], values["momentum"]
    decayed = None if settings.decay_biases_and_norms else _is_kernel
    if settings.name in _DECOUPLED:
        beta2 = {"b2": values["beta2"]} if "beta2" in values else {}
        made = _DECOUPLED[settings.name](
            rate, b1=momentum, weight_decay=decay, mask=decayed, **beta2
        )
        return (made,)
    moved = {"momentum": momentum, "nesterov": settings.nesterov}
    if settings.name == "lars":
        # For large batches (You et al. 2017). Its default for the mask is True, for all of them.
        return (optax.lars(rate, decay, True if decayed is None else decayed, **moved),)
    if settings.name == "rmsprop" and "beta2" in values:
        moved["decay"] = values["beta2"]
    made = {"sgd": optax.sgd, "rmsprop": optax.rmsprop}[settings.name](rate, **moved)
    # As the papers use SGD: the weight decay is added to the gradient before the momentum.
    return (optax.add_decayed_weights(decay, decayed), made)


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
        # Half a cosine, from the rate at step 0 to 0 after the last.
        decaying = optax.cosine_decay_schedule(learning_rate, num_epochs * steps_per_epoch)
    else:
        steps = [epoch * steps_per_epoch for epoch in settings.decay_epochs]
        # No run comes to a later step, and JAX could not count to it.
        factors = {step: settings.decay_factor for step in steps if step <= _MOST_STEPS}
        decaying = optax.piecewise_constant_schedule(learning_rate, factors)
    warmup_steps = round(warmup_epochs(settings, num_epochs) * steps_per_epoch)
    if warmup_steps == 0:
        return decaying
    # The warm-up does not shift decays. It rises from 1 / its steps: a step at the rate 0 would
    # change nothing.
    factor = optax.linear_schedule(1 / warmup_steps, 1.0, max(1, warmup_steps - 1))
    return lambda step: factor(step) * decaying(step)


def warmup_epochs(settings: OptimizerFields, num_epochs: int) -> float:
    """The epochs of the warm-up: half of the run if it would take all of it.

    So a recipe with a warm-up of an epoch can be tried for one epoch.
    """
    asked = settings.warmup_epochs
    return asked if asked < num_epochs else num_epochs / 2
