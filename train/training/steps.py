"""A step of training and one of evaluation: pure functions of arrays, for a device of an axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from train.evaluation.ranking import label_ranks
from train.training import label_estimates, objectives, randomness
from train.training.objectives import Objective
from train.training.state import TrainState

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
    sync_batch_norm: bool = True,
    accumulation_steps: int = 1,
    average_decay: float | None = None,
    label_schedule: optax.Schedule | None = None,
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
        sync_batch_norm: whether the model's batch norm sees the batch of all devices; otherwise
            their statistics are averaged after the step, for evaluation.
        accumulation_steps: the parts that the batch is computed in, one after another.
        average_decay: the decay of the moving averages in the state; None where it has none.
        label_schedule: the learning rate of the estimated labels in the state, by step; None where
            it has none.
    """

    def gradients_of(
        params: Any, batch_stats: Any, step: jax.Array, batch: Arrays, label_logits: Any
    ) -> tuple[Any, Any, Any, Arrays]:
        """The gradients by parameters and label logits, the new statistics, and the metrics."""
        labels, positions = batch["labels"], batch["positions"]
        augmentation_keys = randomness.augmentation_keys(seed, step, positions)
        images = normalize(jax.vmap(augment)(augmentation_keys, batch["images"]))
        loss_keys = randomness.loss_keys(seed, step, positions)

        def network(params: Any) -> tuple[Any, Any]:
            outputs, updates = apply(
                {"params": params, "batch_stats": batch_stats},
                images,
                train=True,
                mutable=["batch_stats"],
            )
            return outputs, updates["batch_stats"]

        def mean_loss(outputs: Any, label_logits: Any) -> jax.Array:
            return objective.loss(outputs, labels, loss_keys, label_logits).mean()

        # In two stages, for the gradient between them is a metric.
        outputs, pull_back, new_batch_stats = jax.vjp(network, params, has_aux=True)
        loss, (by_outputs, by_label_logits) = jax.value_and_grad(mean_loss, argnums=(0, 1))(
            outputs, label_logits
        )
        (by_params,) = pull_back(by_outputs)
        hits = objective.scores(outputs).argmax(axis=-1) == labels
        nonzero = jnp.count_nonzero(objectives.label_logits(by_outputs), axis=-1)
        metrics = {
            "loss": loss,
            "accuracy": hits.mean(dtype=jnp.float32),
            "nonzero_gradients": nonzero.mean(dtype=jnp.float32),
        }
        return by_params, by_label_logits, new_batch_stats, metrics

    def accumulated(state: TrainState, batch: Arrays) -> tuple[Any, Any, Arrays]:
        """As `gradients_of`, the means over parts of the batch."""
        # A part has every so many-th example, so that it is the same on any number of devices.
        parts = {
            name: array.reshape(-1, accumulation_steps, *array.shape[1:]).swapaxes(0, 1)
            for name, array in batch.items()
        }

        def add(carried: tuple[Any, Any], part: Arrays) -> tuple[tuple[Any, Any], Arrays]:
            gradients, batch_stats = carried
            by_params, _, batch_stats, metrics = gradients_of(
                state.params, batch_stats, state.step, part, None
            )
            return (jax.tree.map(jnp.add, gradients, by_params), batch_stats), metrics

        zeros = jax.tree.map(jnp.zeros_like, state.params)
        (total, batch_stats), metrics = jax.lax.scan(add, (zeros, state.batch_stats), parts)
        gradients = jax.tree.map(lambda gradient: gradient / accumulation_steps, total)
        return gradients, batch_stats, jax.tree.map(lambda values: values.mean(axis=0), metrics)

    def train_step(state: TrainState, batch: Arrays) -> tuple[TrainState, Arrays]:
        label_logits = state.label_logits
        if accumulation_steps > 1:
            gradients, batch_stats, metrics = accumulated(state, batch)
        else:
            rows = None if label_logits is None else label_logits[batch["examples"]]
            gradients, by_rows, batch_stats, metrics = gradients_of(
                state.params, state.batch_stats, state.step, batch, rows
            )
        gradients, metrics = jax.lax.pmean((gradients, metrics), axis_name)
        if not sync_batch_norm:
            batch_stats = jax.lax.pmean(batch_stats, axis_name)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        if label_schedule is not None:
            label_logits = label_estimates.update(
                label_logits,
                batch["examples"],
                by_rows,
                label_schedule(state.step),
                axis_name=axis_name,
            )
        averages = state.averages
        if average_decay is not None:
            averages = _moved_averages(averages, params, batch_stats, state.step, average_decay)
        metrics |= {
            "learning_rate": jnp.asarray(schedule(state.step), jnp.float32),
            "gradient_norm": optax.tree.norm(gradients),
            "update_norm": optax.tree.norm(updates),
            "parameter_norm": optax.tree.norm(params),
        }
        state = TrainState(
            step=state.step + 1,
            params=params,
            batch_stats=batch_stats,
            opt_state=opt_state,
            averages=averages,
            label_logits=label_logits,
        )
        return state, metrics

    return train_step


def _moved_averages(
    averages: Any, params: Any, batch_stats: Any, step: jax.Array, decay: float
) -> Any:
    """The averages moved towards new values, faster at first: the start is soon forgotten."""
    made = step.astype(jnp.float32)
    kept = jnp.minimum(decay, (1 + made) / (10 + made))
    new = {"params": params, "batch_stats": batch_stats}
    return jax.tree.map(lambda old, new: new + kept * (old - new), averages, new)


def make_eval_step(
    apply: Callable[..., Any], objective: Objective, *, normalize: Preprocess
) -> Callable[[Any, Any, Arrays], Arrays]:
    """Makes `(params, batch_stats, batch) -> {"loss": [n], "scores": [n, L], "ranks": [n]}`."""

    def eval_step(params: Any, batch_stats: Any, batch: Arrays) -> Arrays:
        outputs = apply(
            {"params": params, "batch_stats": batch_stats}, normalize(batch["images"]), train=False
        )
        # Once: computed for each use, a logit could be rounded in two ways, and come before itself.
        outputs = jax.lax.optimization_barrier(outputs)
        return {
            "loss": objective.evaluation_loss(outputs, batch["labels"]),
            "scores": objective.scores(outputs),
            "ranks": label_ranks(objectives.label_logits(outputs), batch["labels"]),
        }

    return eval_step
