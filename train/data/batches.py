"""Batches of examples in memory, in an order that depends on (seed, epoch, position) alone."""

from collections.abc import Iterator

import numpy as np

from train.data.records import Split

# "images" uint8 [b, ...] and "labels" int32 [b]. Training adds "positions" int32 [b], the places of
# the examples in the global batch, which their random keys are made of; evaluation adds "mask"
# bool [b], false for the padding of the last batch.
Batch = dict[str, np.ndarray]


def epoch_order(num_examples: int, *, seed: int, epoch: int) -> np.ndarray:
    """The order of the training examples in an epoch, counted from 0."""
    return np.random.default_rng([seed, epoch]).permutation(num_examples)


def steps_in_epoch(num_examples: int, batch_size: int) -> int:
    """The number of full batches; an epoch leaves out the few examples that do not fill one."""
    return num_examples // batch_size


def training_batches(
    split: Split, *, batch_size: int, seed: int, first_step: int
) -> Iterator[Batch]:
    """Endless full batches from `first_step` on, shuffled anew in each epoch."""
    steps = steps_in_epoch(len(split), batch_size)
    epoch, step = divmod(first_step, steps)
    positions = np.arange(batch_size, dtype=np.int32)
    while True:
        order = epoch_order(len(split), seed=seed, epoch=epoch)
        for start in range(step * batch_size, steps * batch_size, batch_size):
            chosen = order[start : start + batch_size]
            yield {
                "images": split.images[chosen],
                "labels": split.labels[chosen],
                "positions": positions,
            }
        epoch, step = epoch + 1, 0


def evaluation_batches(split: Split, *, batch_size: int) -> Iterator[Batch]:
    """Every example once, in order; the last batch is filled up and masked."""
    for start in range(0, len(split), batch_size):
        positions = np.arange(start, start + batch_size, dtype=np.int32)
        mask = positions < len(split)
        # Padding repeats the last example, so that it is as harmless to compute as any.
        chosen = np.minimum(positions, len(split) - 1)
        yield {
            "images": split.images[chosen],
            "labels": split.labels[chosen],
            "mask": mask,
        }
