"""Pl@ntNet-300K with a ResNet-50, top-K: thesis 4.4.5.1.

    python -m train.prepare --dataset=plantnet300k --manual_dir=DIR
    python -m train.main --config=configs/plantnet300k.py:imbalanced_noised_top_k_hinge

Published test macro top-K accuracy in per cent for K = 1, 3, 5, trained and selected for each K
(table 4.5):

    cross_entropy                  36.3  58.8  68.7
    smooth_top_k_hinge             35.7  50.3  50.9
    noised_top_k_hinge             35.8  58.7  66.4
    focal                          37.6  60.4  69.7
    ldam                           40.6  63.3  71.9
    imbalanced_noised_top_k_hinge  42.4  64.9  73.2

The published networks start from ImageNet weights. To do the same, pass a file of torchvision's
weights: --config.model.pretrained=FILE. Without it the network starts from random weights and will
not reach these results. Here K = 5. For another K: --config.loss.k=3
--config.select_by=macro_top_3_accuracy.
"""

from ml_collections import ConfigDict

from configs.recipe import for_loss

_LOSSES = {
    "cross_entropy": {},
    "smooth_top_k_hinge": {"k": 5, "tau": 0.1},
    "noised_top_k_hinge": {"k": 5, "epsilon": 1.0, "num_samples": 5},
    "expected_top_k_hinge": {"k": 5, "epsilon": 1.0},
    "focal": {"gamma": 2.0},
    "ldam": {"max_margin": 0.2, "scale": 40.0},
    "imbalanced_noised_top_k_hinge": {
        "k": 5,
        "epsilon": 0.01,
        "num_samples": 5,
        "max_margin": 0.2,
        "scale": 60.0,
    },
    "imbalanced_expected_top_k_hinge": {"k": 5, "epsilon": 0.01, "max_margin": 0.2, "scale": 60.0},
}


def get_config(loss: str = "imbalanced_noised_top_k_hinge") -> ConfigDict:
    return for_loss(
        {
            "seed": 0,
            "num_epochs": 30,
            "dataset": {
                "name": "plantnet300k",
                "batch_size": 32,
                "num_workers": 8,
            },
            "model": {"name": "resnet50"},
            "optimizer": {
                "learning_rate": 2e-3,
                "weight_decay": 1e-4,
                "decay_epochs": (20, 25),
            },
            "select_by": "macro_top_5_accuracy",
            "eval": {"ks": (1, 3, 5, 10)},
        },
        _LOSSES,
        loss,
    )
