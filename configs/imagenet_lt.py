"""ImageNet-LT with a ResNet-34: thesis 4.4.5.2.

    python -m train.main --config=configs/imagenet_lt.py --config.dataset.data_dir=DIR

DIR/imagenet_lt has the three published lists, and ImageNet's folders train and val, or links to
them.

Published test top-K accuracy in per cent for K = 1, 3, 5, trained for each K (table 4.6). The test
set has the same number of images per class:

    cross_entropy                  37.0  55.5  63.2
    smooth_top_k_hinge             37.3  42.0  39.0
    focal                          37.7  56.2  63.8
    ldam                           39.3  56.0  63.1
    imbalanced_noised_top_k_hinge  38.7  56.5  63.5

Here K = 5. For another K: --config.loss.k=3 --config.select_by=macro_top_3_accuracy. The scales of
the losses with margins, 30 and 50, are good default values by the thesis (4.6.5). It does not state
the scales of these numbers.
"""

from ml_collections import ConfigDict

from configs.recipe import for_loss

_LOSSES = {
    "cross_entropy": {},
    "smooth_top_k_hinge": {"k": 5, "tau": 0.1},
    "focal": {"gamma": 1.0},
    "ldam": {"max_margin": 0.4, "scale": 30.0},
    "imbalanced_noised_top_k_hinge": {
        "k": 5,
        "epsilon": 0.1,
        "num_samples": 5,
        "max_margin": 0.4,
        "scale": 50.0,
    },
    "imbalanced_expected_top_k_hinge": {"k": 5, "epsilon": 0.1, "max_margin": 0.4, "scale": 50.0},
}


def get_config(loss: str = "imbalanced_noised_top_k_hinge") -> ConfigDict:
    return for_loss(
        {
            "seed": 0,
            "num_epochs": 100,
            "dataset": {
                "name": "imagenet_lt",
                "batch_size": 128,
                "num_workers": 8,
            },
            "model": {"name": "resnet34"},
            "optimizer": {
                "learning_rate": 1e-2,
                "weight_decay": 2e-3,
                "decay_epochs": (60, 80),
            },
            "select_by": "macro_top_5_accuracy",
            "eval": {"ks": (1, 3, 5)},
        },
        _LOSSES,
        loss,
    )
