"""A finished run as a classifier: what evaluates, predicts and exports begins here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train import assembly, configuration
from train.data import Dataset, DatasetSpec, dataset_spec
from train.devices import parallel
from train.evaluation import predictions
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.training import steps
from train.training.objectives import Objective
from train.workdir import run_files, terminal
from train.workdir.checkpoint import Checkpointer
from train.workdir.classes import Classes


@dataclass(frozen=True)
class TrainedClassifier:
    """The selected classifier of a finished run.

    Attributes:
        workdir: where the run is.
        config: its configuration, nested.
        results: what its `results.json` holds.
        spec: its data set, of which no file has been read.
        classes: what is known of each class.
        params: the selected parameters.
        batch_stats: batch norm's statistics with them.
    """

    workdir: Path
    config: Mapping[str, Any]
    results: Mapping[str, Any]
    spec: DatasetSpec
    classes: Classes
    params: Any
    batch_stats: Any

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return len(self.classes.names)

    @property
    def class_counts(self) -> np.ndarray:
        """The training images of each class, [L]."""
        return np.array(self.classes.training_images)

    def objective(self) -> Objective:
        """The loss, and how outputs become scores."""
        return assembly.build_objective(self.config, self.class_counts)

    def scores(self) -> Callable[[jax.Array], jax.Array]:
        """uint8 images [n, height, width, channels] to the scores of the classes [n, L]; pure."""
        apply = assembly.build_classifier(self.config, self.num_classes).apply
        objective, normalize = self.objective(), assembly.build_normalize(self.spec)
        variables = {"params": self.params, "batch_stats": self.batch_stats}
        return lambda images: objective.scores(apply(variables, normalize(images), train=False))

    def load_dataset(self) -> Dataset:
        """The data set of the run.

        Raises:
            UserError: it is not prepared on this machine, or not the one of the run.
        """
        dataset = self.spec.load(self.config["dataset"]["data_dir"], seed=self.config["seed"])
        counts = np.bincount(dataset.train.labels, minlength=self.num_classes)
        if dataset.class_names != self.classes.names or not np.array_equal(
            counts, self.class_counts
        ):
            raise UserError(
                f"the prepared data set {self.spec.name} is not the one that the run in --workdir "
                f"{self.workdir} was trained on: its classes or their numbers of images differ"
            )
        return dataset

    def predict(self, dataset: Dataset, split: str) -> Predictions:
        """What the classifier says of a split of the data set, on all devices."""
        devices = parallel.DEVICES[self.config["parallel"]]()
        model = assembly.build_classifier(self.config, self.num_classes)
        eval_step = devices.compile_eval_step(
            steps.make_eval_step(
                model.apply, self.objective(), normalize=assembly.build_normalize(self.spec)
            )
        )
        # The devices here need not be those of the run; the size of a batch changes no result.
        share = math.ceil(self.config["dataset"]["batch_size"] / jax.device_count())
        batch_size = share * jax.device_count()
        pipeline = assembly.build_pipeline(self.config, batch_size)
        examples = getattr(dataset, split)
        return predictions.predict(
            eval_step,
            devices.replicate(self.params),
            devices.replicate(self.batch_stats),
            terminal.tracked(
                pipeline.evaluation(examples),
                total=math.ceil(len(examples) / batch_size),
                what=f"{split} images",
            ),
            devices,
        )


def load(workdir: Path) -> TrainedClassifier:
    """The selected classifier of the run in a workdir.

    Raises:
        UserError: there is no finished run, or its files are damaged or of another version.
    """
    config, results = _finished_run(workdir)
    try:
        configuration.check(config)
    except UserError as error:
        raise UserError(
            f"--workdir {workdir} holds a run of another version of the program: {error}"
        ) from error
    spec = dataset_spec(config["dataset"])
    classes = run_files.read_classes(workdir)
    if spec.num_classes not in (None, len(classes.names)):
        raise UserError(
            f"--workdir {workdir} has {len(classes.names)} classes in its classes.json, and "
            f"{spec.num_classes} in its configuration"
        )
    params, batch_stats = _selected(workdir, config, classes, spec)
    return TrainedClassifier(workdir, config, results, spec, classes, params, batch_stats)


def _finished_run(workdir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not workdir.is_dir():
        raise UserError(f"--workdir must be the folder of a finished run; there is no {workdir}")
    config = run_files.read_config(workdir)
    if config is None:
        raise UserError(f"--workdir must be the folder of a finished run; {workdir} holds no run")
    results = run_files.read_results(workdir)
    if results is None:
        raise UserError(
            f"--workdir must be the folder of a finished run; that in {workdir} is not finished: "
            "the command that started it goes on with it"
        )
    return config, results


def _selected(
    workdir: Path, config: Mapping[str, Any], classes: Classes, spec: DatasetSpec
) -> tuple[Any, Any]:
    """The selected parameters, and the statistics with them."""
    model = assembly.build_classifier(config, len(classes.names))
    image = np.zeros((1, *spec.image_shape), np.float32)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), image, train=True))
    like = {"params": shapes["params"], "batch_stats": shapes.get("batch_stats", {})}
    with Checkpointer(workdir / run_files.CHECKPOINTS) as checkpointer:
        selected = checkpointer.restore_selected(like)
    return selected["params"], selected["batch_stats"]
