"""A table of your own photographs: a CSV, TSV or Parquet file with the columns path and label.

    python -m train.main --config=configs/table.py --config.dataset.path=photos.csv
    python -m train.main --config=configs/table.py:focal --config.dataset.path=photos.csv

Paths are relative to the folder of the table. The column `split` may be train, val, test or empty;
splits that are missing are held out of the rows without a split, or of the training rows. Images
with the same text in the column `group`, such as the photographs of one plant, stay in one split.
--config.dataset.labels=votes and several are for images with several labels: docs/votes.md. The
loss is cross-entropy; to choose another one, write its name after a colon: docs/which_loss.md.
"""

from ml_collections import ConfigDict

from configs.own_data import own_images


def get_config(loss: str = "cross_entropy") -> ConfigDict:
    return own_images(loss, name="table")
