"""CIFAR-100: tfds's own builder, 45,000 training and 5,000 validation images, label noise."""

import functools
from collections.abc import Sequence

import tensorflow_datasets as tfds

from train.configuration.datasets import Cifar100Fields
from train.data.augmentation import pad_crop_flip
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.prepared_spec import PreparedSpec
from train.data.splits import Holdout
from train.data.taxonomy import ClassTree

# From the data set's page, https://www.cs.toronto.edu/~kriz/cifar.html; the class index is the rank
# of the class in alphabetical order.
SUPERCLASS_NAMES = {
    "aquatic mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit and vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household electrical devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large man-made outdoor things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large natural outdoor scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large omnivores and herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium-sized mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles 1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles 2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
_NUMBER_OF = {name: number for number, of in enumerate(SUPERCLASS_NAMES.values()) for name in of}
# The superclass of each class.
SUPERCLASSES = tuple(number for _, number in sorted(_NUMBER_OF.items()))

_BUILDER = functools.partial(tfds.builder, "cifar100")


def _superclasses(class_names: Sequence[str]) -> ClassTree:
    names, numbers = [*SUPERCLASS_NAMES], SUPERCLASSES[: len(class_names)]
    above = ((names[number],) for number in numbers)
    return ClassTree.of(("superclass", "class"), above, class_names)


def _spec(fields: Cifar100Fields) -> DatasetSpec:
    return PreparedSpec(
        name=fields.name,
        num_classes=100,
        image_shape=(32, 32, 3),
        builder=_BUILDER,
        augment=functools.partial(pad_crop_flip, pixels=4),
        mean=(125.3 / 255, 123.0 / 255, 113.9 / 255),
        std=(63.0 / 255, 62.1 / 255, 66.7 / 255),
        attribution="CIFAR-100 by A. Krizhevsky (https://www.cs.toronto.edu/~kriz/cifar.html), "
        "which does not state a licence",
        validation=Holdout(fields.validation_size, balanced=fields.holdout == "balanced"),
        tree_of=_superclasses,
    )


CIFAR100 = DatasetFamily(_spec, _BUILDER, fields=Cifar100Fields)
