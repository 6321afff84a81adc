"""A folder of your own photographs, with a folder for each class.

    python -m train.main --config=configs/folder.py --config.dataset.path=photos
    python -m train.main --config=configs/folder.py:cross_entropy --config.dataset.path=photos

The folder has a folder for each class, or the folders `train`, `val` and `test` with a folder for
each class in each of them. Splits that are missing are held out of the training images. Any loss of
the program may stand after the colon.

The network starts from random weights. With few photographs, start from trained ones:
--config.model.pretrained=FILE.
"""

from ml_collections import ConfigDict

from configs.own_data import LOSS, OPTIMIZER, own_images
from configs.recipe import complete


def get_config(loss: str = "noised_balanced") -> ConfigDict:
    return complete(
        {
            "seed": 0,
            "num_epochs": 30,
            # Whether each folder with images is a class, as in genus/species.
            "dataset": {**own_images("folder"), "nested": False},
            "model": {"name": "resnet18"},
            "loss": {"name": loss, **LOSS},
            "optimizer": OPTIMIZER,
            "select_by": "top_3_accuracy",
            "eval": {"ks": (1, 3, 5)},
        }
    )
