r"""Your own photographs: in a folder, a table, or a data set by its name.

    python -m train.main --config=images --config.dataset.path=photos
    python -m train.main --config=images --config.dataset.path=photos.csv
    python -m train.main --config=images:focal --config.dataset.path=hf:ylecun/mnist
    python -m train.main --config=images --config.dataset.path=tfds:oxford_flowers102

A folder has a folder for each class, or folders such as `train`, `val` and `test` with a folder for
each class in each of them. A table, CSV, TSV or Parquet, has the columns path and label. `hf:` is a
data set of Hugging Face, its Parquet files or its name on the hub. `tfds:` is one that
python -m train.prepare --dataset=tfds:NAME has prepared. Splits that are missing are held out of
the training images. All images are looked at before the first step.

Files with the same text in --config.dataset.group='(obs\d+)_', such as the photographs of a plant,
stay in one split, and so do rows with the same text in the column `group`. With
--config.dataset.labels=votes or several, images have several labels: docs/labels.md. The loss is
cross-entropy; any other loss of the program may follow the colon: docs/which_loss.md.

The network starts from random weights. With few photographs, start from trained ones:
--config.model.pretrained=FILE.
"""

from ml_collections import ConfigDict

from configs.own_data import OPTIMIZER, loss_fields
from configs.recipe import complete


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return complete(
        {
            "seed": 0,
            "num_epochs": 30,
            "dataset": {"name": "images", "batch_size": 32},
            "model": {"name": "resnet18"},
            "loss": loss_fields(loss),
            "optimizer": OPTIMIZER,
            "select_by": "top_3_accuracy",
            "eval": {"ks": (1, 3, 5)},
        }
    )
