"""From a configuration to the parts of a run, wired once for training and for finished runs."""

import dataclasses
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from train.configuration import Config, rules
from train.configuration.datasets import OwnImageFields, StreamedFields, path_of
from train.configuration.groups import TEN_CROPS
from train.data import Dataset, DatasetSpec, dataset_spec
from train.data.augmentation import normalize
from train.data.batches import Batch, SkippedImage, steps_in_epoch
from train.data.own import rank_table
from train.data.pipeline import Pipeline
from train.data.records import Split
from train.devices import parallel, processes
from train.devices.parallel import Devices
from train.devices.parameter_axis import ParameterAxis
from train.evaluation import (
    evaluated,
    predicted_batches,
    predictions,
    summaries,
    temperature,
)
from train.evaluation.class_tree import ClassTree
from train.evaluation.outcomes import Outcomes
from train.evaluation.predictions import Predictions
from train.evaluation.summaries import Evaluation
from train.evaluation.thresholds import average_k_thresholds
from train.foundation import host_memory
from train.foundation.errors import UserError
from train.foundation.ranks import Ranks
from train.foundation.spelling import spell
from train.models import build_model, check_image_shape, feature_norm
from train.models.classifier import Classifier
from train.models.layers_by_depth import distances_from_head
from train.sharing.work import ALONE, Share
from train.training import (
    class_weights,
    label_estimates,
    normalization,
    optimizer,
    randomness,
    rank_losses,
    steps,
    stop_signals,
)
from train.training.losses import find_loss
from train.training.objectives import Hyperparameters, Objective, class_logits
from train.training.optimizer import Norm, Optimizer
from train.training.state import (
    TrainState,
    initial_state,
    initializer,
    parameters_digest,
    start_from,
)
from train.workdir import run_files, terminal
from train.workdir.classes import Classes
from train.workdir.facts import Facts
from train.workdir.skipped_images import SkippedImages

# Training examples whose features are measured before the first step: their deviations are then
# known to some per cent.
_MOST_MEASURED = 1024


def assemble(
    config: Config, facts: Facts | None = None, *, workdir: Path | None = None
) -> "Assembly":
    """The parts of a run.

    Args:
        config: the configuration.
        facts: the facts of a finished run, which is used without its data set. Training leaves
            them out: the data set is opened, and has them.
        workdir: the folder of the run. What it stored about its data set is used if the run
            resumes. Unreadable images that are left out are listed there. None for a run without a
            folder.

    Raises:
        UserError: the data set cannot be opened, or does not fit the configuration.
    """
    assembly = Assembly(config, facts, workdir)
    if assembly.has_images:
        name, shape = config.model.name, assembly.image_shape
        if wrong := check_image_shape(name, shape):
            named = spell(f"config.model.name={name}")
            raise UserError(f"{named} takes {wrong}; got images of shape {shape}")
    if facts is None:
        assembly.check_memory()
        rank_losses.check(config.loss, assembly.loss, assembly.tree)
    rules.check_classes(config, assembly.spec, len(assembly.classes.names))
    return assembly


def check_batch_size(config: Config, class_devices: int, *, num_devices: int | None = None) -> None:
    """Refuses a batch that groups of this number of devices cannot share equally.

    Args:
        config: the configuration.
        class_devices: the devices that have the same share of the batch.
        num_devices: all of them; None for those that JAX finds.
    """
    parallel.check_batch_size(
        config.dataset.batch_size,
        config.optimizer.accumulation_steps,
        in_pairs=config.dataset.mixup > 0,
        class_devices=class_devices,
        num_devices=num_devices,
    )


def facts_of(dataset: Dataset, taxonomy: str | None = None) -> Facts:
    """What a run needs to know of its data set, and keeps.

    Args:
        dataset: the data set.
        taxonomy: `config.dataset.taxonomy`; None for what the data set has above its classes.
    """
    ranks = dataset.ranks if taxonomy is None else rank_table.read(taxonomy, dataset.class_names)
    classes = _counted(dataset.class_names, dataset.train, ranks)
    return Facts(
        classes,
        dataset.image_shape,
        dataset.digest,
        dataset.mean,
        dataset.std,
        dataset.embedded_by,
    )


