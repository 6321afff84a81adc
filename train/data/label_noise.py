"""Label noise: with some probability, a label is drawn anew from those of its group."""

from dataclasses import dataclass

import numpy as np

from train.data import streams

BLOCK = 5


@dataclass(frozen=True)
class LabelNoise:
    """The noise of the training labels.

    Attributes:
        probability: the probability that a label is drawn anew, uniformly from its group. The draw
            can return the old label: in groups of five, 0.8 times as many labels change.
        groups: the group of each class.
    """

    probability: float
    groups: tuple[int, ...]


def blocks(num_classes: int) -> tuple[int, ...]:
    """Groups of five consecutive classes.

    The published results on CIFAR-100 have these groups. None of them is a superclass there.
    """
    return tuple(label // BLOCK for label in range(num_classes))


def apply(noise: LabelNoise, labels: np.ndarray, *, seed: int) -> np.ndarray:
    """The labels [n] with noise; that of an example is a function of the seed and its index alone.

    The examples that are drawn anew with a lower probability are among those of a higher one.
    """
    groups = np.asarray(noise.groups)
    members = [np.flatnonzero(groups == group) for group in groups]
    sizes = np.array([len(group) for group in members])
    table = np.zeros((len(groups), sizes.max()), labels.dtype)
    for label, group in enumerate(members):
        table[label, : len(group)] = group
    # A double takes one draw, so that the draws of an example do not depend on later examples. A
    # bounded integer would take as many draws as it needs.
    draws = streams.generator(seed, streams.LABEL_NOISE).random((len(labels), 2))
    drawn = table[labels, (draws[:, 1] * sizes[labels]).astype(np.int64)]
    return np.where(draws[:, 0] < noise.probability, drawn, labels)
