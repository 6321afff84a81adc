"""A step of training and one of evaluation: pure functions of arrays, for a device of an axis."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from topk_jax.metrics import label_ranks
from train.devices.class_axis import ALL_CLASSES, ClassAxis
from train.devices.parameter_axis import ParameterAxis
from train.models.rematerialization import gathering_in_blocks, rematerialized
from train.training import (
    class_weights,
    label_estimates,
    mixup,
    objectives,
    randomness,
    truth,
)
from train.training.objectives import Hyperparameters, Objective
from train.training.optimizer import Optimizer
from train.training.state import TrainState, trained_parts
from train.training.truth import Truth

Arrays = dict[str, jax.Array]
Preprocess = Callable[[jax.Array], jax.Array]


def make_train_step(
    apply: Callable[..., Any],
    make_objective: Callable[[Hyperparameters], Objective],
    make_optimizer: Callable[[Hyperparameters], Optimizer],
    *,
    augment: Callable[[jax.Array, jax.Array], jax.Array],
    normalize: Preprocess,
    shared: ParameterAxis,
    sync_batch_norm: bool = True,
    accumulation_steps: int = 1,
    remat: bool = False,
    frozen: Collection[str] = (),
) -> Callable[[TrainState, Any, Arrays], tuple[TrainState, Arrays]]:
    """Makes `(state, hyperparameters, batch) -> (state, metrics)`, to run on every device at once.

    The hyperparameters are `{"seed", "loss", "optimizer"}`; the last two are passed to the
    arguments below. If labels are estimated, there is also "label_rate_ratio": the rate of the
    estimates divided by the rate of the network; they decay together. With "mixup_alpha" among
    them, examples are mixed; see `mixup`. With "class_weights" among them, losses are weighted by
    class; see `class_weights`. They are inputs, so that runs that differ by a seed or a rate share
    one program.

    Args:
        apply: the model's apply function.
        make_objective: makes the loss from its hyperparameters.
        make_optimizer: makes the optimizer from its hyperparameters. With "average_decay" among
            them, the moving averages in the state are updated.
        augment: changes one image with one random key.
        normalize: a batch of images or features to the model's input.
        shared: the axis over devices, each of which holds an equal share of the batch, with what
            they share of the parameters. If other devices split the classes, the model and the loss
            compute the classes of one device.
        sync_batch_norm: whether the model's batch norm sees the batch of all devices; otherwise
            their statistics are averaged after the step, for evaluation.
        accumulation_steps: the parts that the batch is computed in, one after another.
        remat: whether the backward pass computes the activations inside blocks again.
        frozen: the parts of the network, by the names of their parameters, that stay as they are.
            Their gradients are not computed.
    """
    class_axis = shared.class_axis

    def gradients_of(
        params: Any,
        batch_stats: Any,
        step: jax.Array,
        hyperparameters: Any,
        batch: Arrays,
        estimates: Any,
    ) -> tuple[Any, Any, Any, Arrays]:
        """The gradients by trained parameters and label estimates, the statistics, the metrics."""
        seed, objective = hyperparameters["seed"], make_objective(hyperparameters["loss"])
        positions = batch["positions"]
        inputs, of_truth = _prepare_inputs(
            batch, step, hyperparameters, augment=augment, normalize=normalize
        )
        loss_keys = randomness.loss_keys(seed, step, positions)

        def network(params: Any) -> tuple[Any, Any]:
            outputs, updates = apply(
                {"params": params, "batch_stats": batch_stats},
                inputs,
                train=True,
                mutable=["batch_stats"],
                rngs={"dropout": randomness.dropout_key(seed, step, positions)},
            )
            return outputs, updates["batch_stats"]

        def mean_loss(outputs: Any, estimates: Any) -> jax.Array:
            return of_truth(
                lambda examples: objective.of_examples(
                    outputs,
                    examples,
                    loss_keys,
                    estimates,
                    lambda losses, labels: class_weights.weigh(
                        losses, labels, hyperparameters, step, class_axis
                    ),
                )
            ).mean()

        # In two stages, because the gradient between them is a metric.
        outputs, pull_back, new_batch_stats = jax.vjp(
            lambda trained: _of_parts(network, shared, remat=remat)({**params, **trained}),
            trained_parts(params, frozen),
            has_aux=True,
        )
        loss, (by_outputs, by_estimates) = jax.value_and_grad(mean_loss, argnums=(0, 1))(
            outputs, estimates
        )
        by_outputs = class_axis.of_one_loss(by_outputs)
        (by_params,) = pull_back(by_outputs)
        hits = of_truth(partial(truth.expect, partial(_is_first, outputs, class_axis)))
        nonzero = class_axis.sum(jnp.count_nonzero(objectives.class_logits(by_outputs), axis=-1))
        metrics = {
            "loss": loss,
            "accuracy": hits.mean(),
            "nonzero_gradients": nonzero.mean(dtype=jnp.float32),
        }
        return by_params, by_estimates, new_batch_stats, metrics

    def accumulated(
        state: TrainState, hyperparameters: Any, batch: Arrays
    ) -> tuple[Any, Any, Arrays]:
        """Like `gradients_of`: the means over parts of the batch."""
        parts = _in_parts(batch, accumulation_steps, in_pairs="mixup_alpha" in hyperparameters)

        def add(carried: tuple[Any, Any], part: Arrays) -> tuple[tuple[Any, Any], Arrays]:
            gradients, batch_stats = carried
            by_params, _, batch_stats, metrics = gradients_of(
                state.params, batch_stats, state.step, hyperparameters, part, None
            )
            return (jax.tree.map(jnp.add, gradients, by_params), batch_stats), metrics

        zeros = jax.tree.map(jnp.zeros_like, trained_parts(state.params, frozen))
        (total, batch_stats), metrics = jax.lax.scan(add, (zeros, state.batch_stats), parts)
        gradients = jax.tree.map(lambda gradient: gradient / accumulation_steps, total)
        return gradients, batch_stats, jax.tree.map(lambda values: values.mean(axis=0), metrics)

    def train_step(
        state: TrainState, hyperparameters: Any, batch: Arrays
    ) -> tuple[TrainState, Arrays]:
        optimizer = make_optimizer(hyperparameters["optimizer"])
        label_logits = state.label_logits
        if accumulation_steps > 1:
            gradients, batch_stats, metrics = accumulated(state, hyperparameters, batch)
        else:
            rows = None if label_logits is None else label_logits[batch["examples"]]
            gradients, by_rows, batch_stats, metrics = gradients_of(
                state.params, state.batch_stats, state.step, hyperparameters, batch, rows
            )
        gradients, metrics = shared.mean(class_axis.of_all_classes(gradients), metrics)
        if not sync_batch_norm:
            moved = jax.lax.pmean(trained_parts(batch_stats, frozen), shared.name)
            batch_stats = {**batch_stats, **moved}
        trained = trained_parts(state.params, frozen)
        updates, opt_state = optimizer.transformation.update(gradients, state.opt_state, trained)
        params = {**state.params, **optax.apply_updates(trained, updates)}
        learning_rate = jnp.asarray(optimizer.schedule(state.step), jnp.float32)
        if label_logits is not None:
            label_logits = label_estimates.update(
                label_logits,
                batch["examples"],
                by_rows,
                hyperparameters["label_rate_ratio"] * learning_rate,
                axis_name=shared.name,
            )
        averages = state.averages
        if averages is not None:
            averages = _move_averages(
                averages,
                {"params": params, "batch_stats": batch_stats},
                state.step,
                hyperparameters["optimizer"]["average_decay"],
                frozen,
            )
        metrics |= {
            "learning_rate": learning_rate,
            "gradient_norm": shared.norm(gradients),
            "update_norm": shared.norm(updates),
            "parameter_norm": shared.norm(params),
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


def _in_parts(batch: Arrays, number: int, *, in_pairs: bool) -> Arrays:
    """The arrays [m, ...] of a batch in n parts, [n, m / n, ...].

    Part i has examples i, i + n, i + 2n, …, or these pairs of neighbours: so neither the parts nor
    the pairs that `mixup` mixes depend on the number of devices, or the pairs on n.
    """
    together = mixup.PAIR if in_pairs else 1

    def divided(array: jax.Array) -> jax.Array:
        units = array.reshape(-1, number, together, *array.shape[1:])
        return units.swapaxes(0, 1).reshape(number, -1, *array.shape[1:])

    return {name: divided(array) for name, array in batch.items()}


def _of_parts(
    network: Callable[[Any], Any], shared: ParameterAxis, *, remat: bool
) -> Callable[[Any], Any]:
    """A function of complete parameters as one of what a device has of them."""
    if shared.split:
        return gathering_in_blocks(network, shared.gather_one, remat=remat)
    return rematerialized(network) if remat else network


def _prepare_inputs(
    batch: Arrays,
    step: jax.Array,
    hyperparameters: Any,
    *,
    augment: Callable[[jax.Array, jax.Array], jax.Array],
    normalize: Preprocess,
) -> tuple[jax.Array, mixup.OfTruth]:
    """The inputs of the network for a batch, and the values of functions of their truth."""
    seed, examples, positions = hyperparameters["seed"], truth.of_batch(batch), batch["positions"]
    keys = randomness.augmentation_keys(seed, step, positions)
    inputs = normalize(jax.vmap(augment)(keys, batch["images"]))
    if "mixup_alpha" not in hyperparameters:
        return inputs, lambda function: function(examples)
    keys = randomness.mixup_keys(seed, step, positions)
    return mixup.mix(keys, hyperparameters["mixup_alpha"], inputs, examples)


def _move_averages(
    averages: Any, new: Any, step: jax.Array, decay: jax.Array, frozen: Collection[str]
) -> Any:
    """The averages moved towards new values, faster at first: the start is soon forgotten."""
    made = step.astype(jnp.float32)
    kept = jnp.minimum(decay, (1 + made) / (10 + made))

    def moved(old: Any, new: Any) -> Any:
        return jax.tree.map(
            lambda old, new: new + kept * (old - new),
            trained_parts(old, frozen),
            trained_parts(new, frozen),
        )

    return {name: {**old, **moved(old, new[name])} for name, old in averages.items()}


def make_eval_step(
    apply: Callable[..., Any],
    make_objective: Callable[[Hyperparameters], Objective],
    *,
    normalize: Preprocess,
    class_axis: ClassAxis = ALL_CLASSES,
    gather: Callable[[Any], Any] = lambda parameters: parameters,
) -> Callable[[Any, Any, Any, Arrays], Arrays]:
    """Makes `(params, batch_stats, hyperparameters, batch) -> {"loss", "scores", "ranks"}`.

    The loss is [n], the scores are [n, L], and the ranks of the labels are [n]. If the truth is
    more than one class, "class_ranks" [n, m] are the ranks of all of these. The hyperparameters are
    the same as in the training step. Along `class_axis` the model, the loss and the scores are of
    the classes of one device. `gather` makes complete parameters of those that a device has.
    """

    def eval_step(params: Any, batch_stats: Any, hyperparameters: Any, batch: Arrays) -> Arrays:
        objective = make_objective(hyperparameters["loss"])
        outputs = apply(
            {"params": gather(params), "batch_stats": batch_stats},
            normalize(batch["images"]),
            train=False,
        )
        # Without the barrier XLA may compute a logit once per use, with two roundings, and the
        # ranks would be of other logits than the scores.
        outputs = jax.lax.optimization_barrier(outputs)
        examples: Truth = truth.of_batch(batch)
        found = {
            "loss": objective.evaluation_losses(outputs, examples),
            "scores": objective.scores(outputs),
            "ranks": _label_ranks(outputs, batch["labels"], class_axis),
        }
        if "classes" in examples:
            found["class_ranks"] = jax.vmap(
                lambda labels: _label_ranks(outputs, labels, class_axis), in_axes=1, out_axes=1
            )(examples["classes"])
        return found

    return eval_step


def _is_first(outputs: Any, class_axis: ClassAxis, labels: jax.Array) -> jax.Array:
    return (_label_ranks(outputs, labels, class_axis) == 0).astype(jnp.float32)


def _label_ranks(outputs: Any, labels: jax.Array, class_axis: ClassAxis) -> jax.Array:
    logits = objectives.class_logits(outputs)
    return label_ranks(logits, labels, class_axis_name=class_axis.name)