def _none_can_be_read(number: int, what: str, path: str) -> UserError:
    return UserError(f"none of the {number} {what} of {path} can be read")


def _counted(class_names: tuple[str, ...], train: Split, ranks: Ranks | None) -> Classes:
    """The classes of training images."""
    number = len(class_names)
    if train.truths is None:
        counts = np.bincount(train.labels, minlength=number)
    else:
        counts = train.truths.class_counts(number)
    return Classes(class_names, tuple(counts.tolist()), ranks)


@dataclass(frozen=True)
class SelectedEvaluation:
    """What is reported about the selected parameters of a run.

    Attributes:
        validation: the report of the validation split.
        tests: the report of each test split, by its name.
        temperature: the fitted temperature; None without `config.eval.temperature`.
        left_out: how many examples of each split were left out as unreadable, without those of
            training.
    """

    validation: Evaluation
    tests: Mapping[str, Evaluation]
    temperature: float | None
    left_out: Mapping[str, int]


class Assembly:
    """The parts of a run, each made when it is first used.

    Args:
        config: the configuration.
        facts: what is known of the data set; None to ask the data set.
        workdir: the folder of the run; None for a run without one.
    """

    def __init__(self, config: Config, facts: Facts | None, workdir: Path | None) -> None:
        self.config = config
        self.loss = find_loss(config.loss.name)
        self._unopened = dataset_spec(config.dataset)
        self._facts = facts
        self._workdir = workdir
        self.skipped = SkippedImages(workdir)

    @cached_property
    def spec(self) -> DatasetSpec:
        """The data set, with what only its files determine, and the normalization of the run."""
        return self.facts.complete(self._unopened)

    @cached_property
    def dataset(self) -> Dataset:
        """The opened data set, the same in all processes."""
        files = None if self._workdir is None else run_files.read_listed(self._workdir)
        unopened = self._unopened if files is None else self._unopened.going_on(files)
        # The first use prepares some data sets.
        dataset = processes.first_then_others(
            lambda: unopened.load(self.config.dataset.data_dir, seed=self.config.seed)
        )
        splits = (dataset.train, dataset.validation, dataset.test, dataset.balanced_test)
        labels = [
            split.labels if split.truths is None else split.truths.to_plain()
            for split in splits
            if split is not None
        ]
        processes.check_same("the data set", lambda: parameters_digest(labels))
        return dataset

    @cached_property
    def facts(self) -> Facts:
        """What is known about the data set, and the run's own normalization if it has one."""
        if self._facts is not None:
            return self._facts
        facts = facts_of(self.dataset, self.config.dataset.taxonomy)
        if self._workdir is not None and run_files.has_checkpoints(self._workdir):
            facts = dataclasses.replace(facts, classes=self._kept_classes(facts.classes))
            kept = run_files.read_facts(self._workdir, facts.classes, facts.image_shape)
            mean, std = kept.mean, kept.std
        else:
            mean, std = normalization.choose_for_run(
                self.config.model, facts.complete(self._unopened)
            ) or (None, None)
        return facts if mean is None else dataclasses.replace(facts, mean=mean, std=std)

    def _kept_classes(self, found: Classes) -> Classes:
        """The classes as the run counted them at its start, possibly without unreadable images."""
        if self._workdir is None or not (self._workdir / run_files.CLASSES).exists():
            return found
        kept = run_files.read_classes(self._workdir)
        # A run of an earlier version kept none.
        if kept.ranks not in (None, found.ranks) and kept.names == found.names:
            raise UserError(
                "config.dataset.taxonomy must have what it had when the run in --workdir "
                f"{self._workdir} began; give another --workdir"
            )
        if isinstance(self.config.dataset, OwnImageFields) and kept.are_some_of(found):
            return kept
        return dataclasses.replace(found, ranks=kept.ranks)

    def leave_out(self, indices: Iterable[int]) -> None:
        """Subtracts training images from the numbers of their classes, in a new run.

        Args:
            indices: the images that cannot be read, by their indices in the split.
        """
        train = self.dataset.train
        kept = np.delete(np.arange(len(train)), list(indices))
        classes = _counted(self.dataset.class_names, train.take(kept), self.classes.ranks)
        self.facts = dataclasses.replace(self.facts, classes=classes)

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

    def state_shapes(self) -> TrainState:
        """The shapes of the state in training, but for estimated labels."""
        values = optimizer.hyperparameters(self.config.optimizer)
        # Neither the number of steps nor the rates of layers change a shape.
        transformation = optimizer.build(
            self.config.optimizer, values, num_epochs=1, steps_per_epoch=1
        ).transformation
        key = randomness.initialization_key(self.config.seed)
        state: TrainState = jax.eval_shape(self._initial_state_of(transformation), key)
        return state

    @property
    def has_images(self) -> bool:
        """Whether the examples are images."""
        return self._unopened.has_images

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of the images, or the number of features."""
        return self._unopened.image_shape or self.facts.image_shape

    @cached_property
    def tree(self) -> ClassTree | None:
        """What is above the classes; None if nothing is."""
        ranks = self.classes.ranks
        return None if ranks is None else ClassTree.of(ranks, self.classes.names)

    @property
    def classes(self) -> Classes:
        """The names of the classes and their numbers of training images."""
        return self.facts.classes

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return len(self.classes.names)

    @property
    def class_counts(self) -> np.ndarray:
        """The training images of each class, [L]."""
        return np.array(self.classes.training_images)

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The names of the test splits that the data set has."""
        balanced = () if self.dataset.balanced_test is None else ("balanced_test",)
        return ("test", *balanced)

    @cached_property
    def steps_per_epoch(self) -> int:
        """The full batches of an epoch."""
        batch_size = self.config.dataset.batch_size
        steps_per_epoch = steps_in_epoch(len(self.dataset.train), batch_size)
        if steps_per_epoch == 0:
            raise UserError(
                f"config.dataset.batch_size must be at most the {len(self.dataset.train)} training "
                f"examples; got {batch_size}"
            )
        most_epochs = optimizer.MOST_STEPS // steps_per_epoch
        if self.config.num_epochs > most_epochs:
            raise UserError(
                f"config.num_epochs must be at most {most_epochs} with {steps_per_epoch} steps an "
                f"epoch; got {self.config.num_epochs}"
            )
        return steps_per_epoch

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
        return self._model(self.num_classes)

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
    def devices(self) -> Devices:
        """All devices of all processes."""
        return parallel.find_devices(
            self.config.parallel,
            class_devices=self.config.class_devices,
            num_classes=self.num_classes,
        )

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """The numbers of the configuration that are inputs of the compiled steps."""
        loss, settings = self.config.loss, self.config.optimizer
        values = {
            "seed": np.uint32(self.config.seed),
            "loss": self.loss.hyperparameters(loss.parameters, self.class_counts),
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

    @cached_property
    def objective(self) -> Objective:
        """The loss with its hyperparameters as constants."""
        return self._make_objective(self.hyperparameters["loss"])

    @cached_property
    def train_step(self) -> Callable[[TrainState, Any], tuple[TrainState, Any]]:
        """The compiled step of training: state and batch, on the devices, to state and metrics."""
        compiled = self.devices.compile_train_step(self.step_of_device())
        hyperparameters = self.devices.replicate(self.hyperparameters_of_training())
        return lambda state, batch: compiled(state, hyperparameters, batch)

    def step_of_device(self) -> Callable[..., Any]:
        """The step `(state, hyperparameters, batch)` of training, to be compiled for devices."""
        shared = self.parameter_axis
        step = steps.make_train_step(
            self._model_of_device.apply,
            self._make_objective_of_device,
            lambda values: self._make_optimizer(values, norm=shared.norm),
            augment=self.spec.augment,
            normalize=self.normalize,
            shared=shared,
            sync_batch_norm=self.config.model.sync_batch_norm,
            accumulation_steps=self.config.optimizer.accumulation_steps,
            remat=self.config.model.remat,
            frozen=self._frozen,
        )
        return stop_signals.agreeing(step, axis_name=parallel.AXIS_NAME)

    def hyperparameters_of_training(self) -> dict[str, Any]:
        """The numbers that the step of training takes."""
        weights = class_weights.hyperparameters(
            self.config.loss,
            self.class_counts,
            sampling=self.config.dataset.sampling,
            num_epochs=self.config.num_epochs,
            steps_per_epoch=self.steps_per_epoch,
            extensions=self.config.extensions,
        )
        return {**self.hyperparameters, **weights}

    @cached_property
    def eval_step(self) -> Callable[[Any, Any, Any], Any]:
        """The compiled step of evaluation: parameters, statistics and batch to predictions."""
        return self._compile_eval_step(self._make_objective_of_device)

    @cached_property
    def logits_step(self) -> Callable[[Any, Any, Any], Any]:
        """As `eval_step`, with the logits that rank the classes instead of the scores."""
        return self._compile_eval_step(
            lambda values: dataclasses.replace(
                self._make_objective_of_device(values), scores=class_logits
            )
        )

    def normalize(self, inputs: jax.Array) -> jax.Array:
        """uint8 images, or features, to the input of the network."""
        return normalize(inputs, self.spec.mean, self.spec.std)

    def initial_state(self) -> TrainState:
        """The state before the first step, on the host."""
        transformation = self._make_optimizer(self.hyperparameters["optimizer"]).transformation
        make = self._initial_state_of(transformation)
        key = randomness.initialization_key(self.config.seed)
        state: TrainState = self.devices.make(make, key)
        if not self.loss.estimates_labels:
            return state
        labels = self.dataset.train.labels
        host_memory.check_fits(
            f"the estimated labels of config.loss.name={self.config.loss.name} for "
            f"{len(labels):,} training {self.spec.example}s and {self.num_classes:,} classes",
            len(labels) * self.num_classes * 4,
        )
        estimates = label_estimates.initial(
            labels, num_classes=self.num_classes, seed=self.config.seed
        )
        return dataclasses.replace(state, label_logits=estimates)

    def with_feature_norm(self, state: TrainState) -> TrainState:
        """The state before the first step, with the norm of the features below a new head.

        It is of training examples as they are evaluated. Every process looks at the same ones, on
        one of its devices.

        Raises:
            UserError: none of these examples can be read.
        """
        train, seed = self.dataset.train, self.config.seed
        chosen = np.random.default_rng(seed).permutation(len(train))[:_MOST_MEASURED]
        batch_size = self.config.dataset.batch_size
        share = math.ceil(batch_size / jax.device_count())
        pipeline = self._pipeline(batch_size, "train")
        pipeline = dataclasses.replace(
            pipeline,
            batch_size=share,
            process_index=0,
            process_count=1,
            # The folder that they are listed in is not there yet. Training lists them.
            on_skipped=None if pipeline.on_skipped is None else lambda _skipped: None,
        )
        # Without the head, because a device may not have room for all of it.
        variables = jax.device_put(
            {
                "params": {"features": state.params.get("features", {})},
                "batch_stats": {"features": state.batch_stats.get("features", {})},
            }
        )

        @jax.jit
        def features(variables: Any, inputs: jax.Array) -> jax.Array:
            found: Any = self.model.apply(
                variables, self.normalize(inputs), method=Classifier.features_in_evaluation
            )
            return found

        batches = terminal.tracked(
            pipeline.evaluation(train.take(np.sort(chosen))),
            total=math.ceil(len(chosen) / share),
            what=f"features of {len(chosen):,} training {self.spec.example}s",
        )
        norm = feature_norm.measure(
            np.asarray(features(variables, batch["images"]))[batch["mask"]] for batch in batches
        )
        if norm is None:
            raise _none_can_be_read(len(chosen), f"training {self.spec.example}s", self._place)
        return start_from(state, state.params, {**state.batch_stats, "norm": norm})

    def training_batches(self, first_step: int) -> Generator[Batch, None, None]:
        """The batches of the steps from `first_step` to the last, to be closed by the caller."""
        pipeline = self._pipeline(self.config.dataset.batch_size, "train")
        last_step = self.config.num_epochs * self.steps_per_epoch
        return pipeline.training(self.dataset.train, first_step=first_step, last_step=last_step)

    def predict(
        self,
        params: Any,
        batch_stats: Any,
        split: str,
        *,
        shows_progress: bool = False,
        with_logits: bool = False,
        at_temperature: float | None = None,
        share: Share = ALONE,
        crops: int = 1,
    ) -> Predictions:
        """The predictions for a split of the data set.

        Args:
            params: the parameters, on the devices.
            batch_stats: batch norm's statistics with them, on the devices.
            split: "train", "validation", "test" or "balanced_test".
            shows_progress: whether a bar is shown.
            with_logits: whether the predictions have logits instead of scores.
            at_temperature: if it is a number, the scores are the softmax of the logits divided by
                it.
            share: how this process takes part in the work.
            crops: how many crops of an image are averaged, as `config.eval.crops`.

        Raises:
            UserError: none of the images of the split can be read.
        """
        return self._predict_examples(
            params,
            batch_stats,
            getattr(self.dataset, split),
            self._pipeline(self._evaluation_batch_size(crops), split),
            name=split,
            share=share,
            path=self._place,
            shows_progress=shows_progress,
            with_logits=with_logits,
            at_temperature=at_temperature,
            crops=crops,
        )

    def predict_new(
        self,
        params: Any,
        batch_stats: Any,
        examples: Split,
        *,
        path: str,
        on_skipped: Callable[[SkippedImage], None],
        at_temperature: float | None,
        share: Share = ALONE,
    ) -> Predictions:
        """The predictions for examples that are not in the data set, without unreadable images.

        Args:
            params: the parameters, on the devices.
            batch_stats: batch norm's statistics with them, on the devices.
            examples: the examples.
            path: where they are, for messages.
            on_skipped: called with each image that cannot be read.
            at_temperature: see `predict`.
            share: see `predict`.

        Raises:
            UserError: none of the images can be read.
        """
        # Threads decode: starting processes takes longer than many evaluations.
        pipeline = dataclasses.replace(
            self._pipeline(self._evaluation_batch_size(), "new"),
            num_workers=0,
            on_skipped=on_skipped,
        )
        return self._predict_examples(
            params,
            batch_stats,
            examples,
            pipeline,
            name="new",
            share=share,
            path=path,
            shows_progress=True,
            at_temperature=at_temperature,
        )

    def _predict_examples(
        self,
        params: Any,
        batch_stats: Any,
        examples: Split,
        pipeline: Pipeline,
        *,
        name: str,
        share: Share,
        path: str,
        shows_progress: bool = False,
        with_logits: bool = False,
        at_temperature: float | None = None,
        crops: int = 1,
    ) -> Predictions:
        """The predictions for examples; see `predict`.

        Args:
            params: the parameters, on the devices.
            batch_stats: batch norm's statistics with them, on the devices.
            examples: the examples.
            pipeline: reads them.
            name: which examples they are.
            share: how this process takes part in the work.
            path: where they are, for messages.
            shows_progress: whether a bar is shown.
            with_logits: whether the predictions have logits instead of scores.
            at_temperature: divides the logits before they become scores, if it is a number.
            crops: how many crops of an image are averaged.
        """
        what = f"{name} {self.spec.example}s"

        def compute(units: range) -> Iterator[predicted_batches.Rows]:
            step = self.logits_step if with_logits or at_temperature is not None else self.eval_step
            return predicted_batches.with_skipped(
                pipeline,
                lambda pipeline: predictions.rows(
                    step,
                    params,
                    batch_stats,
                    pipeline.evaluation(examples, units, ten_crops=crops == TEN_CROPS),
                    self.devices,
                    split=examples,
                    num_classes=self.num_classes,
                ),
            )

        work = predicted_batches.work(name, what, len(examples), pipeline.batch_size, compute)
        batches = share.results(work)
        if shows_progress:
            batches = terminal.tracked(batches, total=work.number, what=what)
        found = predictions.collected(predicted_batches.told(batches, pipeline), examples)
        if not found.labels.size:
            raise _none_can_be_read(len(examples), what, path)
        if at_temperature is not None:
            return temperature.with_probabilities(found, at_temperature)
        return found

    def _evaluation_batch_size(self, crops: int = 1) -> int:
        """A multiple of the devices, with as many crops as training has images, or a few more.

        A finished run may be evaluated on other devices; the size of a batch changes no result.
        """
        share = math.ceil(self.config.dataset.batch_size / crops / jax.device_count())
        return share * jax.device_count()

    @property
    def _place(self) -> str:
        """Where the data set is, for messages."""
        return path_of(self.config.dataset) or self.spec.name

    def validate(self, state: TrainState) -> Evaluation:
        """What is reported of the validation split after an epoch, for a state on the devices."""
        found = self.predict(*state.evaluated, "validation")
        thresholds = average_k_thresholds(found, self.config.eval.ks)
        return summaries.summarize(found, thresholds, self.class_counts)

    def evaluate_selected(self, state: TrainState) -> "SelectedEvaluation":
        """What is reported about the selected state, on the devices, after training.

        Temperature and thresholds are fitted on the validation split.
        """
        predict = partial(self.predict, *state.evaluated, crops=self.config.eval.crops)
        fitted = None
        if self.config.eval.temperature:
            logits = predict("validation", with_logits=True)
            fitted = temperature.fit(logits)
            found = temperature.with_probabilities(logits, fitted)
        else:
            found = predict("validation")
        thresholds = average_k_thresholds(found, self.config.eval.ks)

        def summarize(found: Predictions) -> Evaluation:
            return summaries.summarize(found, thresholds, self.class_counts)

        validation = summarize(found)
        tests = {
            split: summarize(predict(split, at_temperature=fitted)) for split in self.test_splits
        }
        left_out = {
            split: len(getattr(self.dataset, split)) - len(evaluated.outcomes.labels)
            for split, evaluated in {"validation": validation, **tests}.items()
        }
        return SelectedEvaluation(validation, tests, fitted, left_out)

    def evaluated(self, outcomes: Outcomes) -> dict[str, Any]:
        """The classes and examples that the accuracies of a split are over."""
        labels = outcomes.counted_labels
        # Unseen classes count in the splits that have some of their examples.
        num_classes = max(self.num_classes, int(labels.max(initial=0)) + 1)
        names = (*self.classes.names, *self.dataset.unseen_class_names)[:num_classes]
        counts = np.pad(self.class_counts, (0, num_classes - self.num_classes))
        return evaluated.to_json(labels, len(outcomes.labels), counts, names)

    @cached_property
    def _initializer(self) -> Callable[[jax.Array], Mapping[str, Any]]:
        """What makes the variables of the network, for which few data sets have to be opened."""
        num_classes = self._unopened.num_classes or self.num_classes
        return initializer(self._model(num_classes), self.image_shape)

    def _initial_state_of(
        self, transformation: optax.GradientTransformation
    ) -> Callable[[jax.Array], TrainState]:
        """What makes the state before the first step from a key, but for estimated labels."""
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
        return distances_from_head(self.model, self.image_shape)

    def _pipeline(self, batch_size: int, split: str) -> Pipeline:
        dataset, num_workers, skips = self.config.dataset, 0, False
        if isinstance(dataset, StreamedFields):
            num_workers, skips = dataset.num_workers, dataset.skip_unreadable
        return Pipeline(
            batch_size,
            self.config.seed,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
            num_workers=num_workers,
            on_skipped=partial(self.skipped.add, split=split) if skips else None,
            sampling=dataset.sampling,
        )

    def _compile_eval_step(
        self, make_objective: Callable[[Hyperparameters], Objective]
    ) -> Callable[[Any, Any, Any], Any]:
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

    @cached_property
    def parameter_axis(self) -> ParameterAxis:
        """The axis over devices that the parameters are split along."""
        splits = self.devices.splits_parameters
        return self.devices.parameter_axis(self.state_shapes().params if splits else {})

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
        fields, taxonomy = self.config.loss, None if self.tree is None else self.tree.taxonomy
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
            steps_per_epoch=self.steps_per_epoch,
            distances=self._distances_from_head,
            norm=norm,
        )
