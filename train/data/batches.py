"""Batches by their number: a function of only (seed, epoch, position), without state to restore.

Any batch can be read in any order. So workers, processes and resumed runs see the same batches.
"""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.data import class_balance, records, streams
from train.data.class_balance import ClassBalance
from train.data.images import UnreadableImageError
from train.data.records import Records, Split
from train.foundation.errors import UserError

# "images" uint8 [b, ...] or features [b, d], "labels" int32 [b], and "examples" int32 [b], the
# indices of the examples in the split; see `Truths.arrays` for what comes with labels that stand
# for more than one class. Training adds "positions" int32 [b], their indices in the global batch,
# which their random keys are made of. Evaluation adds "mask" bool [b], false for what is not an
# example: the padding of the last batch, and the images that were skipped.
Batch = dict[str, Any]
# The values of `config.dataset.sampling`: an epoch takes every example once, except for a few that
# do not fill a batch, or it takes every class as often.
UNIFORM, CLASS_BALANCED = "uniform", "class_balanced"
# In a batch of streamed images, a list of `SkippedImage`; no array.
SKIPPED = "skipped"
# The advice of messages; also for a run that resumes, or is finished.
LEAVES_OUT = (
    "the command of the run with --config.dataset.skip_unreadable=True leaves such images out"
)


@dataclass(frozen=True)
class SkippedImage:
    """An image that was left out because it cannot be read.

    Attributes:
        image: its name in its source, as the path of a file.
        source: the folder or the prepared split that it is in.
        message: why it cannot be read.
    """

    image: str
    source: str
    message: str


@functools.lru_cache(maxsize=2)
def epoch_order(num_examples: int, *, seed: int, epoch: int) -> np.ndarray:
    """The order of the training examples in an epoch, counted from 0."""
    order = streams.generator(seed, streams.ORDER, epoch).permutation(num_examples)
    order.flags.writeable = False  # The next caller gets the same array.
    return order


def steps_in_epoch(num_examples: int, batch_size: int) -> int:
    """The number of full batches; an epoch leaves out the few examples that do not fill one."""
    return num_examples // batch_size


@dataclass(frozen=True)
class _Batches:
    """The attributes that the batches of training and of evaluation share.

    Attributes:
        split: the examples.
        batch_size: the size of the global batch, a multiple of the number of processes.
        process_index: which share of the batch this process has; shares are consecutive, so that
            the examples on a device do not depend on how the devices are shared out.
        process_count: the number of shares.
        skip_unreadable: whether images that cannot be decoded are left out; otherwise they are an
            error.
    """

    split: Split
    batch_size: int
    process_index: int = 0
    process_count: int = 1
    skip_unreadable: bool = False

    def _share(self) -> np.ndarray:
        """The positions of this process in the global batch."""
        size = self.batch_size // self.process_count
        start = self.process_index * size
        return np.arange(start, start + size, dtype=np.int32)

    def _read(
        self, index: int, read: Callable[[bytes, str], np.ndarray], skipped: list[SkippedImage]
    ) -> np.ndarray | None:
        """The pixels of an image; None for one that is left out, which is added to the list."""
        images = self.split.images
        assert isinstance(images, Records)
        try:
            return read(*images.encoded(index))
        except UnreadableImageError as error:
            if not self.skip_unreadable:
                raise UnreadableImageError(f"{error}; {LEAVES_OUT}") from error
            skipped.append(SkippedImage(images.file_name(index), images.name, str(error)))
            return None


@dataclass(frozen=True, kw_only=True)
class TrainingBatches(_Batches):
    """Full batches without end, by the number of their step, shuffled again in each epoch.

    Attributes:
        seed: the run's seed.
        sampling: how often examples are drawn, `UNIFORM` or `CLASS_BALANCED`.
    """

    seed: int
    sampling: str = UNIFORM

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step, counted from 0."""
        epoch, step_in_epoch = divmod(step, steps_in_epoch(len(self.split), self.batch_size))
        order = self._order(epoch)
        positions = self._share()
        chosen = order[step_in_epoch * self.batch_size + positions]
        batch: Batch = {
            **self.split.truth(chosen),
            "examples": chosen.astype(np.int32),
            "positions": positions,
        }
        if not isinstance(self.split.images, Records):
            return {"images": records.gather(self.split.images, chosen), **batch}
        reader = self.split.images.reader
        draws = streams.generator(self.seed, streams.CROPS, step).random(
            (self.batch_size, reader.change.num_draws)
        )
        skipped: list[SkippedImage] = []
        pixels = np.zeros((len(chosen), *reader.shape), np.uint8)
        for row, index in enumerate(chosen.tolist()):
            read = functools.partial(reader.for_training, draws=draws[positions[row]])
            # The next example of the split replaces one that cannot be read.
            for candidate in itertools.chain(range(index, len(self.split)), range(index)):
                found = self._read(candidate, read, skipped)
                if found is not None:
                    pixels[row] = found
                    batch["examples"][row] = candidate
                    break
            else:
                raise UserError(f"no image of {self.split.images.name} can be read")
        return {
            "images": pixels,
            **batch,
            **self.split.truth(batch["examples"]),
            SKIPPED: skipped,
        }

    def _order(self, epoch: int) -> np.ndarray:
        if self.sampling == UNIFORM:
            return epoch_order(len(self.split), seed=self.seed, epoch=epoch)
        return class_balance.epoch_order(self._class_balance, epoch)

    @functools.cached_property
    def _class_balance(self) -> ClassBalance:
        steps = steps_in_epoch(len(self.split), self.batch_size)
        return ClassBalance.of_labels(
            self.split.labels, num_draws=steps * self.batch_size, seed=self.seed
        )


@dataclass(frozen=True)
class EvaluationBatches(_Batches):
    """Every example once, in order; the last batch is filled up and masked."""

    def __len__(self) -> int:
        """The number of batches, which is the same for every process."""
        return math.ceil(len(self.split) / self.batch_size)

    def __getitem__(self, number: int) -> Batch:
        """A batch, counted from 0."""
        indices = number * self.batch_size + self._share()
        mask = indices < len(self.split)
        # Padding repeats the last example, which is as harmless to compute as any other.
        chosen = np.minimum(indices, len(self.split) - 1)
        batch: Batch = {
            **self.split.truth(chosen),
            "examples": chosen.astype(np.int32),
            "mask": mask,
        }
        if not isinstance(self.split.images, Records):
            return {"images": records.gather(self.split.images, chosen), **batch}
        reader = self.split.images.reader
        skipped: list[SkippedImage] = []
        pixels = np.zeros((len(chosen), *reader.shape), np.uint8)
        for row in np.flatnonzero(mask).tolist():
            found = self._read(int(chosen[row]), reader.for_evaluation, skipped)
            if found is None:
                mask[row] = False
            else:
                pixels[row] = found
        return {"images": pixels, **batch, SKIPPED: skipped}
