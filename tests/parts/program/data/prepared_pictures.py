"""Pictures that tensorflow-datasets has prepared, for tests."""

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.sources.tfds import quiet

CLASSES = ("ash", "birch", "cedar")
# The version and the shape of images of tfds's own data sets.
_PUBLISHED = {"cifar100": ("3.0.2", (32, 32, 3)), "imagenet2012": ("5.1.0", (None, None, 3))}


def builder(
    name,
    splits,
    *,
    label="label",
    shape=(None, None, 3),
    version="1.0.0",
    classes=CLASSES,
    shade=lambda index, _: index % 251,
    **more,
):
    """What prepares a data set of pictures of one shade each.

    Args:
        name: of the data set.
        splits: the labels of each split.
        label: the name of the feature with the labels.
        shape: of the images, as the feature states it; 8 pixels wide and high if it states none.
        version: of the data set.
        classes: the names of the classes.
        shade: of the example of a number and a label.
        more: further features, with a function that makes the value of an example of its number.
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
            pixels = np.full(size, shade(index, number), np.uint8).squeeze()
            yield index, {"image": Image.fromarray(pixels), label: number, **values}

    members = {
        "VERSION": tfds.core.Version(version),
        "_info": lambda self: tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(kinds)
        ),
        "_split_generators": lambda _self, _manager: {split: generate(split) for split in splits},
        "_generate_examples": None,
        # Defined here, and not in a folder of a package with its description.
        "pkg_dir_path": None,
        "name": name,
        "__module__": __name__,
    }
    with tfds.core.registered.skip_registration():
        return type(name, (tfds.core.GeneratorBasedBuilder,), members)


def build(data_dir, splits, *, num_shards=1, name="trees", **options):
    """Prepares a data set of so many files for each split; returns its folder below `data_dir`."""
    config = tfds.download.DownloadConfig(num_shards=num_shards)
    with quiet():
        made = builder(name, splits, **options)(data_dir=str(data_dir), file_format="array_record")
        made.download_and_prepare(download_config=config)
    return data_dir / name / str(made.version)


def published(data_dir, name, num_classes, sizes):
    """Prepares a small data set under the name of one of tfds, with its classes in turns."""
    version, shape = _PUBLISHED[name]
    splits = {split: np.arange(size) % num_classes for split, size in sizes.items()}
    classes = [f"class {label:04}" for label in range(num_classes)]
    build(data_dir, splits, name=name, version=version, shape=shape, classes=classes)
