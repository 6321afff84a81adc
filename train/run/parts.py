"""From a configuration to the parts of a run: data, network, loss, optimizer, devices, steps."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train.configuration import Config, rules
from train.data.augmentation import normalize
from train.devices import devices
from train.devices.devices import Devices
from train.foundation.errors import UserError
from train.models import build_model, check_image_shape
from train.models.classifier import Classifier
from train.models.layers_by_depth import distances_from_head
from train.run.run_data import RunData
from train.run.run_folder import Facts
from train.training import (
    class_weights,
    label_estimates,
    loss_objectives,
    optimizer,
    randomness,
    steps,
)
from train.training.losses import find_loss
from train.training.objectives import Hyperparameters, Objective, class_logits
from train.training.optimizer import Optimizer
from train.training.state import TrainState, initial_state, initializer

# A compiled step of evaluation: parameters, statistics and batch to scores.
EvalStep = Callable[[Any, Any, Any], Any]


class Run:
    """The parts of a run, each made when it is first used: a finished run needs no data set.

    Args:
        data: the data of the run.

    Attributes:
        config: the configuration, as its classes have it.
        data: the data.
        loss: the loss.
        head: the name of the network's head.
        normalizes_features: whether a new head gets normalized features.
        frozen: the parts of the network that are not trained.
    """

    def __init__(self, data: RunData) -> None:
        self.data, self.config = data, data.config
        self.loss = find_loss(self.config.loss.name)
        model = self.config.model
        self.head = model.head or self.loss.head
        # Cosines do not depend on the scale.
        self.normalizes_features = (
            model.freeze and model.normalize_features and self.head != "cosine"
        )
        self.frozen = ("features", "norm") if model.freeze else ()

    @cached_property
    def devices(self) -> Devices:
        """All devices of all processes."""
        return devices.find(self.config.parallel, self.config.class_devices, self.data.num_classes)

    @cached_property
    def model(self) -> Classifier:
        """The network with its head."""
        settings = self.config.model
        return build_model(
            settings.name,
            num_classes=self.data.num_classes,
            head=self.head,
            scale=settings.scale,
            learn_scale=settings.learn_scale,
            axis_name=self.devices.axis if settings.sync_batch_norm else None,
            half_precision=settings.half_precision,
            freeze=settings.freeze,
            normalize_features=self.normalizes_features,
            options=settings.options,
        )

    def normalize(self, inputs: jax.Array) -> jax.Array:
        """uint8 images, or features, to the input of the network."""
        return normalize(inputs, self.data.spec.mean, self.data.spec.std)

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """The numbers of the configuration that are inputs of the compiled steps."""
        config = self.config
        values = {
            "seed": np.uint32(config.seed),
            "loss": self.loss.hyperparameters(config.loss.parameters, self.data.class_counts),
            "optimizer": optimizer.hyperparameters(config.optimizer),
        }
        if self.loss.estimates_labels:
            values["label_rate_ratio"] = self.loss.label_rate_ratio(
                config.loss.parameters, config.optimizer.learning_rate
            )
        if config.dataset.mixup > 0:
            values["mixup_alpha"] = np.float32(config.dataset.mixup)
        return values

    def hyperparameters_of_training(self) -> dict[str, Any]:
        """The numbers that the step of training takes."""
        weights = class_weights.hyperparameters(
            self.config.loss,
            self.data.class_counts,
            sampling=self.config.dataset.sampling,
            num_epochs=self.config.num_epochs,
            steps_per_epoch=self.data.steps_per_epoch,
        )
        return {**self.hyperparameters, **weights}

    @cached_property
    def objective(self) -> Objective:
        """The loss with its hyperparameters as constants."""
        return self._make_objective(self.hyperparameters["loss"])

    def _make_objective(self, values: Hyperparameters) -> Objective:
        fields, tree = self.config.loss, self.data.classes.tree
        taxonomy = None if tree is None else tree.taxonomy
        objective = self.loss.objective(
            fields.parameters,
            values,
            axis_name=self.devices.axis,
            scores=self.config.eval.scores,
            taxonomy=taxonomy,
        )
        if taxonomy is None or not fields.rank_weights:
            return objective
        return loss_objectives.at_every_rank(objective, taxonomy, fields.rank_weights)

    def make_optimizer(self, values: Hyperparameters) -> Optimizer:
        """The optimizer with these hyperparameters."""
        settings, distances = self.config.optimizer, None
        if optimizer.has_rates_by_layer(settings):
            distances = distances_from_head(self.model, self.data.image_shape)
        return optimizer.build(
            settings,
            values,
            num_epochs=self.config.num_epochs,
            steps_per_epoch=self.data.steps_per_epoch,
            distances=distances,
        )

    @cached_property
    def _init(self) -> Callable[[jax.Array], Mapping[str, Any]]:
        return initializer(self.model, self.data.image_shape)

    def _state(self, key: jax.Array) -> TrainState:
        """The state before the first step, without estimated labels."""
        settings = self.config.optimizer
        return initial_state(
            self._init,
            self.make_optimizer(self.hyperparameters["optimizer"]).transformation,
            key,
            averaged=settings.average_decay is not None,
            frozen=self.frozen,
        )

    def state_shapes(self) -> TrainState:
        """The shapes of the state in training, without estimated labels."""
        key = randomness.initialization_key(self.config.seed)
        state: TrainState = jax.eval_shape(self._state, key)
        return state

    def initial_state(self) -> TrainState:
        """The state before the first step, on the host."""
        key = randomness.initialization_key(self.config.seed)
        state: TrainState = self.devices.make(self._state, key)
        if not self.loss.estimates_labels:
            return state
        labels, num_classes = self.data.dataset.train.labels, self.data.num_classes
        estimates = label_estimates.initial(labels, num_classes=num_classes, seed=self.config.seed)
        return dataclasses.replace(state, label_logits=estimates)

    def compile_train_step(self) -> Any:
        """The step `(state, hyperparameters, batch)` of training, on the devices."""
        step = steps.make_train_step(
            self.model,
            self._make_objective,
            self.make_optimizer,
            augment=self.data.spec.augment,
            normalize=self.normalize,
            devices=self.devices,
            parts=self.config.optimizer.accumulation_steps,
            remat=self.config.model.remat,
            frozen=self.frozen,
        )
        return self.devices.compile_train_step(step)

    @cached_property
    def train_step(self) -> Callable[[TrainState, Any], tuple[TrainState, Any]]:
        """The compiled step of training: state and batch, on the devices, to state and metrics."""
        compiled = self.compile_train_step()
        hyperparameters = self.devices.place(self.hyperparameters_of_training())
        return lambda state, batch: compiled(state, hyperparameters, batch)

    @cached_property
    def eval_step(self) -> EvalStep:
        """The compiled step of evaluation, with the scores of the objective."""
        return self._compile_eval_step(self._make_objective)

    @cached_property
    def logits_step(self) -> EvalStep:
        """The compiled step of evaluation, with logits for scores."""
        return self._compile_eval_step(
            lambda values: dataclasses.replace(self._make_objective(values), scores=class_logits)
        )

    def _compile_eval_step(
        self, make_objective: Callable[[Hyperparameters], Objective]
    ) -> EvalStep:
        step = steps.make_eval_step(
            self.model, make_objective, normalize=self.normalize, devices=self.devices
        )
        compiled = self.devices.compile_eval_step(step)
        loss = self.devices.place({"loss": self.hyperparameters["loss"]})
        return lambda params, batch_stats, batch: compiled(params, batch_stats, loss, batch)


def assemble(config: Config, facts: Facts | None = None, *, workdir: Path | None = None) -> Run:
    """The parts of a run, found to fit each other.

    Args:
        config: the configuration.
        facts: the facts of a finished run, which is used without its data set; None to open it.
        workdir: the folder of the run, which may have begun; None for a run without a folder.

    Raises:
        UserError: the data set cannot be opened, or does not fit the configuration.
    """
    data = RunData(config, facts, workdir)
    name, shape = config.model.name, data.image_shape
    if data.spec.has_images and (wrong := check_image_shape(name, shape)):
        raise UserError(f"config.model.name={name} takes {wrong}; got images of shape {shape}")
    if facts is None:
        tree = data.classes.tree
        loss_objectives.check_ranks(config.loss, find_loss(config.loss.name), tree)
    rules.check_classes(config, data.num_classes)
    return Run(data)
