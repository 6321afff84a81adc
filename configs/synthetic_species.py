"""Synthetic species, long-tailed and ambiguous within genera, with a two-layer network.

    python -m train.main --config=configs/synthetic_species.py
    python -m train.main --config=configs/synthetic_species.py:average_k

Needs no download and takes two minutes on two cores. The true distribution of the data is known, so
the results include the best classifier's on the same test images ("bayes"): a top-1 accuracy
of 0.792, a top-5 accuracy of 0.982 and an average-5 accuracy of 0.994.
"""

from ml_collections import ConfigDict

from configs.recipe import for_loss
from configs.species_losses import LOSSES as _LOSSES


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return for_loss(
        {
            "seed": 0,
            "num_epochs": 20,
            "dataset": {
                "name": "synthetic_species",
                "batch_size": 96,
                "num_classes": 100,
                "num_genera": 20,
                "ambiguity": 0.8,
                "long_tail_exponent": 6.0,
                "num_train": 20_000,
                "num_validation": 5_000,
                "num_test": 10_000,
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
