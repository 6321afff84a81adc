"""A data set of another package, which `train.prepare` writes to files."""

import tensorflow_datasets as tfds
from PIL import Image

from train import data


class TenShades(tfds.core.GeneratorBasedBuilder):
    """Images of 8 by 8 pixels, each of one of ten shades."""

    VERSION = tfds.core.Version("1.0.0")
    # Defined here, and not in a folder of a package with its description.
    pkg_dir_path = None

    def _info(self):
        kinds = {
            "image": tfds.features.Image(shape=(8, 8, 1)),
            "label": tfds.features.ClassLabel(names=list("0123456789")),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(kinds))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples() for split in ("train", "validation", "test")}

    def _generate_examples(self):
        for number in range(70):
            shade = Image.new("L", (8, 8), 20 * (number % 10) + number // 10)
            yield number, {"image": shade, "label": number % 10}


SHADES = data.DatasetFamily(
    lambda fields: data.PreparedSpec(
        name=fields.name,
        num_classes=10,
        image_shape=(8, 8, 1),
        builder=TenShades,
        mean=(0.5,),
        std=(0.5,),
    ),
    TenShades,
)

NAME = f"{__name__}:SHADES"
