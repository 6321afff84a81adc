"""A data set of Hugging Face with images and labels: Parquet files, or by its name on the hub.

    python -m train.main --config=configs/huggingface.py --config.dataset.path=FOLDER
    python -m train.main --config=configs/huggingface.py:focal \
        --config.dataset.huggingface_name=ylecun/mnist

It needs the package datasets. The columns of the images and of the labels are found by their types.
Splits that are missing are held out of the training images. The loss is cross-entropy; any other of
the program may stand after the colon: docs/which_loss.md.
"""

from ml_collections import ConfigDict, config_dict

from configs.own_data import own_images


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return own_images(
        loss,
        name="huggingface",
        # A folder or a .parquet file.
        path=config_dict.placeholder(str),
        # The name of the data set on the hub, as in user/name, if there is no path.
        huggingface_name=config_dict.placeholder(str),
        # The part of the data set that is meant, where it has several.
        huggingface_config=config_dict.placeholder(str),
        # The columns, where there are several of their type.
        image_column=config_dict.placeholder(str),
        label_column=config_dict.placeholder(str),
        # The splits, where they are not named train, validation and test.
        train_split=config_dict.placeholder(str),
        validation_split=config_dict.placeholder(str),
        test_split=config_dict.placeholder(str),
    )
