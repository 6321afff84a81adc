"""The classifier of a finished run, or of a published network."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from train.classifiers import outliers
from train.classifiers.classifier import Function, compute
from train.configuration import Config
from train.configuration.datasets import path_of
from train.configuration.parsing import parse
from train.data import Dataset, DatasetSpec, taxonomy
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.devices import processes
from train.foundation.errors import UserError, naming_flags, within
from train.models.classifier import Classifier as Network
from train.run import evaluation, run_folder, runs
from train.run.checkpoints import read_selected
from train.run.parts import Run, assemble
from train.run.run_data import facts_of
from train.scores import temperature
from train.scores.scores import Scores
from train.training.objectives import class_logits
from train.training.state import parameters_digest

# The fields of `config.dataset` that are a place of data.
_PLACES = ("path", "data_dir")


@dataclass(frozen=True, eq=False)
class TrainedClassifier:
    """The selected classifier of a finished run, or a published network.

    Attributes:
        workdir: the folder of the run; None for a published network.
        results: the contents of its `results.json`; empty for a published network.
        parts: the parts of the run, with a data set that is not opened yet; for a published
            network, the parts of a run that would have trained it.
        params: the selected parameters.
        batch_stats: the batch norm statistics that belong to them.
        shown: the names of the classes that are shown; None for those of the run.
    """

    workdir: Path | None
    results: Mapping[str, Any]
    parts: Run
    params: Any
    batch_stats: Any
    shown: tuple[str, ...] | None = None
    own_rule: ClassVar[None] = None
    # Not kept by `dataclasses.replace`: other parameters have other scores.
    _splits: dict[tuple[str, str | None], Scores] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.parts.config

    @property
    def title(self) -> str:
        """What headings call it: the data set, and the loss or the file of the weights."""
        return f"{self.parts.data.spec.name}, {self.origin[1]}"

    @property
    def origin(self) -> tuple[str, str]:
        """The kind of its origin, and its name: the loss of the run, or the file of weights."""
        if self.workdir is None:
            return "weights", str(self.config.model.pretrained)
        return "loss", self.config.loss.name

    @property
    def run(self) -> "TrainedClassifier":
        """The classifier that takes the examples of the run's data set: almost always this one."""
        return self

    @property
    def spec(self) -> DatasetSpec:
        """The data set of the run; none of its files has been read."""
        return self.parts.data.spec

    @property
    def what(self) -> str:
        """An example in words."""
        return self.spec.example

    @property
    def inputs(self) -> str:
        """What it takes, "images" or "features"."""
        return self.spec.inputs

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width and channels of images; the number of features."""
        return tuple(self.parts.data.image_shape)

    @property
    def reader(self) -> ImageReader | None:
        """Makes pixels of image files; None for features."""
        return self.spec.image_reader if self.spec.has_images else None

    @property
    def network_name(self) -> str:
        """The name of the network."""
        return self.config.model.name

    @property
    def classes(self) -> Classes:
        """The classes, by the names that are shown."""
        own = self.parts.data.classes
        return own if self.shown is None else dataclasses.replace(own, names=self.shown)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the parameters."""
        return parameters_digest(self.params)

    def examples(self, inputs: jax.Array) -> jax.Array:
        """Inputs as examples of the run's data set; a pure function."""
        return inputs

    def scores(self) -> Function:
        """uint8 images [n, height, width, channels] or features to scores [n, L]; pure.

        The function raises `TypeError` for inputs of another type, and `ValueError` for inputs of
        another shape.
        """
        if (at := self.results.get("temperature")) is not None:
            logits = self.logits()
            return lambda inputs: temperature.probabilities(logits(inputs), np.float32(at))
        return lambda inputs: self.parts.objective.scores(self._outputs(inputs))

    def logits(self) -> Function:
        """The same inputs to logits [n, L]; see `scores`."""
        return lambda inputs: class_logits(self._outputs(inputs))

    def features(self) -> Function:
        """The same inputs to the features below the head, [n, d]; see `scores`."""
        return lambda inputs: self._outputs(inputs, method=Network.embed)

    def outliers(self, name: str) -> Function:
        """The same inputs to outlier scores [n]; see `outliers.of_classifier`."""
        of_run = outliers.of_classifier(self.run, name)
        return lambda inputs: of_run(self.examples(inputs))

    def _outputs(self, inputs: jax.Array, **how: Any) -> Any:
        """What the network makes of inputs, with its head or with the method given."""
        # Pixels of another type would not be divided by 255.
        if self.spec.has_images and inputs.dtype != np.uint8:
            raise TypeError(f"images must be uint8, got dtype {inputs.dtype}")
        if inputs.shape[1:] != self.shape:
            wanted = ", ".join(map(str, ("n", *self.shape)))
            raise ValueError(f"{self.inputs} must have shape ({wanted}), got shape {inputs.shape}")
        variables = {"params": self.params, "batch_stats": self.batch_stats}
        examples = self.parts.normalize(self.examples(inputs))
        return self.parts.model.apply(variables, examples, **(how or {"train": False}))

    def load_dataset(self) -> Dataset:
        """The data set of the run.

        Raises:
            UserError: it is not prepared on this machine, or is not the one of the run.
        """
        with naming_flags({"config.dataset.path": "--data"}):
            dataset = self.parts.data.dataset
        if not self.parts.data.facts.are_of(facts_of(dataset)):
            where = path_of(self.config.dataset) or self.spec.name
            raise UserError(
                f"{where} is not the data set that the run in --workdir {self.workdir} was trained "
                "on: its classes, their numbers of images or its files differ"
            )
        return dataset

    def split(self, name: str, new_score: str | None = None) -> Scores:
        """The scores of a split of the run's data set; see `score`. They are computed once."""
        found = self._splits.get((name, new_score))
        if found is None:
            examples = self.load_dataset().splits[name]
            if new_score is None:
                found = self.score(examples, name=name)
            else:
                found = self._with_outliers(self.split(name), new_score, examples, name)
            self._splits[name, new_score] = found
        return found

    def score(
        self, examples: Examples, *, new_score: str | None = None, name: str = "new"
    ) -> Scores:
        """The scores of examples; see `Classifier.score`."""
        at = self.results.get("temperature")
        found = evaluation.predict(
            self.parts,
            self.parts.devices.place((self.params, self.batch_stats)),
            examples,
            name=name,
            logits=at is not None,
            shows_progress=True,
        )
        if at is not None:
            found = temperature.with_probabilities(found, at)
        found = dataclasses.replace(found, classes=self.classes)
        return found if new_score is None else self._with_outliers(found, new_score, examples, name)

    def _with_outliers(
        self, found: Scores, new_score: str, examples: Examples, name: str
    ) -> Scores:
        what = f"{new_score} of {name} {self.what}s"
        rows = [rows for _, rows in compute(jax.jit(self.outliers(new_score)), examples, what)]
        measured = np.concatenate([np.zeros(0, np.float32), *rows])
        if number := int(np.isnan(measured).sum()):
            raise UserError(f"new_score: {what} is NaN for {number:,} of {len(measured):,}")
        return dataclasses.replace(found, outliers=measured[found.indices])


