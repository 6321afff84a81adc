"""The predictions of a model for the examples of each batch, as work that processes can share."""

from collections.abc import Callable, Iterator

import numpy as np

from train.sharing.work import Work, arrays_from_bytes, arrays_to_bytes, counting


def work(
    name: str,
    what: str,
    num_examples: int,
    batch_size: int,
    compute: Callable[[range], Iterator[dict[str, np.ndarray]]],
) -> Work[dict[str, np.ndarray]]:
    """The work of all batches.

    Args:
        name: which examples they have.
        what: what a bar calls it.
        num_examples: the number of examples.
        batch_size: of all batches but the last.
        compute: arrays with an entry for each example, of each of some batches.
    """
    return Work(
        name,
        what,
        "examples",
        -(-num_examples // batch_size),
        counting(num_examples, batch_size),
        compute,
        arrays_to_bytes,
        lambda content: arrays_from_bytes(content)[0],
    )
