"""The data of a run: its data set, what is known of it, and its batches."""

import dataclasses
import json
from collections.abc import Generator, Iterable
from functools import cached_property, partial
from pathlib import Path

import jax
import numpy as np

from train.configuration import Config
from train.configuration.datasets import OwnImageFields, StreamedFields, path_of
from train.data import Dataset, DatasetSpec, dataset_spec, taxonomy
from train.data.batches import Batch, steps_in_epoch
from train.data.pipeline import Pipeline
from train.data.records import Split
from train.data.taxonomy import ClassTree
from train.devices import processes
from train.foundation.errors import UserError
from train.training import normalization, optimizer
from train.training.state import parameters_digest
from train.workdir import run_files
from train.workdir.classes import Classes
from train.workdir.facts import Facts
from train.workdir.skipped_images import SkippedImages


def facts_of(dataset: Dataset, given: str | None = None) -> Facts:
    """What a run needs to know of its data set, and keeps.

    Args:
        dataset: the data set.
        given: `config.dataset.taxonomy`; None for what the data set has above its classes.
    """
    tree = dataset.tree if given is None else taxonomy.read(given, dataset.class_names)
    classes = _counted(dataset.class_names, dataset.train, tree)
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
        skipped: the unreadable images that were left out.
    """

    def __init__(self, config: Config, facts: Facts | None, workdir: Path | None) -> None:
        self.config = config
        self.unopened = dataset_spec(config.dataset)
        self.skipped = SkippedImages(workdir)
        self._facts = facts
        self._workdir = workdir

    @cached_property
    def spec(self) -> DatasetSpec:
        """The data set, with what only its files determine, and the normalization of the run."""
        return self.facts.complete(self.unopened)

    @cached_property
    def dataset(self) -> Dataset:
        """The opened data set, the same in all processes."""
        files = None if self._workdir is None else run_files.read_listed(self._workdir)
        unopened = self.unopened if files is None else self.unopened.going_on(files)
        # The first use prepares some data sets.
        dataset = processes.first_then_others(
            lambda: unopened.load(self.config.dataset.data_dir, seed=self.config.seed)
        )
        labels = [
            split.labels if split.truths is None else split.truths.to_plain()
            for split in dataset.splits.values()
        ]
        known = [dataset.digest, dataset.class_names]
        processes.check_same(
            "the data set", lambda: json.dumps([parameters_digest(labels), *known])
        )
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
        """The classes as the run counted them at its start, possibly without unreadable images."""
        if self._workdir is None or not (self._workdir / run_files.CLASSES).exists():
            return found
        kept = run_files.read_classes(self._workdir)
        # A run of an earlier version kept none.
        if kept.tree not in (None, found.tree) and kept.names == found.names:
            raise UserError(
                f"config.dataset.taxonomy changed since the run in --workdir {self._workdir} "
                "started; give another --workdir"
            )
        if isinstance(self.config.dataset, OwnImageFields) and kept.are_some_of(found):
            return kept
        return dataclasses.replace(found, tree=kept.tree)

    def leave_out(self, indices: Iterable[int]) -> None:
        """Subtracts training images from the numbers of their classes, in a new run.

        Args:
            indices: the images that cannot be read, by their indices in the split.
        """
        train = self.dataset.train
        kept = np.delete(np.arange(len(train)), list(indices))
        classes = _counted(self.dataset.class_names, train.take(kept), self.classes.tree)
        self.facts = dataclasses.replace(self.facts, classes=classes)

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
        steps_per_epoch = steps_in_epoch(len(self.dataset.train), batch_size)
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

    def training_batches(self, first_step: int) -> Generator[Batch, None, None]:
        """The batches of the steps from `first_step` to the last, to be closed by the caller."""
        pipeline = self.pipeline(self.config.dataset.batch_size, "train")
        last_step = self.config.num_epochs * self.steps_per_epoch
        return pipeline.training(self.dataset.train, first_step=first_step, last_step=last_step)

    def pipeline(self, batch_size: int, split: str) -> Pipeline:
        """What reads the examples of a split in batches."""
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

    def none_can_be_read(self, number: int, what: str, path: str | None = None) -> UserError:
        """The error if no example can be read.

        Args:
            number: the number of examples.
            what: what they are, in words.
            path: where they are; None for the place of the data set.
        """
        place = path or path_of(self.config.dataset) or self.spec.name
        return UserError(f"none of the {number} {what} of {place} can be read")


def _counted(class_names: tuple[str, ...], train: Split, tree: ClassTree | None) -> Classes:
    """The classes of training images."""
    number = len(class_names)
    if train.truths is None:
        counts = np.bincount(train.labels, minlength=number)
    else:
        counts = train.truths.class_counts(number)
    return Classes(class_names, tuple(counts.tolist()), tree)
