"""How many classes and examples the accuracies of a split are means over."""

from collections.abc import Mapping, Sequence
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
    averaged.

    Args:
        labels: the classes of the examples of the split, [v].
        num_examples: the number of examples n; less than v if the truth of some is several classes.
        class_counts: the training images of each class, which make it few, medium or many shot,
            [L]; if None, there are no groups of these names.
        class_names: the names of the classes.

    Returns:
        "groups": for all classes, and for the classes of each shot, the number of classes that have
        examples, and of their examples; an example counts for each of its classes;
        "classes_without_examples": the number of other classes; "named": the names of the first of
        them; "num_examples": n, if it is less than v.
    """
    counts = np.bincount(labels, minlength=len(class_names))
    groups = {"all": np.ones(len(class_names), np.bool_)}
    if class_counts is not None:
        groups |= {
            shot: np.asarray(classes) for shot, classes in metrics.shot_groups(class_counts).items()
        }
    absent = np.flatnonzero(counts == 0)
    return {
        "groups": {
            name: {
                "classes": int(np.count_nonzero(counts[classes])),
                "examples": int(counts[classes].sum()),
            }
            for name, classes in groups.items()
        },
        "classes_without_examples": len(absent),
        "named": [class_names[index] for index in absent[:_MOST_LISTED].tolist()],
        **({} if num_examples == len(labels) else {"num_examples": num_examples}),
    }


def num_examples(found: Mapping[str, Any]) -> int:
    """The number of examples of a split, from what `to_json` returned."""
    return int(found.get("num_examples", found["groups"]["all"]["examples"]))
