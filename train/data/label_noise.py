"""Wrong labels on purpose: with some probability, a label drawn from those of its group."""

from dataclasses import dataclass

import numpy as np

from train.data import streams

BLOCK = 5


@dataclass(frozen=True)
class LabelNoise:
    """What is done to the labels of the training part.

    Attributes:
        probability: how often a label is drawn anew, uniformly from its group; the draw can give
            the label back, so that in groups of five 0.8 times as many change.
        groups: the group of each class.
    """

    probability: float
    groups: tuple[int, ...]


def blocks(num_classes: int) -> tuple[int, ...]:
    """Groups of five consecutive classes.

    The groups behind the published results on CIFAR-100, where none of them is a superclass.
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
    # Doubles take one draw each, so that an example's do not depend on how many come after it;
    # bounded integers take as many as they need.
    draws = streams.generator(seed, streams.LABEL_NOISE).random((len(labels), 2))
    drawn = table[labels, (draws[:, 1] * sizes[labels]).astype(np.int64)]
    return np.where(draws[:, 0] < noise.probability, drawn, labels)
