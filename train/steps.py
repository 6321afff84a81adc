"""A step of training and one of evaluation: pure functions of arrays, for a device of an axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from train import randomness
from train.objectives import Objective
from train.state import TrainState

Arrays = dict[str, jax.Array]
Preprocess = Callable[[jax.Array], jax.Array]


def make_train_step(
    apply: Callable[..., Any],
    objective: Objective,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    *,
    augment: Callable[[jax.Array, jax.Array], jax.Array],
    normalize: Preprocess,
    seed: int,
    axis_name: str,
) -> Callable[[TrainState, Arrays], tuple[TrainState, Arrays]]:
    """Makes `(state, batch) -> (state, metrics)`, to run on every device of the axis at once.

    Args:
        apply: the model's apply function.
        objective: the loss.
        optimizer: the optimiser.
        schedule: the learning rate by step, for the report.
        augment: changes one uint8 image with one random key.
        normalize: uint8 images to the model's input.
        seed: the run's seed.
        axis_name: the axis over devices; each holds an equal share of the batch.
    """

    def train_step(state: TrainState, batch: Arrays) -> tuple[TrainState, Arrays]:
        labels, positions = batch["labels"], batch["positions"]
        augmentation_keys = randomness.augmentation_keys(seed, state.step, positions)
        images = normalize(jax.vmap(augment)(augmentation_keys, batch["images"]))
        loss_keys = randomness.loss_keys(seed, state.step, positions)

        def mean_loss(params: Any) -> tuple[jax.Array, tuple[Any, Any]]:
            outputs, updates = apply(
                {"params": params, "batch_stats": state.batch_stats},
                images,
                train=True,
                mutable=["batch_stats"],
            )
            loss = objective.loss(outputs, labels, loss_keys).mean()
            return loss, (outputs, updates["batch_stats"])

        (loss, (outputs, batch_stats)), gradients = jax.value_and_grad(mean_loss, has_aux=True)(
            state.params
        )
        gradients = jax.lax.pmean(gradients, axis_name)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        metrics = {
            "loss": loss,
            "accuracy": (objective.scores(outputs).argmax(axis=-1) == labels).mean(
                dtype=jnp.float32
            ),
        }
        metrics = jax.lax.pmean(metrics, axis_name)
        metrics["learning_rate"] = jnp.asarray(schedule(state.step), jnp.float32)
        state = TrainState(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            batch_stats=batch_stats,
            opt_state=opt_state,
        )
        return state, metrics

    return train_step


def make_eval_step(
    apply: Callable[..., Any], objective: Objective, *, normalize: Preprocess
) -> Callable[[Any, Any, Arrays], Arrays]:
    """Makes `(params, batch_stats, batch) -> {"loss": [n], "scores": [n, L]}`."""

    def eval_step(params: Any, batch_stats: Any, batch: Arrays) -> Arrays:
        outputs = apply(
            {"params": params, "batch_stats": batch_stats}, normalize(batch["images"]), train=False
        )
        return {
            "loss": objective.evaluation_loss(outputs, batch["labels"]),
            "scores": objective.scores(outputs),
        }

    return eval_step
