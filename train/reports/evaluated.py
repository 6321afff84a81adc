"""How many classes and examples the accuracies of a split are means over."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from topk_jax import metrics

# Names of classes that files list. A split can lack most of a million classes.
_MOST_LISTED = 1000


def to_json(
    labels: np.ndarray,
    num_examples: int,
    class_counts: np.ndarray | None,
    class_names: Sequence[str],
) -> dict[str, Any]:
    """The classes and examples of a split, as files have them.

    A class without examples in the split does not count in its accuracies, however the classes are
    averaged. An example counts for each of its classes.

    Args:
        labels: the classes of the examples of the split, [v].
        num_examples: the number of examples n; less than v if the truth of some is several classes.
        class_counts: the training images of each class, [L], if they are known.
        class_names: the names of the classes.
    """
    counts = np.bincount(labels, minlength=len(class_names))
    shots = {} if class_counts is None else metrics.shot_groups(class_counts)
    groups = {"all": np.ones(len(class_names), np.bool_), **shots}
    absent = np.flatnonzero(counts == 0)
    found = {
        "groups": {
            name: {
                "classes": int(np.count_nonzero(counts[np.asarray(classes)])),
                "examples": int(counts[np.asarray(classes)].sum()),
            }
            for name, classes in groups.items()
        },
        "classes_without_examples": len(absent),
        "named": [class_names[index] for index in absent[:_MOST_LISTED].tolist()],
    }
    return found if num_examples == len(labels) else {**found, "num_examples": num_examples}
