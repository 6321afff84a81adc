"""The classifier of a finished run, for train.evaluate, train.predict and train.export."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from train.assembly import assemble
from train.assembly.parts import Assembly
from train.assembly.run_data import facts_of
from train.configuration import Config
from train.configuration.datasets import path_of
from train.configuration.parsing import parse
from train.data import Dataset, DatasetSpec, dataset_spec, taxonomy
from train.data.examples import Examples
from train.data.taxonomy import ClassTree
from train.devices import compilation_cache
from train.evaluation import temperature
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.models.classifier import Classifier
from train.training.objectives import class_logits
from train.workdir import run_files, run_inputs, runs
from train.workdir.checkpoint import Checkpointer
from train.workdir.classes import Classes


@dataclass(frozen=True)
class TrainedClassifier:
    """The selected classifier of a finished run, or a published network.

    Attributes:
        workdir: the folder of the run; None for a published network.
        results: the contents of its `results.json`; empty for a published network.
        assembly: the parts of the run, with a data set that is not opened yet; for a published
            network, the parts of a run that would have trained it.
        params: the selected parameters.
        batch_stats: the batch norm statistics that belong to them.
    """

    workdir: Path | None
    results: Mapping[str, Any]
    assembly: Assembly
    params: Any
    batch_stats: Any

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.assembly.config

    @property
    def origin(self) -> tuple[str, str]:
        """The kind of its origin, and its name: the loss of the run, or the file of weights."""
        if self.workdir is None:
            return "weights", str(self.config.model.pretrained)
        return "loss", self.config.loss.name

    @property
    def of_run(self) -> "TrainedClassifier":
        """The classifier that takes the examples of the run's data set: almost always this one."""
        return self

    @property
    def spec(self) -> DatasetSpec:
        """The data set of the run; none of its files has been read."""
        return self.assembly.data.spec

    @property
    def network_name(self) -> str:
        """The name of the network."""
        return self.config.model.name

    def examples(self, inputs: jax.Array) -> jax.Array:
        """Inputs as examples of the run's data set; a pure function."""
        return inputs

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of images; the number of features."""
        return self.assembly.data.image_shape

    @property
    def classes(self) -> Classes:
        """The names of the classes and their numbers of training images."""
        return self.assembly.data.classes

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return self.assembly.data.num_classes

    @property
    def class_counts(self) -> np.ndarray:
        """The training images of each class, [L]."""
        return self.assembly.data.class_counts

    @property
    def tree(self) -> ClassTree | None:
        """What is above the classes; None if nothing is."""
        return self.assembly.data.tree

    @property
    def temperature(self) -> float | None:
        """The divisor of the logits before probabilities are made; None without one."""
        return self.results.get("temperature")

    def check_takes(self, inputs: str) -> None:
        """Refuses examples of another kind than the examples of the run.

        Args:
            inputs: what they are, as `DatasetSpec.inputs`, which is also the flag that names them.

        Raises:
            UserError: they are of another kind.
        """
        needed = self.spec.inputs
        if inputs != needed:
            what = "the network" if self.workdir is None else f"the run in {self.workdir}"
            instead = ""
            if (inputs, needed) == ("images", "features"):
                instead = (
                    f"; with --features_run={self.workdir} and the network that made the features, "
                    "--weights=FILE, it takes images"
                )
            raise UserError(f"--{needed} is needed, not --{inputs}: {what} is on {needed}{instead}")

    def scores(self) -> Callable[[jax.Array], jax.Array]:
        """uint8 images [n, height, width, channels] or features to scores [n, L]; pure.

        The function raises `TypeError` for inputs of another type, and `ValueError` for inputs of
        another shape.
        """
        assembly, at_temperature = self.assembly, self.temperature

        def scores(inputs: jax.Array) -> jax.Array:
            outputs = self._outputs(inputs)
            if at_temperature is None:
                return assembly.objective.scores(outputs)
            return temperature.probabilities(class_logits(outputs), np.float32(at_temperature))

        return scores

    def logits(self) -> Callable[[jax.Array], jax.Array]:
        """The same inputs to logits [n, L]; see `scores`."""
        return lambda inputs: class_logits(self._outputs(inputs))

    def features(self) -> Callable[[jax.Array], jax.Array]:
        """The same inputs to the features below the head, [n, d]; see `scores`."""
        return lambda inputs: self._outputs(inputs, method=Classifier.embed)

    def _outputs(self, inputs: jax.Array, **how: Any) -> Any:
        """What the network makes of inputs, with its head or with the method given."""
        self._check_inputs(inputs)
        variables = {"params": self.params, "batch_stats": self.batch_stats}
        how = how or {"train": False}
        examples = self.assembly.normalize(self.examples(inputs))
        return self.assembly.model.apply(variables, examples, **how)

    def _check_inputs(self, inputs: jax.Array) -> None:
        """Raises for inputs that the network would misread."""
        kind = self.spec.inputs
        # Pixels of another type would not be divided by 255.
        if self.spec.has_images and inputs.dtype != np.uint8:
            raise TypeError(f"images must be uint8, got dtype {inputs.dtype}")
        shape = tuple(self.image_shape)
        if inputs.ndim == 0 or inputs.shape[1:] != shape:
            wanted = ", ".join(map(str, ("n", *shape)))
            raise ValueError(f"{kind} must have shape ({wanted}), got shape {inputs.shape}")

    def load_dataset(self) -> Dataset:
        """The data set of the run.

        Raises:
            UserError: it is not prepared on this machine, or is not the one of the run.
        """
        with run_inputs.naming_place(path_of(self.config.dataset), "--path"):
            dataset = self.assembly.data.dataset
        if not self.assembly.data.facts.are_of(facts_of(dataset)):
            where = path_of(self.config.dataset) or self.spec.name
            raise UserError(
                f"{where} is not the data set that the run in --workdir {self.workdir} was trained "
                "on: its classes, their numbers of images or its files differ"
            )
        return dataset

    def predict(self, split: str, *, with_logits: bool = False) -> Predictions:
        """The predictions for a split of the run's data set, made on all devices.

        Args:
            split: "train", "validation", "test" or "balanced_test".
            with_logits: whether the predictions have logits instead of scores.

        Raises:
            UserError: the data set is not prepared on this machine, or is not the one of the run.
        """
        self.load_dataset()
        devices = self.assembly.devices
        params, batch_stats = devices.replicate((self.params, self.batch_stats))
        return self.assembly.evaluator.predict(
            params,
            batch_stats,
            split,
            shows_progress=True,
            with_logits=with_logits,
            at_temperature=None if with_logits else self.temperature,
        )

    def predict_new(self, examples: Examples) -> Predictions:
        """The predictions for examples that are not in the run's data set, made on all devices.

        Args:
            examples: the examples.
        """
        devices = self.assembly.devices
        params, batch_stats = devices.replicate((self.params, self.batch_stats))
        return self.assembly.evaluator.predict_new(
            params,
            batch_stats,
            examples,
            at_temperature=self.temperature,
        )


def tree_of(given: str, class_names: Sequence[str]) -> ClassTree:
    """What --taxonomy has above classes.

    Raises:
        UserError: it is not a table with a tree of them.
    """
    with flags_for_fields({taxonomy.FIELD: "--taxonomy"}):
        return taxonomy.read(given, class_names)


def load(
    workdir: Path,
    places: Mapping[str, str] = MappingProxyType({}),
    taxonomy: str | None = None,
) -> TrainedClassifier:
    """The selected classifier of the run in a workdir.

    Args:
        workdir: the folder of the run.
        places: the fields of `config.dataset` for the current place of its data.
        taxonomy: what is above the classes, as `config.dataset.taxonomy`; None for what the run
            has.

    Raises:
        UserError: there is no finished run, or its files are damaged or of another version.
    """
    written, results = runs.read_finished(workdir)
    dataset = written.get("dataset", {})
    for field in places.keys() - dataset.keys():
        raise UserError(
            f"--{field} is for runs whose data are at a {field}; the run in --workdir {workdir} is "
            f"on the data set {dataset.get('name')}"
        )
    try:
        config = parse({**written, "dataset": {**dataset, **places}})
    except UserError as error:
        another = f"--workdir {workdir} holds a run of another version of the program: "
        raise error.within(another) from error
    classes = run_files.read_classes(workdir)
    if taxonomy is not None:
        classes = dataclasses.replace(classes, tree=tree_of(taxonomy, classes.names))
    spec = dataset_spec(config.dataset)
    num_classes = spec.num_classes
    if num_classes not in (None, len(classes.names)):
        raise UserError(
            f"--workdir {workdir} has {len(classes.names)} classes in its classes.json, and "
            f"{num_classes} in its configuration"
        )
    if config.compilation_cache:
        compilation_cache.use()
    facts = run_files.read_facts(workdir, classes, spec.image_shape)
    assembly = assemble(config, facts, workdir=workdir)
    params, batch_stats = _selected(workdir, assembly, results.get("best_epoch"))
    return TrainedClassifier(workdir, results, assembly, params, batch_stats)


def _selected(workdir: Path, assembly: Assembly, epoch: int | None) -> tuple[Any, Any]:
    """The parameters and batch norm statistics of the selected epoch."""
    model = assembly.model
    image = np.zeros((1, *assembly.data.image_shape), np.float32)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), image, train=True))
    like = {"params": shapes["params"], "batch_stats": shapes.get("batch_stats", {})}
    folder = workdir / run_files.CHECKPOINTS
    try:
        with Checkpointer(folder) as checkpointer:
            selected = checkpointer.restore_selected(like)
            checkpointer.check_selected(epoch)
    except OSError as error:
        raise UserError(f"the checkpoints in {folder} cannot be read: {error}") from error
    return selected["params"], selected["batch_stats"]
