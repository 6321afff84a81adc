"""The data of a run: its data set, what is known of it, and its batches."""

import dataclasses
from collections.abc import Generator
from functools import cached_property
from pathlib import Path

import jax
import numpy as np

from train.configuration import Config
from train.configuration.datasets import StreamedFields, path_of
from train.data import Dataset, DatasetSpec, dataset_spec, look, splits, streaming
from train.data.batches import Batch, Batches
from train.data.classes import Classes
from train.data.examples import Examples
from train.data.look import Looks
from train.data.own_images import OwnImagesSpec
from train.devices import processes
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.reports import metric, summaries
from train.reports.metric import Metric
from train.run import run_folder, transfer
from train.run.run_folder import Facts
from train.training import optimizer


class RunData:
    """The data of a run, each part made when it is first used: a finished run opens no data set.

    Args:
        config: the configuration.
        facts: what is known of the data set; None to ask the data set.
        workdir: the folder of the run; None for a run without one.

    Attributes:
        given: the configuration, as the folder of the run has it.
    """

    def __init__(self, config: Config, facts: Facts | None, workdir: Path | None) -> None:
        self.given = config
        self._unopened = dataset_spec(config.dataset)
        self._facts = facts
        self._workdir = workdir

    @cached_property
    def config(self) -> Config:
        """The configuration without sizes of sets that hold all classes."""
        given = self.given
        ks, select_by = metric.of_classes(given.eval.ks, given.select_by, self.num_classes)
        evaluation = dataclasses.replace(given.eval, ks=ks)
        return dataclasses.replace(given, eval=evaluation, select_by=select_by.name)

    @cached_property
    def spec(self) -> DatasetSpec:
        """The data set, with what only its files determine, and the normalization of the run."""
        return self.facts.complete(self._unopened)

    @cached_property
    def dataset(self) -> Dataset:
        """The opened data set, the same in all processes."""
        unopened, workdir = self._unopened, self._workdir
        if isinstance(unopened, OwnImagesSpec):
            seen = None if workdir is None else run_folder.read_seen(workdir)
            unopened = dataclasses.replace(unopened, seen=seen, look=_look_together)
        dataset = splits.load(unopened, self.given.dataset, seed=self.given.seed)
        parts = dataset.splits.values()
        processes.check_same("the data set", lambda: " ".join([part.digest() for part in parts]))
        return dataset

    @cached_property
    def facts(self) -> Facts:
        """What is known about the data set, and the run's own normalization if it has one."""
        if self._facts is not None:
            return self._facts
        found = facts_of(self.dataset, self.given.dataset.taxonomy)
        if self._workdir is None or not run_folder.has_checkpoints(self._workdir):
            return transfer.normalized(found, self._unopened, self.given.model)
        kept = run_folder.read_facts(self._workdir)
        if kept != found:
            which = path_of(self.given.dataset) or f"the data set {self._unopened.name}"
            raise UserError(
                f"{which} does not have the files, labels, taxonomy and splits that the run in "
                f"--workdir {self._workdir} started with; give another --workdir"
            )
        return dataclasses.replace(found, mean=kept.mean, std=kept.std)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of the images, or the number of features."""
        return self.facts.image_shape

    @property
    def classes(self) -> Classes:
        """The names of the classes and their numbers of training images."""
        return self.facts.classes

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return len(self.classes)

    @property
    def class_counts(self) -> np.ndarray:
        """The training images of each class, [L]."""
        return np.array(self.classes.training_images)

    @property
    def num_workers(self) -> int:
        """The processes that decode images."""
        dataset = self.config.dataset
        return dataset.num_workers if isinstance(dataset, StreamedFields) else 0

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

    @cached_property
    def steps_per_epoch(self) -> int:
        """The full batches of an epoch."""
        return len(self._training)

    def training_batches(self, first_step: int) -> Generator[Batch, None, None]:
        """The batches of the steps from `first_step` to the last, to be closed by the caller."""
        steps = range(first_step, self.config.num_epochs * self.steps_per_epoch)
        return streaming.stream(self._training, steps, num_workers=self.num_workers)

    def check(self) -> None:
        """Refuses what cannot be trained with, or selected by, before anything is written."""
        if self.steps_per_epoch == 0:
            raise UserError(
                field="config.dataset.batch_size",
                must_be=f"at most the {len(self.dataset.train)} training examples",
                got=self.config.dataset.batch_size,
            )
        _, labels = self.dataset.validation.entries()
        summaries.check_has_value(Metric.parse(self.config.select_by), labels, self.classes)

    def show(self) -> None:
        """Prints what was found in the data, before the first step, which takes long."""
        dataset, config = self.dataset, self.config
        parts = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
        sizes = ", ".join(
            f"{len(part):,} {name}"
            + ("" if part.groups is None else f" in {part.num_groups:,} groups")
            for name, part in parts.items()
        )
        show_line(
            f"{self.num_classes:,} classes; {self.spec.example}s: {sizes}; the first step is "
            "compiled, which can take a minute"
        )
        if dataset.train.truths is not None:
            show_line(dataset.train.truths.in_words())
        if left_out := set(self.given.eval.ks) - set(config.eval.ks):
            show_line(
                f"sets of {', '.join(map(str, sorted(left_out)))} are left out, because there are "
                f"{self.num_classes} classes (config.eval.ks); epochs are selected by "
                f"{config.select_by}"
            )
        warmup = optimizer.warmup_epochs(config.optimizer, config.num_epochs)
        if warmup < config.optimizer.warmup_epochs:
            show_line(
                f"the warm-up takes {warmup:g} epochs, half of the run, in place of "
                f"{config.optimizer.warmup_epochs:g} (config.optimizer.warmup_epochs)"
            )
        if self.spec.has_images and self.facts.mean is not None:
            mean, std = (
                ", ".join(f"{x:.3g}" for x in one) for one in (self.spec.mean, self.spec.std)
            )
            show_line(f"images are normalized by the mean {mean} and the deviation {std}")


def facts_of(dataset: Dataset, taxonomy: str | None = None) -> Facts:
    """What a run needs to know of its data set, and keeps.

    Args:
        dataset: the data set.
        taxonomy: `config.dataset.taxonomy`; None for what the data set has above its classes.
    """
    train, number = dataset.train, dataset.num_classes
    if train.truths is None:
        counts = np.bincount(train.labels, minlength=number)
    else:
        counts = train.truths.class_counts(number)
    tree = dataset.tree_named(taxonomy)
    return Facts(
        Classes(dataset.class_names, tuple(counts.tolist()), tree),
        dataset.image_shape,
        dataset.digest,
        dataset.mean,
        dataset.std,
        dataset.embedded_by,
    )


def _look_together(images: Examples) -> Looks:
    """Looks at images, each process at a part of them."""

    def part(places: range) -> np.ndarray:
        return look.look(images.take(np.arange(places.start, places.stop))).to_rows()

    return Looks.of_rows(processes.gather_parts(len(images), part))
