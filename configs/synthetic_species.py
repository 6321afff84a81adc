"""Synthetic species, long-tailed and ambiguous within genera, with a two-layer network.

    python -m train.main --config=configs/synthetic_species.py
    python -m train.main --config=configs/synthetic_species.py:average_k

Needs no download and takes two minutes on two cores. The true distribution of the data is known, so
the results include those of the best classifier on the same test images ("bayes"): a top-1 accuracy
of 0.792, a top-5 accuracy of 0.982 and an average-5 accuracy of 0.994.
"""

from typing import Any

from ml_collections import ConfigDict, config_dict

from configs.recipe import for_loss

_COSINE = {"max_margin": 0.2, "scale": 20.0, "select_by": "macro_top_5_accuracy"}
_LOSSES: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "focal": {"gamma": 1.0},
    "ldam": _COSINE,
    "logit_adjusted_cross_entropy": {"tau": 1.0, "select_by": "macro_top_5_accuracy"},
    "vector_scaling": {"gamma": 0.1, "tau": 1.0, "select_by": "macro_top_5_accuracy"},
    "generalized_cross_entropy": {"q": 0.7},
    "symmetric_cross_entropy": {"alpha": 6.0, "beta": 0.1},
    "top_k_hinge": {"k": 5},
    "convex_top_k_hinge": {"k": 5},
    "calibrated_top_k_hinge": {"k": 5},
    "smooth_top_k_hinge": {"k": 5, "tau": 1.0},
    "lapsum_top_k": {"k": 5, "alpha": 1.0},
    "sigmoid_top_k": {"k": 5, "tau": 1.0},
    "relaxed_top_k_cross_entropy": {
        "k": 5,
        "top_1_weight": 0.5,
        "method": "bitonic",
        "tau": 1.0,
        "swap": "cauchy",
        "art_lambda": 0.0,
        "num_candidates": 16,
    },
    "noised_balanced": {"k": 5, "epsilon": 1.0, "num_samples": 10},
    "noised_imbalanced": {"k": 5, "epsilon": 0.1, "num_samples": 10, **_COSINE},
    "expected_balanced": {"k": 5, "epsilon": 1.0},
    "expected_imbalanced": {"k": 5, "epsilon": 0.1, **_COSINE},
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
    "sparsemax": {},
    "entmax": {"alpha": 1.5},
}


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return for_loss(
        {
            "seed": 0,
            "num_epochs": 20,
            "dataset": {
                "name": "synthetic_species",
                "batch_size": 100,
                "data_dir": config_dict.placeholder(str),
                "num_classes": 100,
                "num_genera": 20,
                "ambiguity": 0.8,
                "long_tail_exponent": 6.0,
                "data_seed": 0,
                "num_train": 20_000,
                "num_validation": 5_000,
                "num_test": 10_000,
                "label_noise": 0.0,
                "label_noise_kind": "superclass",
            },
            "model": {"name": "mlp"},
            "optimizer": {
                "learning_rate": 0.02,
                "weight_decay": 1e-4,
                "decay_epochs": (12, 17),
            },
            "select_by": "top_5_accuracy",
            "eval": {"ks": (1, 3, 5)},
        },
        _LOSSES,
        loss,
    )
