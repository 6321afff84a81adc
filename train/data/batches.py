"""Batches by their number: a function of only (seed, epoch, position), without state to restore.

Any batch can be read in any order. So workers, processes and resumed runs see the same batches.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.data import streams
from train.data.examples import Examples
from train.foundation.errors import UserError

# "images" uint8 [b, ...] or features [b, d], "labels" int32 [b], and "examples" int32 [b], the
# indices of the examples; see `Truths.arrays` for what comes with labels that stand for more than
# one class. Training adds "positions" int32 [b], their indices in the global batch, which their
# random keys are made of. Evaluation adds "mask" bool [b], false for the padding of the last batch.
Batch = dict[str, Any]
# The values of `config.dataset.sampling`: an epoch takes every example once, except for a few that
# do not fill a batch, or it takes every class as often, to within one.
UNIFORM, CLASS_BALANCED = "uniform", "class_balanced"


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches of some examples, of which a process reads its share.

    Attributes:
        examples: the examples.
        size: the size of the global batch, a multiple of the number of processes.
        seed: the run's seed, for training: full batches without end, shuffled again in each epoch.
            None for evaluation: every example once, in order; the last batch is filled and masked.
        sampling: how often training draws examples, `UNIFORM` or `CLASS_BALANCED`.
        share: the index of the process, and the number of processes. Shares are consecutive, so
            that the examples on a device do not depend on how the devices are shared out.
    """

    examples: Examples
    size: int
    seed: int | None = None
    sampling: str = UNIFORM
    share: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if self.size % self.share[1]:
            # Rounded down, the shares would leave examples out, of evaluation too.
            raise UserError(
                field="config.dataset.batch_size",
                must_be=f"a multiple of the {self.share[1]} processes",
                got=self.size,
            )

    def __len__(self) -> int:
        """The batches of an epoch."""
        full, rest = divmod(len(self.examples), self.size)
        return full + (self.seed is None and rest > 0)

    def __getitem__(self, number: int) -> Batch:
        """A batch, counted from 0.

        Raises:
            UnreadableImageError: an image cannot be read.
        """
        own = self.size // self.share[1]
        positions = np.arange(self.share[0] * own, (self.share[0] + 1) * own, dtype=np.int32)
        extra: Batch
        if self.seed is None:
            chosen = number * self.size + positions
            extra = {"mask": chosen < len(self.examples)}
            # Padding repeats the last example, which is as harmless to compute as any other.
            chosen = np.minimum(chosen, len(self.examples) - 1)
            rows = np.flatnonzero(extra["mask"])
        else:
            epoch, step = divmod(number, len(self))
            chosen = self._order(epoch)[step * self.size + positions]
            extra = {"positions": positions}
            rows = np.arange(own)
        return {
            "images": self._inputs(number, chosen, rows, positions),
            **self.examples.truth(chosen),
            "examples": chosen.astype(np.int32),
            **extra,
        }

    def _inputs(
        self, number: int, chosen: np.ndarray, rows: np.ndarray, positions: np.ndarray
    ) -> np.ndarray:
        """The inputs of the chosen examples of a batch; only some rows are decoded."""
        examples, reader = self.examples, self.examples.reader
        if not examples.are_encoded:
            return examples.rows(chosen)
        assert reader is not None
        pixels = np.zeros((len(chosen), *reader.shape), np.uint8)
        draws = None
        if self.seed is not None:
            # Those of the whole batch, so that no image has others in another process.
            generator = streams.generator(self.seed, streams.CROPS, number)
            draws = generator.random((self.size, reader.change.num_draws))[positions]
        for row in rows.tolist():
            encoded, name = examples.encoded(chosen[row]), examples.name(chosen[row])
            pixels[row] = (
                reader.for_evaluation(encoded, name)
                if draws is None
                else reader.for_training(encoded, name, draws[row])
            )
        return pixels

    def _order(self, epoch: int) -> np.ndarray:
        """The examples of an epoch in their order."""
        assert self.seed is not None
        if self.sampling == UNIFORM:
            return _shuffled(len(self.examples), self.seed, epoch)
        labels = self.examples.labels.astype("<i4")
        return _balanced(labels.tobytes(), len(self) * self.size, self.seed, epoch)


@functools.lru_cache(maxsize=2)
def _shuffled(num_examples: int, seed: int, epoch: int) -> np.ndarray:
    order = streams.generator(seed, streams.ORDER, epoch).permutation(num_examples)
    order.flags.writeable = False  # The next caller gets the same array.
    return order


@functools.lru_cache(maxsize=2)
def _balanced(labels: bytes, num_draws: int, seed: int, epoch: int) -> np.ndarray:
    """Examples of all classes equally often, to within one; each takes turns in its class."""
    draws = streams.generator(seed, streams.ORDER, epoch)
    of_example = np.frombuffer(labels, "<i4")
    _, sizes = np.unique(of_example, return_counts=True)
    by_class = np.split(np.argsort(of_example, kind="stable"), np.cumsum(sizes)[:-1])
    each, rest = divmod(num_draws, len(by_class))
    more = draws.permutation(len(by_class)) < rest
    drawn = [
        np.resize(draws.permutation(examples), each + one)
        for examples, one in zip(by_class, more.tolist(), strict=True)
    ]
    order = draws.permutation(np.concatenate(drawn))
    order.flags.writeable = False
    return order
