"""The predictions of a model for the examples of each batch, as work that processes can share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace

import numpy as np

from train.data.batches import SkippedImage
from train.data.pipeline import Pipeline
from train.sharing.work import Work, arrays_from_bytes, arrays_to_bytes, counting

# Arrays with an entry for each example of a batch, and the images of it that cannot be read.
Rows = tuple[dict[str, np.ndarray], list[SkippedImage]]


def work(
    name: str,
    what: str,
    num_examples: int,
    batch_size: int,
    compute: Callable[[range], Iterator[Rows]],
) -> Work[Rows]:
    """The work of all batches.

    Args:
        name: which examples they have.
        what: what a bar calls it.
        num_examples: the number of examples.
        batch_size: of all batches but the last.
        compute: the rows of each of some batches.
    """

    def decode(content: bytes) -> Rows:
        arrays, skipped = arrays_from_bytes(content)
        return arrays, [SkippedImage(**one) for one in skipped]

    return Work(
        name,
        what,
        "examples",
        -(-num_examples // batch_size),
        counting(num_examples, batch_size),
        compute,
        lambda rows: arrays_to_bytes(rows[0], [asdict(one) for one in rows[1]]),
        decode,
    )


def with_skipped(
    pipeline: Pipeline, compute: Callable[[Pipeline], Iterator[dict[str, np.ndarray]]]
) -> Iterator[Rows]:
    """The rows that are computed of each batch of a pipeline, with the images that it leaves out.

    Args:
        pipeline: the pipeline.
        compute: computes the rows of one batch after another of the pipeline that it gets.
    """
    skipped: list[SkippedImage] = []
    if pipeline.on_skipped is not None:
        pipeline = replace(pipeline, on_skipped=skipped.append)
    for rows in compute(pipeline):
        yield rows, [*skipped]
        skipped.clear()


def told(batches: Iterable[Rows], pipeline: Pipeline) -> Iterator[dict[str, np.ndarray]]:
    """The rows of batches; the pipeline's `on_skipped` is called with the images left out."""
    for rows, skipped in batches:
        for one in skipped:
            if pipeline.on_skipped is not None:
                pipeline.on_skipped(one)
        yield rows
