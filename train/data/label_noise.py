"""Label noise: with some probability, a label is replaced by a random label of its group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from train.configuration.datasets import GroupedFields
from train.data import streams

_SIZE = 5
# A constant of the program, not of the run: every run has the same groups.
_ACROSS_SEED = 20261123


@dataclass(frozen=True)
class LabelNoise:
    """The noise of the training labels.

    Attributes:
        probability: the probability that a label is drawn again, uniformly from its group. The draw
            can return the old label: in groups of five, a share of 0.8 of the draws changes it.
        groups: the group of each class.
    """

    probability: float
    groups: tuple[int, ...]


def blocks(num_classes: int) -> tuple[int, ...]:
    """Groups of five consecutive classes.

    The published results on CIFAR-100 have these groups. None of them is a superclass there.
    """
    return tuple(label // _SIZE for label in range(num_classes))


def across(num_classes: int) -> tuple[int, ...]:
    """Groups of five classes that have nothing in common: consecutive ones of a fixed permutation.

    Superclasses, genera and the order of the names have no influence on them.
    """
    order = np.random.default_rng(_ACROSS_SEED).permutation(num_classes)
    return tuple((np.argsort(order) // _SIZE).tolist())


def uniform(num_classes: int) -> tuple[int, ...]:
    """All classes in one group."""
    return (0,) * num_classes


# How classes are grouped whatever they are, by `config.dataset.label_noise_kind`.
GROUPINGS: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    "blocks": blocks,
    "across": across,
    "uniform": uniform,
}


def asked_for(fields: GroupedFields, superclasses: tuple[int, ...]) -> LabelNoise | None:
    """The label noise that `config.dataset` asks for.

    Args:
        fields: `config.dataset`.
        superclasses: the superclass of each class.
    """
    if fields.label_noise == 0:
        return None
    if fields.label_noise_kind == "superclass":
        return LabelNoise(fields.label_noise, superclasses)
    return LabelNoise(fields.label_noise, GROUPINGS[fields.label_noise_kind](len(superclasses)))


def apply(noise: LabelNoise, labels: np.ndarray, *, seed: int) -> np.ndarray:
    """The labels [n] with noise; a label depends only on the old one, the seed and its index.

    The examples that are drawn with a lower probability are also drawn with a higher one.
    """
    # A double takes one draw, so that the draws of an example do not depend on later examples. A
    # bounded integer would take as many draws as it needs.
    draws = streams.generator(seed, streams.LABEL_NOISE).random((len(labels), 2))
    return apply_draws(noise, labels, draws)


def apply_draws(noise: LabelNoise, labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The labels [n] with noise.

    Args:
        noise: the noise.
        labels: the labels, [n].
        draws: two numbers in [0, 1) for each label, [n, 2]: the first decides whether a label is
            drawn again, and the second, which one it becomes.
    """
    groups = np.asarray(noise.groups)
    # The classes, group after group.
    classes = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    own = groups[labels]
    drawn = classes[starts[own] + (draws[:, 1] * sizes[own]).astype(np.int64)]
    return np.where(draws[:, 0] < noise.probability, drawn.astype(labels.dtype), labels)
