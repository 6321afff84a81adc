"""A million classes, drawn from a seed, whose head is split over all devices.

    python -m train.main --config=configs/million_classes.py
    python -m train.main --config=configs/million_classes.py:noised_top_k_hinge

On a machine without accelerators, with eight threads as devices:

    JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python -m train.main --config=configs/million_classes.py

Needs no download. The true distribution of the data is known, so the results include the results
of the best classifier ("bayes"). A few of the classes have most of the examples, so that one epoch
teaches something; the sets still choose among all. The classes are shared by the largest number of
devices that divides the devices of a process and the classes. --config.dataset.num_classes is the
number of classes. To choose another loss, write its name after a colon. Losses with margins or
class counts are refused, because most classes have no training example. The best classifier has a
test top-20 accuracy of 80.5 %; expect 56 % here, and more after more epochs.
"""

from ml_collections import ConfigDict

from configs.own_data import loss_fields
from configs.recipe import complete


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return complete(
        {
            "seed": 0,
            "num_epochs": 2,
            "dataset": {
                "name": "synthetic_latents",
                "generator": "power_law",
                "batch_size": 64,
                "num_classes": 1_000_000,
                "num_genera": 40,
                "ambiguity": 0.8,
                "long_tail_exponent": 3.0,
                "num_train": 3_200,
                "num_validation": 256,
                "num_test": 256,
                # A balanced test would have a million examples.
                "balanced_per_class": 0,
            },
            "model": {"name": "mlp", "width": 32, "depth": 1},
            "loss": loss_fields(loss, k=20, num_samples=3),
            "optimizer": {
                "name": "adamw",
                "learning_rate": 0.03,
                "weight_decay": 0.0,
                "schedule": "cosine",
            },
            "select_by": "top_20_accuracy",
            "eval": {"ks": (1, 5, 20)},
            "parallel": "mesh",
        }
    )
