r"""A folder of your own photographs, with a folder for each class.

    python -m train.main --config=configs/folder.py --config.dataset.path=photos
    python -m train.main --config=configs/folder.py:focal --config.dataset.path=photos

The folder has a folder for each class, or folders such as `train`, `val` and `test` with a folder
for each class in each of them. Splits that are missing are held out of the training images. With
--config.dataset.group='(obs\d+)_', files with the same text there, such as the photographs of one
plant, stay in one split. The loss is cross-entropy; any other loss of the program may follow the
colon: docs/which_loss.md.

The network starts from random weights. With few photographs, start from trained ones:
--config.model.pretrained=FILE.
"""

from ml_collections import ConfigDict

from configs.own_data import own_images


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return own_images(loss, name="folder")
