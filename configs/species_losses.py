"""The losses of the recipes of synthetic species, each with its fields in `loss`."""

from typing import Any

_COSINE = {"max_margin": 0.2, "scale": 20.0, "select_by": "macro_top_5_accuracy"}
LOSSES: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "focal": {"gamma": 1.0},
    "ldam": _COSINE,
    "logit_adjusted_cross_entropy": {"tau": 1.0, "select_by": "macro_top_5_accuracy"},
    "vector_scaling": {"gamma": 0.1, "tau": 1.0, "select_by": "macro_top_5_accuracy"},
    "generalized_cross_entropy": {"q": 0.7},
    "symmetric_cross_entropy": {"alpha": 6.0, "beta": 0.1},
    "hierarchical_cross_entropy": {"alpha": 0.5},
    "soft_label_cross_entropy": {"beta": 10.0},
    "top_k_hinge": {"k": 5},
    "convex_top_k_hinge": {"k": 5},
    "calibrated_top_k_hinge": {"k": 5},
    "smooth_top_k_hinge": {"k": 5, "tau": 1.0},
    "lapsum_top_k_loss": {"k": 5, "alpha": 1.0},
    "sigmoid_top_k_loss": {"k": 5, "tau": 1.0},
    "relaxed_top_k_cross_entropy": {
        "k": 5,
        "top_1_weight": 0.5,
        "method": "odd_even",
        "tau": 1.0,
        "swap": "cauchy",
        "num_candidates": 16,
    },
    "noised_top_k_hinge": {"k": 5, "epsilon": 1.0, "num_samples": 10},
    "imbalanced_noised_top_k_hinge": {"k": 5, "epsilon": 0.1, "num_samples": 10, **_COSINE},
    "expected_top_k_hinge": {"k": 5, "epsilon": 1.0},
    "imbalanced_expected_top_k_hinge": {"k": 5, "epsilon": 0.1, **_COSINE},
    "assume_negative": {"select_by": "average_5_accuracy"},
    "expected_positive_regularization": {
        "k": 5,
        "beta": 0.01,
        "select_by": "average_5_accuracy",
    },
    "average_k": {"k": 5, "alpha": 0.3, "select_by": "average_5_accuracy"},
    "role": {
        "k": 5,
        "weight": 0.01,
        "label_learning_rate": 1.0,
        "select_by": "average_5_accuracy",
    },
    "conformal_training": {
        "error": 0.1,
        "temperature": 0.5,
        "weight": 0.1,
        "smoothing": 0.1,
        "size_weight": 1.0,
    },
    "size_at_average_error": {"error": 0.1, "temperature": 0.5, "weight": 0.1},
    "sparsemax_loss": {},
    "entmax_loss": {"alpha": 1.5},
}
