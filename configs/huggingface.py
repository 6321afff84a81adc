"""A data set of Hugging Face with images and labels: Parquet files, or by its name on the hub.

    python -m train.main --config=configs/huggingface.py --config.dataset.path=FOLDER
    python -m train.main --config=configs/huggingface.py:focal \
        --config.dataset.huggingface_name=ylecun/mnist

It needs the package datasets. The columns of the images and of the labels are found by their types.
Splits that are missing are held out of the training images. The loss is cross-entropy; any other
loss of the program may follow the colon: docs/which_loss.md.
"""

from ml_collections import ConfigDict

from configs.own_data import own_images


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return own_images(loss, name="huggingface")
