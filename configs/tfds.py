"""A data set of tensorflow-datasets by its name: any that has images with a class label.

    python -m train.prepare --dataset=tfds:oxford_flowers102
    python -m train.main --config=configs/tfds.py --config.dataset.tfds_name=oxford_flowers102

Preparing needs TensorFlow; training does not. The name may have a config and a version, as in
`name/config:1.0.0`. Splits that are missing are held out of the training images. The loss is
cross-entropy; any other loss of the program may follow the colon: docs/which_loss.md.
"""

from ml_collections import ConfigDict

from configs.own_data import own_images


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return own_images(
        loss,
        name="tfds",
        # tensorflow-datasets does not use the orientation either.
        respect_exif_orientation=False,
    )
