"""A step of training and one of evaluation: of the global batch, or of a device's share of it."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from topk_jax.metrics import label_ranks
from train.devices.devices import Devices, JitDevices
from train.models.classifier import Classifier
from train.models.rematerialization import gathering_in_blocks, rematerialized
from train.training import class_weights, label_estimates, objectives, randomness, truth
from train.training.objectives import Hyperparameters, Objective
from train.training.optimizer import Optimizer
from train.training.state import TrainState, trained_parts

Arrays = dict[str, jax.Array]
Preprocess = Callable[[jax.Array], jax.Array]


def make_train_step(
    model: Classifier,
    make_objective: Callable[[Hyperparameters], Objective],
    make_optimizer: Callable[[Hyperparameters], Optimizer],
    *,
    augment: Callable[[jax.Array, jax.Array], jax.Array],
    normalize: Preprocess,
    devices: Devices,
    parts: int = 1,
    remat: bool = False,
    frozen: Collection[str] = (),
) -> Callable[[TrainState, Any, Arrays], tuple[TrainState, Arrays]]:
    """Makes `(state, hyperparameters, batch) -> (state, metrics)`, to be compiled for devices.

    The hyperparameters are inputs, so that runs that differ by a seed or a rate share one program:
    "seed", "loss" and "optimizer", which the arguments below get. There may be "label_rate_ratio"
    for estimated labels (their rate divided by the network's), "mixup_alpha" and "class_weights".
    The batch may have a "request" of each device; the largest is among the metrics.

    Args:
        model: the network.
        make_objective: makes the loss from its hyperparameters.
        make_optimizer: makes the optimizer from its hyperparameters. With "average_decay" among
            them, the moving averages in the state are updated.
        augment: changes one image with one random key.
        normalize: a batch of images or features to the model's input.
        devices: those that the step is for. If they have an `axis`, the batch is a device's share,
            and gradients, statistics and metrics are averaged over this axis.
        parts: the parts that the batch is computed in, one after another.
        remat: whether the backward pass computes the activations inside blocks again.
        frozen: the parts of the network, by the names of their parameters, that stay as they are.
            Their gradients are not computed.
    """
    apply = _make_apply(model, devices, remat=remat)
    prepare = partial(_prepare_inputs, augment=augment, normalize=normalize)

    def gradients_of(
        state: TrainState, batch_stats: Any, hyperparameters: Any, batch: Arrays, estimates: Any
    ) -> tuple[Any, Any, Any, Arrays]:
        """The gradients by trained parameters and by estimates, the statistics, the metrics."""
        objective, seed = make_objective(hyperparameters["loss"]), hyperparameters["seed"]
        positions, step = batch["positions"], state.step
        inputs, of_truth = prepare(batch, step, hyperparameters)

        def network(trained: Any) -> tuple[Any, Any]:
            outputs, updates = apply(
                {"params": {**state.params, **trained}, "batch_stats": batch_stats},
                inputs,
                train=True,
                mutable=["batch_stats"],
                rngs={"dropout": randomness.dropout_key(seed, step, positions)},
            )
            return devices.of_batch(outputs), updates["batch_stats"]

        def mean_loss(outputs: Any, estimates: Any) -> jax.Array:
            keys = randomness.loss_keys(seed, step, positions)
            weigh = partial(class_weights.weigh, values=hyperparameters, step=step)
            return of_truth(
                lambda truths: objective.of_examples(outputs, truths, keys, estimates, weigh)
            ).mean()

        # In two stages, because the gradient between them is a metric.
        outputs, pull_back, new_stats = jax.vjp(
            rematerialized(network) if remat and not devices.splits_parameters else network,
            trained_parts(state.params, frozen),
            has_aux=True,
        )
        loss, (by_outputs, by_estimates) = jax.value_and_grad(mean_loss, argnums=(0, 1))(
            outputs, estimates
        )
        (by_params,) = pull_back(by_outputs)
        return by_params, by_estimates, new_stats, _metrics(loss, outputs, by_outputs, of_truth)

    def train_step(
        state: TrainState, hyperparameters: Any, batch: Arrays
    ) -> tuple[TrainState, Arrays]:
        request = {"request": batch["request"].max()} if "request" in batch else {}
        batch = {name: array for name, array in batch.items() if name != "request"}
        label_logits = state.label_logits
        if parts > 1:
            divided = _in_parts(batch, parts, in_pairs="mixup_alpha" in hyperparameters)
            zeros = jax.tree.map(jnp.zeros_like, trained_parts(state.params, frozen))
            of_part = partial(gradients_of, state, hyperparameters=hyperparameters, estimates=None)
            found = _mean_over_parts(of_part, zeros, state.batch_stats, divided, parts)
        else:
            rows = None if label_logits is None else label_logits[batch["examples"]]
            found = gradients_of(state, state.batch_stats, hyperparameters, batch, rows)
        gradients, by_rows, batch_stats, metrics = found
        moved = trained_parts(batch_stats, frozen)
        if devices.axis is not None:
            gradients, moved, metrics = jax.lax.pmean((gradients, moved, metrics), devices.axis)
            request = jax.lax.pmax(request, devices.axis)
        batch_stats = {**batch_stats, **moved}

        optimizer = make_optimizer(hyperparameters["optimizer"])
        trained = trained_parts(state.params, frozen)
        updates, opt_state = optimizer.transformation.update(gradients, state.opt_state, trained)
        params = {**state.params, **optax.apply_updates(trained, updates)}
        learning_rate = jnp.asarray(optimizer.schedule(state.step), jnp.float32)
        if label_logits is not None:
            rate = hyperparameters["label_rate_ratio"] * learning_rate
            label_logits = label_estimates.update(
                label_logits, batch["examples"], by_rows, rate, axis_name=devices.axis
            )
        averages = state.averages
        if averages is not None:
            new, values = (
                {"params": params, "batch_stats": batch_stats},
                hyperparameters["optimizer"],
            )
            averages = _move_averages(averages, new, state.step, values["average_decay"], frozen)
        metrics |= {
            "learning_rate": learning_rate,
            "gradient_norm": optax.tree.norm(gradients),
            "update_norm": optax.tree.norm(updates),
            "parameter_norm": optax.tree.norm(params),
            **request,
        }
        step = state.step + 1
        return TrainState(step, params, batch_stats, opt_state, averages, label_logits), metrics

    return train_step


def _make_apply(model: Classifier, devices: Devices, *, remat: bool) -> Callable[..., Any]:
    if isinstance(devices, JitDevices) and devices.splits_parameters:
        return gathering_in_blocks(
            model.apply, gather=devices.gather, rows=devices.rows, remat=remat
        )
    return model.apply


def _prepare_inputs(
    batch: Arrays,
    step: jax.Array,
    hyperparameters: Any,
    *,
    augment: Callable[[jax.Array, jax.Array], jax.Array],
    normalize: Preprocess,
) -> tuple[jax.Array, truth.OfTruth]:
    """The inputs of the network for a batch, and the values of functions of their truth."""
    seed, examples, positions = hyperparameters["seed"], truth.of_batch(batch), batch["positions"]
    keys = randomness.augmentation_keys(seed, step, positions)
    inputs = normalize(jax.vmap(augment)(keys, batch["images"]))
    if "mixup_alpha" not in hyperparameters:
        return inputs, lambda function: function(examples)
    keys = randomness.mixup_keys(seed, step, positions)
    return truth.mix(keys, hyperparameters["mixup_alpha"], inputs, examples)


def _metrics(loss: jax.Array, outputs: Any, by_outputs: Any, of_truth: truth.OfTruth) -> Arrays:
    logits = objectives.class_logits(outputs)
    is_first = partial(truth.expect, lambda labels: jnp.float32(label_ranks(logits, labels) == 0))
    nonzero = jnp.count_nonzero(objectives.class_logits(by_outputs), axis=-1)
    return {
        "loss": loss,
        "accuracy": of_truth(is_first).mean(),
        "nonzero_gradients": nonzero.mean(dtype=jnp.float32),
    }


def _in_parts(batch: Arrays, number: int, *, in_pairs: bool) -> Arrays:
    """The arrays [m, ...] of a batch in n parts, [n, m / n, ...].

    Part i has examples i, i + n, i + 2n, …, or these pairs of neighbours: so neither the parts nor
    the pairs that `truth.mix` mixes depend on the number of devices, or the pairs on n.
    """
    together = truth.PAIR if in_pairs else 1

    def divided(array: jax.Array) -> jax.Array:
        units = array.reshape(-1, number, together, *array.shape[1:])
        return units.swapaxes(0, 1).reshape(number, -1, *array.shape[1:])

    return {name: divided(array) for name, array in batch.items()}


def _mean_over_parts(
    gradients_of: Callable[..., Any], zeros: Any, batch_stats: Any, divided: Arrays, parts: int
) -> tuple[Any, Any, Any, Arrays]:
    """The mean gradients and metrics of parts of a batch, and the statistics after the last."""

    def add(carried: tuple[Any, Any], part: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        total, batch_stats = carried
        gradients, _, batch_stats, metrics = gradients_of(batch_stats=batch_stats, batch=part)
        return (jax.tree.map(jnp.add, total, gradients), batch_stats), metrics

    (total, batch_stats), metrics = jax.lax.scan(add, (zeros, batch_stats), divided)
    gradients = jax.tree.map(lambda gradient: gradient / parts, total)
    return gradients, None, batch_stats, jax.tree.map(lambda one: one.mean(axis=0), metrics)


def _move_averages(
    averages: Any, new: Any, step: jax.Array, decay: jax.Array, frozen: Collection[str]
) -> Any:
    """The averages moved towards new values, faster at first: the start is soon forgotten."""
    made = step.astype(jnp.float32)
    kept = jnp.minimum(decay, (1 + made) / (10 + made))

    def moved(old: Any, new: Any) -> Any:
        parts = trained_parts(old, frozen), trained_parts(new, frozen)
        return {**old, **jax.tree.map(lambda old, new: new + kept * (old - new), *parts)}

    return {name: moved(old, new[name]) for name, old in averages.items()}


def make_eval_step(
    model: Classifier,
    make_objective: Callable[[Hyperparameters], Objective],
    *,
    normalize: Preprocess,
    devices: Devices,
) -> Callable[[Any, Any, Any, Arrays], Arrays]:
    """Makes `(params, batch_stats, hyperparameters, batch) -> {"loss", "scores", "ranks"}`.

    The loss is [n], the scores are [n, L], and the ranks of the labels are [n]. If the truth is
    more than one class, "class_ranks" [n, m] are the ranks of all of these. The arguments and the
    hyperparameters are those of the training step.
    """
    apply = _make_apply(model, devices, remat=False)

    def eval_step(params: Any, batch_stats: Any, hyperparameters: Any, batch: Arrays) -> Arrays:
        objective, examples = make_objective(hyperparameters["loss"]), truth.of_batch(batch)
        variables = {"params": params, "batch_stats": batch_stats}
        outputs = devices.of_batch(apply(variables, normalize(batch["images"]), train=False))
        # Without the barrier XLA may compute a logit once per use, with two roundings, and the
        # ranks would be of other logits than the scores.
        outputs = jax.lax.optimization_barrier(outputs)
        ranks = partial(label_ranks, objectives.class_logits(outputs))
        found = {
            "loss": objective.evaluation_losses(outputs, examples),
            "scores": objective.scores(outputs),
            "ranks": ranks(batch["labels"]),
        }
        if "classes" in examples:
            found["class_ranks"] = jax.vmap(ranks, in_axes=1, out_axes=1)(examples["classes"])
        return found

    return eval_step
