"""The parts of a run that its steps are made of: network, objective, optimizer, devices."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from train.assembly.evaluator import EvalStep, Evaluator, MakesScores
from train.assembly.run_data import RunData
from train.configuration import Config
from train.data.augmentation import normalize
from train.devices import parallel
from train.devices.parallel import Devices
from train.devices.parameter_axis import ParameterAxis
from train.foundation import host_memory
from train.models import build_model
from train.models.classifier import Classifier
from train.models.layers_by_depth import distances_from_head
from train.training import (
    class_weights,
    label_estimates,
    optimizer,
    randomness,
    rank_losses,
    steps,
    stop_signals,
)
from train.training.losses import find_loss
from train.training.objectives import Hyperparameters, Objective
from train.training.optimizer import Norm, Optimizer
from train.training.state import TrainState, initial_state, initializer
from train.workdir.facts import Facts


class Assembly:
    """The parts of a run, each made when it is first used.

    Args:
        config: the configuration.
        facts: what is known of the data set; None to ask the data set.
        workdir: the folder of the run; None for a run without one.

    Attributes:
        config: the configuration.
        loss: the loss.
        data: the data of the run.
    """

    def __init__(self, config: Config, facts: Facts | None, workdir: Path | None) -> None:
        self.config = config
        self.loss = find_loss(config.loss.name)
        self.data = RunData(config, facts, workdir)

    @property
    def head(self) -> str:
        """The name of the model's head."""
        return self.config.model.head or self.loss.head

    @property
    def normalizes_features(self) -> bool:
        """Whether the head gets normalized features. Cosines do not depend on the scale."""
        settings = self.config.model
        return settings.freeze and settings.normalize_features and self.head != "cosine"

    @cached_property
    def model(self) -> Classifier:
        """The network with its head."""
        return self._model(self.data.num_classes)

    def normalize(self, inputs: jax.Array) -> jax.Array:
        """uint8 images, or features, to the input of the network."""
        return normalize(inputs, self.data.spec.mean, self.data.spec.std)

    @cached_property
    def devices(self) -> Devices:
        """All devices of all processes."""
        return parallel.find_devices(
            self.config.parallel,
            class_devices=self.config.class_devices,
            num_classes=self.data.num_classes,
        )

    @cached_property
    def parameter_axis(self) -> ParameterAxis:
        """The axis over devices that the parameters are split along."""
        splits = self.devices.splits_parameters
        return self.devices.parameter_axis(self.state_shapes().params if splits else {})

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """The numbers of the configuration that are inputs of the compiled steps."""
        loss, settings = self.config.loss, self.config.optimizer
        values = {
            "seed": np.uint32(self.config.seed),
            "loss": self.loss.hyperparameters(loss.parameters, self.data.class_counts),
            "optimizer": optimizer.hyperparameters(settings),
        }
        if self.loss.estimates_labels:
            values["label_rate_ratio"] = self.loss.label_rate_ratio(
                loss.parameters, settings.learning_rate
            )
        mixup_alpha = self.config.dataset.mixup
        if mixup_alpha > 0:
            values["mixup_alpha"] = np.float32(mixup_alpha)
        return values

    def hyperparameters_of_training(self) -> dict[str, Any]:
        """The numbers that the step of training takes."""
        weights = class_weights.hyperparameters(
            self.config.loss,
            self.data.class_counts,
            sampling=self.config.dataset.sampling,
            num_epochs=self.config.num_epochs,
            steps_per_epoch=self.data.steps_per_epoch,
            extensions=self.config.extensions,
        )
        return {**self.hyperparameters, **weights}

    @cached_property
    def objective(self) -> Objective:
        """The loss with its hyperparameters as constants."""
        return self._make_objective(self.hyperparameters["loss"])

    def step_of_device(self) -> Callable[..., Any]:
        """The step `(state, hyperparameters, batch)` of training, to be compiled for devices."""
        shared = self.parameter_axis
        step = steps.make_train_step(
            self._model_of_device.apply,
            self._make_objective_of_device,
            lambda values: self._make_optimizer(values, norm=shared.norm),
            augment=self.data.spec.augment,
            normalize=self.normalize,
            shared=shared,
            sync_batch_norm=self.config.model.sync_batch_norm,
            accumulation_steps=self.config.optimizer.accumulation_steps,
            remat=self.config.model.remat,
            frozen=self._frozen,
        )
        return stop_signals.agreeing(step, axis_name=parallel.AXIS_NAME)

    @cached_property
    def train_step(self) -> Callable[[TrainState, Any], tuple[TrainState, Any]]:
        """The compiled step of training: state and batch, on the devices, to state and metrics."""
        compiled = self.devices.compile_train_step(self.step_of_device())
        hyperparameters = self.devices.replicate(self.hyperparameters_of_training())
        return lambda state, batch: compiled(state, hyperparameters, batch)

    @cached_property
    def evaluator(self) -> Evaluator:
        """What evaluates parameters of the network."""
        return Evaluator(self.data, self.devices, self._compile_eval_step)

    def state_shapes(self) -> TrainState:
        """The shapes of the state in training, without estimated labels."""
        values = optimizer.hyperparameters(self.config.optimizer)
        # Neither the number of steps nor the rates of layers change a shape.
        transformation = optimizer.build(
            self.config.optimizer, values, num_epochs=1, steps_per_epoch=1
        ).transformation
        key = randomness.initialization_key(self.config.seed)
        state: TrainState = jax.eval_shape(self._initial_state_of(transformation), key)
        return state

    def check_memory(self) -> None:
        """Refuses a network whose state in training does not fit into the memory of this machine.

        Its shapes are computed, and nothing of it is made. The data set is opened only if its
        number of classes is not known without it.
        """
        state = self.state_shapes()
        parameters = sum(leaf.size for leaf in jax.tree.leaves(state.params))
        host_memory.check_fits(
            f"the {parameters:,} parameters of config.model, with the state of the optimizer,",
            sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
        )

    def initial_state(self) -> TrainState:
        """The state before the first step, on the host."""
        transformation = self._make_optimizer(self.hyperparameters["optimizer"]).transformation
        make = self._initial_state_of(transformation)
        key = randomness.initialization_key(self.config.seed)
        state: TrainState = self.devices.make(make, key)
        if not self.loss.estimates_labels:
            return state
        labels, num_classes = self.data.dataset.train.labels, self.data.num_classes
        host_memory.check_fits(
            f"the estimated labels of config.loss.name={self.config.loss.name} for "
            f"{len(labels):,} training {self.data.spec.example}s and {num_classes:,} classes",
            len(labels) * num_classes * 4,
        )
        estimates = label_estimates.initial(labels, num_classes=num_classes, seed=self.config.seed)
        return dataclasses.replace(state, label_logits=estimates)

    def _model(self, num_classes: int) -> Classifier:
        settings = self.config.model
        return build_model(
            settings.name,
            num_classes=num_classes,
            head=self.head,
            scale=settings.scale,
            learn_scale=settings.learn_scale,
            axis_name=parallel.AXIS_NAME if settings.sync_batch_norm else None,
            half_precision=settings.half_precision,
            freeze=settings.freeze,
            normalize_features=self.normalizes_features,
            options=settings.options,
        )

    @cached_property
    def _initializer(self) -> Callable[[jax.Array], Mapping[str, Any]]:
        """Makes the variables of the network. Few data sets have to be opened for this."""
        num_classes = self.data.unopened.num_classes or self.data.num_classes
        return initializer(self._model(num_classes), self.data.image_shape)

    def _initial_state_of(
        self, transformation: optax.GradientTransformation
    ) -> Callable[[jax.Array], TrainState]:
        """Makes the state before the first step from a key, without estimated labels."""
        return partial(
            initial_state,
            self._initializer,
            transformation,
            averaged=self.config.optimizer.average_decay is not None,
            frozen=self._frozen,
        )

    @property
    def _frozen(self) -> tuple[str, ...]:
        """The parts of the network that are not trained."""
        return ("features", "norm") if self.config.model.freeze else ()

    @cached_property
    def _distances_from_head(self) -> Any:
        """How many layers below the head each parameter is, if rates depend on it."""
        if not optimizer.has_rates_by_layer(self.config.optimizer):
            return None
        return distances_from_head(self.model, self.data.image_shape)

    @property
    def _model_of_device(self) -> Classifier:
        """The network with the head that one device has."""
        class_axis = self.devices.class_axis
        return self.model if class_axis.name is None else self._model(class_axis.own_classes)

    def _make_objective_of_device(self, values: Hyperparameters) -> Objective:
        """The loss of what one device has."""
        return self._make_objective(values, class_axis_name=self.devices.class_axis.name)

    def _make_objective(
        self, values: Hyperparameters, *, class_axis_name: str | None = None
    ) -> Objective:
        fields, tree = self.config.loss, self.data.tree
        taxonomy = None if tree is None else tree.taxonomy
        objective = self.loss.objective(
            fields.parameters,
            values,
            axis_name=parallel.AXIS_NAME,
            class_axis_name=class_axis_name,
            scores=self.config.eval.scores,
            taxonomy=taxonomy,
        )
        if taxonomy is None or not fields.rank_weights:
            return objective
        return rank_losses.at_every_rank(objective, taxonomy, fields.rank_weights)

    def _make_optimizer(
        self, values: Hyperparameters, *, norm: Norm = optax.tree.norm
    ) -> Optimizer:
        return optimizer.build(
            self.config.optimizer,
            values,
            num_epochs=self.config.num_epochs,
            steps_per_epoch=self.data.steps_per_epoch,
            distances=self._distances_from_head,
            norm=norm,
        )

    def _compile_eval_step(self, scores: MakesScores | None) -> EvalStep:
        """The compiled step of evaluation; see `Evaluator`."""

        def make_objective(values: Hyperparameters) -> Objective:
            objective = self._make_objective_of_device(values)
            return objective if scores is None else dataclasses.replace(objective, scores=scores)

        compiled = self.devices.compile_eval_step(
            steps.make_eval_step(
                self._model_of_device.apply,
                make_objective,
                normalize=self.normalize,
                class_axis=self.devices.class_axis,
                gather=self.parameter_axis.gather,
            )
        )
        loss = self.devices.replicate({"loss": self.hyperparameters["loss"]})
        return lambda params, batch_stats, batch: compiled(params, batch_stats, loss, batch)
