"""The groups of examples, by number: each is an observation, such as one plant."""

import numpy as np

from train.evaluation.predictions import Predictions


def numbered(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The names of the groups in the order of their first examples, and the numbers of examples.

    Args:
        names: the name of the group of each example, [n].

    Returns:
        The names, [m], and for each example the place of its group there, [n].
    """
    numbers: dict[str, int] = {}
    of_examples = [numbers.setdefault(name, len(numbers)) for name in names]
    return np.array([*numbers], object), np.array(of_examples, np.int64)


def have_several(examples: Predictions) -> bool:
    """Whether the examples have groups, and one of these has several examples."""
    return examples.groups is not None and len(set(examples.groups)) < len(examples.groups)
