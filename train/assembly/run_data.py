"""The data of a run: its data set, what is known of it, and its batches."""

import dataclasses
from collections.abc import Generator
from functools import cached_property
from pathlib import Path

import jax
import numpy as np

from train.configuration import Config
from train.configuration.datasets import StreamedFields
from train.data import Dataset, DatasetSpec, dataset_spec, look, splits, streaming
from train.data.batches import Batch, Batches
from train.data.classes import Classes
from train.data.examples import Examples
from train.data.look import Looks
from train.data.own_features import FeaturesSpec
from train.data.own_images import OwnImagesSpec
from train.data.taxonomy import ClassTree
from train.devices import processes
from train.foundation.errors import UserError
from train.training import normalization, optimizer
from train.workdir import run_files
from train.workdir.facts import Facts


def facts_of(dataset: Dataset, given: str | None = None) -> Facts:
    """What a run needs to know of its data set, and keeps.

    Args:
        dataset: the data set.
        given: `config.dataset.taxonomy`; None for what the data set has above its classes.
    """
    classes = _counted(dataset.class_names, dataset.train, dataset.tree_named(given))
    return Facts(
        classes,
        dataset.image_shape,
        dataset.digest,
        dataset.mean,
        dataset.std,
        dataset.embedded_by,
    )


class RunData:
    """The data of a run, each part made when it is first used.

    Args:
        config: the configuration.
        facts: what is known of the data set; None to ask the data set.
        workdir: the folder of the run; None for a run without one.

    Attributes:
        config: the configuration.
        unopened: the data set as it is known without its files.
    """

    def __init__(self, config: Config, facts: Facts | None, workdir: Path | None) -> None:
        self.config = config
        self.unopened = dataset_spec(config.dataset)
        self._facts = facts
        self._workdir = workdir

    @cached_property
    def spec(self) -> DatasetSpec:
        """The data set, with what only its files determine, and the normalization of the run."""
        return self.facts.complete(self.unopened)

    @cached_property
    def dataset(self) -> Dataset:
        """The opened data set, the same in all processes."""
        unopened = self.unopened
        if isinstance(unopened, OwnImagesSpec):
            seen = None if self._workdir is None else run_files.read_seen(self._workdir)
            unopened = dataclasses.replace(unopened, seen=seen, look=_look_together)
        elif isinstance(unopened, FeaturesSpec) and self._workdir is not None:
            begun = run_files.has_checkpoints(self._workdir)
            unopened = dataclasses.replace(unopened, is_known=begun)
        dataset = splits.load(unopened, self.config.dataset, seed=self.config.seed)
        parts = dataset.splits.values()
        processes.check_same("the data set", lambda: " ".join([part.digest() for part in parts]))
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
                self.config.model, facts.complete(self.unopened)
            ) or (None, None)
        return facts if mean is None else dataclasses.replace(facts, mean=mean, std=std)

    def _kept_classes(self, found: Classes) -> Classes:
        """The classes as the run counted them at its start."""
        if self._workdir is None or not (self._workdir / run_files.CLASSES).exists():
            return found
        kept = run_files.read_classes(self._workdir)
        # A run of an earlier version kept none.
        if kept.tree not in (None, found.tree) and kept.names == found.names:
            raise UserError(
                f"config.dataset.taxonomy changed since the run in --workdir {self._workdir} "
                "started; give another --workdir"
            )
        return dataclasses.replace(found, tree=kept.tree)

    @property
    def has_images(self) -> bool:
        """Whether the examples are images."""
        return self.unopened.has_images

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of the images, or the number of features."""
        return self.unopened.image_shape or self.facts.image_shape

    @property
    def tree(self) -> ClassTree | None:
        """What is above the classes; None if nothing has two of them."""
        return self.classes.tree

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
        steps_per_epoch = len(self._training)
        if steps_per_epoch == 0:
            raise UserError(
                field="config.dataset.batch_size",
                must_be=f"at most the {len(self.dataset.train)} training examples",
                got=batch_size,
            )
        most_epochs = optimizer.MOST_STEPS // steps_per_epoch
        if self.config.num_epochs > most_epochs:
            raise UserError(
                field="config.num_epochs",
                must_be=f"at most {most_epochs} with {steps_per_epoch} steps an epoch",
                got=self.config.num_epochs,
            )
        return steps_per_epoch

    @cached_property
    def _training(self) -> Batches:
        dataset = self.config.dataset
        return Batches(
            examples=self.dataset.train,
            size=dataset.batch_size,
            seed=self.config.seed,
            sampling=dataset.sampling,
            share=(jax.process_index(), jax.process_count()),
        )

    def training_batches(self, first_step: int) -> Generator[Batch, None, None]:
        """The batches of the steps from `first_step` to the last, to be closed by the caller."""
        last_step = self.config.num_epochs * self.steps_per_epoch
        return streaming.stream(
            self._training, range(first_step, last_step), num_workers=self.num_workers
        )

    @property
    def num_workers(self) -> int:
        """The processes that decode images."""
        dataset = self.config.dataset
        return dataset.num_workers if isinstance(dataset, StreamedFields) else 0


def _look_together(images: Examples) -> Looks:
    """Looks at images, each process at a part of them."""

    def part(places: range) -> np.ndarray:
        return look.look(images.take(np.arange(places.start, places.stop))).to_rows()

    return Looks.of_rows(processes.gather_parts(len(images), part))


def _counted(class_names: tuple[str, ...], train: Examples, tree: ClassTree | None) -> Classes:
    """The classes of training images."""
    number = len(class_names)
    if train.truths is None:
        counts = np.bincount(train.labels, minlength=number)
    else:
        counts = train.truths.class_counts(number)
    return Classes(class_names, tuple(counts.tolist()), tree)
