"""Class-balanced sampling: an epoch draws all classes equally often, whatever their sizes.

The draws of all epochs are numbered, and draw i has the class i mod C; C is the number of classes
that have examples. So each class is drawn as often as any other, to within one draw, in each epoch
and in all epochs together. The draws of a class go through its examples in passes, each in an order
of its own: no example is drawn again before all others of its class were. The classes of the draws
of an epoch are shuffled, which keeps the passes in their order.

Like all orders, the order of an epoch depends only on the seed and the epoch.
"""

import functools
import math
import threading
from dataclasses import dataclass

import numpy as np

from train.data import streams

_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class ClassBalance:
    """What the orders of all epochs have in common.

    Attributes:
        classes: the examples of each class that has any.
        num_draws: the draws of an epoch.
        seed: the run's seed.
    """

    classes: tuple[np.ndarray, ...]
    num_draws: int
    seed: int

    @classmethod
    def of_labels(cls, labels: np.ndarray, *, num_draws: int, seed: int) -> "ClassBalance":
        """The balance of the examples with the given labels, [n]."""
        _, sizes = np.unique(labels, return_counts=True)
        by_class = np.argsort(labels, kind="stable")
        return cls(tuple(np.split(by_class, np.cumsum(sizes)[:-1])), num_draws, seed)


def epoch_order(balance: ClassBalance, epoch: int) -> np.ndarray:
    """The examples that are drawn in an epoch, counted from 0, in their order, [num_draws]."""
    # The threads that decode come to a new epoch together: one of them makes its order for all.
    with _lock:
        return _made_order(balance, epoch)


@functools.lru_cache(maxsize=2)
def _made_order(balance: ClassBalance, epoch: int) -> np.ndarray:
    num_classes, first_draw = len(balance.classes), epoch * balance.num_draws
    order = np.empty(balance.num_draws, np.int64)
    shuffled = streams.generator(balance.seed, streams.ORDER, epoch).permutation(balance.num_draws)
    for index, examples in enumerate(balance.classes):
        place = (index - first_draw) % num_classes
        of_class = np.sort(shuffled[place::num_classes])
        earlier = (first_draw + place) // num_classes
        order[of_class] = examples[_in_passes(balance, index, earlier, len(of_class))]
    order.flags.writeable = False  # The next caller gets the same array.
    return order


def _in_passes(balance: ClassBalance, index: int, first: int, count: int) -> np.ndarray:
    """The draws `first` to `first + count - 1` of a class, as indices into its examples."""
    num_classes, size = len(balance.classes), len(balance.classes[index])
    # A generator for each pass of a small class would take long. A generator makes a block of
    # passes that holds the draws of an epoch, so these are in at most two blocks.
    passes = math.ceil(math.ceil(balance.num_draws / num_classes) / size)
    unshuffled = np.tile(np.arange(size), (passes, 1))
    first_block, start = divmod(first, unshuffled.size)
    last_block = (first + count) // unshuffled.size
    blocks = [
        streams.generator(balance.seed, streams.CLASS_PASSES, block * num_classes + index)
        .permuted(unshuffled, axis=1)
        .ravel()
        for block in range(first_block, last_block + 1)
    ]
    return np.concatenate(blocks)[start : start + count]
