"""Synthetic latents: rows of 16 numbers from one of two distributions, with hidden layers.

    python -m train.main --config=configs/synthetic_latents.py
    python -m train.main --config=configs/synthetic_latents.py --config.dataset.generator=gaussian
    python -m train.main --config=configs/synthetic_latents.py:noised_top_k_hinge

For fast experiments: needs no download and takes seconds. The true distribution of the data is
known, so the results include the best classifier's results on the same examples ("bayes").
"""

from ml_collections import ConfigDict

from configs.recipe import for_loss
from configs.species_losses import LOSSES as _LOSSES


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return for_loss(
        {
            "seed": 0,
            "num_epochs": 30,
            "dataset": {
                "name": "synthetic_latents",
                # "gaussian": the posterior is a softmax of linear scores; "organs": it is not.
                "generator": "organs",
                "batch_size": 96,
                "num_classes": 100,
                "num_genera": 20,
                "ambiguity": 0.8,
                "long_tail_exponent": 0.0,
                "num_train": 4_000,
                "num_validation": 5_000,
                "num_test": 10_000,
                # The examples of each class in the class-balanced test.
                "balanced_per_class": 30,
            },
            # "linear" does not have a hidden layer.
            "model": {"name": "mlp"},
            "optimizer": {
                "learning_rate": 0.02,
                "weight_decay": 1e-4,
                "decay_epochs": (18, 26),
            },
            "select_by": "top_5_accuracy",
            "eval": {"ks": (1, 3, 5)},
        },
        _LOSSES,
        loss,
    )
