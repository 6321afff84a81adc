"""The losses that know the class counts, in the battery."""

import numpy as np

from tests.topk_jax.losses.battery import NUM_CLASSES, numbers, per_example


def _counts(num_classes):
    """A tenfold imbalance, with equal counts where there are many classes."""
    return np.geomspace(100, 10, num_classes).round().astype(np.int32)


COUNTS_REFUSALS = (
    ({"class_counts": [3, 2]}, ValueError, r"class_counts must have .* 8 classes, got shape \(2,"),
    ({"class_counts": 3}, ValueError, r"class_counts must have .* 8 classes, got shape \(\)"),
    (
        {"class_counts": [1] * (NUM_CLASSES - 1) + [0]},
        ValueError,
        "class_counts must be positive and finite for each class, got 0 for class 7",
    ),
    ({"class_counts": "12"}, TypeError, "class_counts must be a real number or array, got str"),
    ({"class_counts": [1j] * NUM_CLASSES}, TypeError, "class_counts must be real, got dtype"),
)
_TAU = numbers("tau", too_small=-0.5, bound="at least 0")

CASES = [
    per_example(
        "logit_adjusted_cross_entropy",
        "logit_adjusted_cross_entropy",
        parameters={"class_counts": _counts, "tau": 1.25},
        refusals=COUNTS_REFUSALS + _TAU,
    ),
    per_example(
        "vector_scaling",
        "vector_scaling",
        parameters={"class_counts": _counts, "gamma": 0.5, "tau": 0.75},
        refusals=COUNTS_REFUSALS + _TAU + numbers("gamma", too_small=-0.5, bound="at least 0"),
        # A number added to all logits is multiplied by another factor for each class.
        shift_invariant=False,
    ),
]
