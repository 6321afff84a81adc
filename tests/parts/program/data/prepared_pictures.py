"""Pictures that tensorflow-datasets has prepared, for tests."""

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.sources.tfds import quiet

CLASSES = ("ash", "birch", "cedar")
# The version and the shape of images of tfds's own data sets.
_PUBLISHED = {"cifar100": ("3.0.2", (32, 32, 3)), "imagenet2012": ("5.1.0", (None, None, 3))}


def build(
    data_dir,
    splits,
    *,
    label="label",
    shape=(None, None, 3),
    num_shards=1,
    name="trees",
    version="1.0.0",
    classes=CLASSES,
    **more,
):
    """Prepares a data set, whose image i of a split has the shade i modulo 251.

    Args:
        data_dir: the folder of all prepared data sets.
        splits: the labels of each split.
        label: the name of the feature with the labels.
        shape: of the images, as the feature states it; 8 pixels wide and high if it states none.
        num_shards: the files of each split.
        name: of the data set.
        version: of the data set.
        classes: the names of the classes.
        more: further features, with a function that makes the value of an example of its number.

    Returns:
        The folder of the data set.
    """
    kinds = {
        "image": tfds.features.Image(shape=shape, encoding_format="png"),
        label: tfds.features.ClassLabel(names=list(classes)),
        **{key: kind for key, (kind, _) in more.items()},
    }
    size = shape if shape[0] else (8, 8, 3)

    def generate(split):
        for index, number in enumerate(splits[split]):
            values = {key: value(index) for key, (_, value) in more.items()}
            pixels = np.full(size, index % 251, np.uint8)
            yield index, {"image": Image.fromarray(pixels), label: number, **values}

    members = {
        "VERSION": tfds.core.Version(version),
        "_info": lambda self: tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(kinds)
        ),
        "_split_generators": lambda _self, _manager: {split: generate(split) for split in splits},
        "_generate_examples": None,
        "pkg_dir_path": None,
        "name": name,
        "__module__": __name__,
    }
    with tfds.core.registered.skip_registration(), quiet():
        made = type(name, (tfds.core.GeneratorBasedBuilder,), members)
        made(data_dir=str(data_dir), file_format="array_record").download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=num_shards)
        )
    return data_dir / name / version


def published(data_dir, name, num_classes, sizes):
    """Prepares a small data set under the name of one of tfds, with its classes in turns."""
    version, shape = _PUBLISHED[name]
    splits = {split: np.arange(size) % num_classes for split, size in sizes.items()}
    classes = [f"class {label:04}" for label in range(num_classes)]
    build(data_dir, splits, name=name, version=version, shape=shape, classes=classes)
