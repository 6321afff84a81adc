"""A data set of tensorflow-datasets by its name: any that has images with a class label.

    python -m train.prepare --dataset=tfds:oxford_flowers102
    python -m train.main --config=configs/tfds.py --config.dataset.tfds_name=oxford_flowers102

Preparing needs TensorFlow; training does not. The name may have a config and a version, as in
`name/config:1.0.0`. Splits that are missing are held out of the training images. The loss is
cross-entropy; any other of the program may stand after the colon: docs/which_loss.md.
"""

from ml_collections import ConfigDict, config_dict

from configs.own_data import own_images


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return own_images(
        loss,
        name="tfds",
        # The name of the data set; it is needed.
        tfds_name=config_dict.placeholder(str),
        # The prepared splits, where they are not named train, validation and test.
        train_split=config_dict.placeholder(str),
        validation_split=config_dict.placeholder(str),
        test_split=config_dict.placeholder(str),
        # tensorflow-datasets does not look at it either.
        respect_exif_orientation=False,
    )
