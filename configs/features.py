"""A matrix of features of your own, such as the embeddings of a pretrained network, with labels.

    python -m train.main --config=configs/features.py --config.dataset.path=features.npz
    python -m train.main --config=configs/features.py:focal --config.dataset.path=FOLDER

The .npz file, or the folder of .npy files, has the arrays `features` [rows, features] and `labels`
[rows]. `split` [rows] may be train, val, test or empty; splits that are missing are held out of
the rows without a split, or of the training rows. Rows with the same text in `group` [rows] stay in
one split, and `names` [rows] are the names of the rows in files of scores.
--config.dataset.labels=votes and several are for rows with several labels: docs/labels.md. The loss
is cross-entropy; to choose another one, write its name after a colon: docs/which_loss.md.

--config.model.name=mlp has hidden layers: --config.model.width, depth and dropout.
"""

from ml_collections import ConfigDict

from configs.own_data import OPTIMIZER, loss_fields
from configs.recipe import complete


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return complete(
        {
            "seed": 0,
            "num_epochs": 20,
            "dataset": {
                "name": "features",
                "batch_size": 256,
            },
            # "linear" does not have a hidden layer.
            "model": {"name": "linear"},
            "loss": loss_fields(loss),
            # One layer on standardized features takes larger steps than a network of images.
            "optimizer": {**OPTIMIZER, "learning_rate": 0.05},
            "select_by": "top_3_accuracy",
            "eval": {"ks": (1, 3, 5)},
        }
    )
