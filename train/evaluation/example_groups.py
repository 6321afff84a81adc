"""The groups of examples, by number: each is an observation, such as one plant."""

from collections.abc import Sequence

import numpy as np

from train.evaluation.predictions import Predictions

# Comes after the name of any group.
_LAST = "\U0010ffff"


def numbered(groups: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The names of the groups in the order of their first examples, and the numbers of examples.

    Args:
        groups: the group of each example, texts [n]; "" for an example that is a group of its own.

    Returns:
        The names, [m], "" for an example by itself; and for each example the place of its group
        there, [n].
    """
    numbers: dict[str | int, int] = {}
    keys = (name or place for place, name in enumerate(groups))
    of_examples = [numbers.setdefault(key, len(numbers)) for key in keys]
    names = [key if isinstance(key, str) else "" for key in numbers]
    return np.array(names, object), np.array(of_examples, np.int64)


def numbered_by_name(groups: Sequence[str] | np.ndarray) -> np.ndarray:
    """The number of the group of each example [n]; groups are in the order of their names."""
    names, of_examples = numbered(groups)
    order = np.argsort([name or _LAST for name in names], kind="stable")
    places = np.empty(len(names), np.int64)
    places[order] = np.arange(len(names))
    return places[of_examples]


def have_several(examples: Predictions) -> bool:
    """Whether the examples have groups, and one of these has several examples."""
    groups = examples.groups
    return groups is not None and len(numbered(groups)[0]) < len(groups)
