"""From labels that people gave to the truths of examples."""

import numpy as np

from train.data.own.determinations import Determinations, Reading
from train.data.truths import SEVERAL, Truths

# Votes that are equal but for rounding.
_ROUNDING = 1e-9


def truths_of(
    given: Determinations, classes: np.ndarray, num_classes: int, reading: Reading
) -> Truths:
    """The truths of the examples.

    Args:
        given: the labels.
        classes: their classes, [v].
        num_classes: the number of all classes.
        reading: what the labels are, and how votes become plausibilities.
    """
    pairs = given.examples * num_classes + classes
    unique, of_pairs = np.unique(pairs, return_inverse=True)
    examples, found = np.divmod(unique, num_classes)
    weights = np.bincount(of_pairs, given.weights)
    if reading.labels == SEVERAL:
        weights = np.ones_like(weights)
    elif reading.votes == "majority":
        most = np.zeros(int(examples.max()) + 1)
        np.maximum.at(most, examples, weights)
        # Classes with equally many votes are equally plausible.
        chosen = weights >= most[examples] * (1 - _ROUNDING)
        examples, found, weights = examples[chosen], found[chosen], np.ones(chosen.sum())
    return Truths.of_entries(examples, found, weights, reading.labels)
