"""Real handwritten digits as features, some of whose labels are wrong."""

import numpy as np
import sklearn.datasets

PART = 0.05


def digits():
    """Features, labels of which `PART` are drawn from the other classes, and which are wrong."""
    features, labels = sklearn.datasets.load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    is_wrong = np.zeros(len(labels), bool)
    is_wrong[rng.choice(len(labels), round(PART * len(labels)), replace=False)] = True
    others = (labels + rng.integers(1, 10, size=len(labels))) % 10
    return features.astype(np.float32), np.where(is_wrong, others, labels), is_wrong


def found_early(order, is_wrong, part=0.1):
    """The share of the wrong labels that are in the first part of an order."""
    return is_wrong[order[: round(part * len(order))]].sum() / is_wrong.sum()
