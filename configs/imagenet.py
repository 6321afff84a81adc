"""ImageNet with a ResNet-18: thesis 4.6.4, following Berrada et al. (2018), section 5.2.

    python -m train.prepare --dataset=imagenet --manual_dir=DIR
    python -m train.main --config=configs/imagenet.py:noised_top_k_hinge
    python -m train.main --config=configs/imagenet.py --config.dataset.train_per_class=64

Published test accuracy in per cent, top-1 with K = 1 and top-5 with K = 5 in the loss (table 4.9):

    cross_entropy       72.24  90.60
    smooth_top_k_hinge  71.43  90.71
    noised_top_k_hinge  72.46  90.52

The test set is the official validation set. 50 images per class are held out of the training images
for selection.

The thesis states that it follows the procedure of Berrada et al., whose program evaluates ten crops
of each image. A run here is evaluated by the middle of each image, so its numbers may be lower.
"""

from ml_collections import ConfigDict

from configs.recipe import for_loss

_LOSSES = {
    "cross_entropy": {},
    "smooth_top_k_hinge": {
        "k": 5,
        "tau": 0.1,
        "optimizer.learning_rate": 1.0,
        "optimizer.weight_decay": 2.5e-5,
    },
    "noised_top_k_hinge": {
        "k": 5,
        "epsilon": 0.5,
        "num_samples": 10,
        "optimizer.weight_decay": 1.5e-4,
    },
    "expected_top_k_hinge": {"k": 5, "epsilon": 0.5, "optimizer.weight_decay": 1.5e-4},
}


def get_config(loss: str = "noised_top_k_hinge") -> ConfigDict:
    return for_loss(
        {
            "seed": 0,
            "num_epochs": 120,
            "dataset": {
                "name": "imagenet",
                "batch_size": 256,
                "validation_size": 50_000,
                "num_workers": 8,
            },
            "model": {"name": "resnet18"},
            "optimizer": {
                "learning_rate": 0.1,
                "weight_decay": 1e-4,
                "decay_epochs": (30, 60, 90),
            },
            "select_by": "top_5_accuracy",
            "eval": {"ks": (1, 5)},
        },
        _LOSSES,
        loss,
    )