def load(
    workdir: Path | str,
    *,
    place: str | None = None,
    taxonomy: str | None = None,
) -> TrainedClassifier:
    """The selected classifier of the run in a workdir.

    Args:
        workdir: the folder of the run.
        place: where its data are now; None for where they were.
        taxonomy: what is above the classes, as `config.dataset.taxonomy`; None for what the run
            has.

    Raises:
        UserError: there is no finished run, or its files are damaged or of another version.
    """
    workdir = Path(workdir)
    run = runs.read_finished(workdir)
    dataset = run.config["dataset"]
    places = {one: place for one in _PLACES if one in dataset and place is not None}
    if place is not None and not places:
        raise UserError(
            f"--data is for data at a place of their own; the run in {workdir} has none of these"
        )
    with within(f"--workdir {workdir} holds a run of another version of the program: "):
        config = parse({**run.config, "dataset": {**dataset, **places}})
    facts = run_folder.read_facts(workdir)
    if taxonomy is not None:
        facts = dataclasses.replace(facts, classes=below(taxonomy, facts.classes))
    if config.compilation_cache:
        processes.use_compilation_cache()
    parts = assemble(config, facts, workdir=workdir)
    selected = _selected(workdir, parts, run.results["best_step"])
    return TrainedClassifier(
        workdir, run.results, parts, selected["params"], selected["batch_stats"]
    )


def below(given: str, classes: Classes) -> Classes:
    """Classes with what --taxonomy has above them, a table with a tree of them."""
    with naming_flags({taxonomy.FIELD: "--taxonomy"}):
        return dataclasses.replace(classes, tree=taxonomy.read(given, classes.names))


def _selected(workdir: Path, parts: Run, step: int) -> Mapping[str, Any]:
    """The selected parameters and batch norm statistics, which a checkpoint has."""
    model = parts.model
    image = np.zeros((1, *parts.data.image_shape), np.float32)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), image, train=True))
    like = {"params": shapes["params"], "batch_stats": shapes.get("batch_stats", {})}
    selected = read_selected(workdir / run_folder.CHECKPOINTS, step)
    if jax.tree.map(np.shape, selected) != jax.tree.map(np.shape, like):
        raise UserError(
            f"--workdir {workdir} holds a run of another version of the program: its network has "
            "other parameters"
        )
    return selected
