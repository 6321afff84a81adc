"""Streams of batches: gathered from memory when needed, or decoded from records ahead of time."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from train.data.batches import (
    SKIPPED,
    UNIFORM,
    Batch,
    EvaluationBatches,
    SkippedImage,
    TrainingBatches,
)
from train.data.records import Records, Split
from train.foundation.errors import UserError


@dataclass
class Pipeline:
    """How a run reads its examples.

    Attributes:
        batch_size: the size of the global batch, a multiple of the number of processes.
        seed: the run's seed; the order and the crops are functions of it.
        process_index: the index of this process, which reads that share of every batch.
        process_count: the number of processes, and so of shares.
        num_workers: the number of processes that decode streamed images.
        on_skipped: called with each image that is left out because it cannot be read, each time;
            None if such an image ends the run.
        sampling: `config.dataset.sampling`.
    """

    batch_size: int
    seed: int
    process_index: int = 0
    process_count: int = 1
    num_workers: int = 0
    on_skipped: Callable[[SkippedImage], None] | None = None
    sampling: str = UNIFORM

    def __post_init__(self) -> None:
        if self.batch_size % self.process_count:
            # Rounded down, the shares would leave examples out, of evaluation too.
            raise UserError(
                field="config.dataset.batch_size",
                must_be=f"a multiple of the {self.process_count} processes",
                got=self.batch_size,
            )

    def training(
        self, split: Split, *, first_step: int, last_step: int
    ) -> Generator[Batch, None, None]:
        """The batches of steps `first_step` to `last_step - 1`; close it to stop earlier."""
        batches = TrainingBatches(
            split,
            self.batch_size,
            self.process_index,
            self.process_count,
            self.on_skipped is not None,
            seed=self.seed,
            sampling=self.sampling,
        )
        return self._stream(split, batches, range(first_step, last_step))

    def evaluation(
        self, split: Split, numbers: range | None = None
    ) -> Generator[Batch, None, None]:
        """Every example of a split once.

        Args:
            split: the split.
            numbers: the batches, by their numbers; by default all.
        """
        batches = EvaluationBatches(
            split,
            self.batch_size,
            self.process_index,
            self.process_count,
            self.on_skipped is not None,
        )
        return self._stream(split, batches, range(len(batches)) if numbers is None else numbers)

    def _stream(
        self, split: Split, batches: TrainingBatches | EvaluationBatches, numbers: range
    ) -> Generator[Batch, None, None]:
        if not isinstance(split.images, Records):
            # Gathering takes a hundredth of a step: reading ahead would gain nothing.
            yield from (batches[number] for number in numbers)
            return
        # Imported here because Grain takes long to import, and only streamed data sets need it.
        from train.data import large_images  # noqa: PLC0415

        for batch in large_images.stream(batches, numbers, num_workers=self.num_workers):
            skipped = batch.pop(SKIPPED)
            if self.on_skipped is not None:
                for one in skipped:
                    self.on_skipped(one)
            yield batch
