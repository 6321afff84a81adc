"""Data sets by name."""

import functools
from collections.abc import Mapping
from typing import Any

from train.data.augmentation import random_shift
from train.data.cifar100 import CIFAR100
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec, TrueDistribution
from train.data.digits import Digits
from train.data.photographs import IMAGENET, IMAGENET_LT, PLANTNET300K, PLANTNET300K_V2
from train.data.records import Records, Split
from train.data.synthetic_species import SYNTHETIC_SPECIES

_DIGITS = DatasetSpec(
    name="digits",
    num_classes=10,
    image_shape=(8, 8, 1),
    builder=Digits,
    augment=functools.partial(random_shift, pixels=1),
    mean=(0.287,),
    std=(0.354,),
    prepared_on_use=True,
)

DATASETS = {
    "cifar100": CIFAR100,
    "digits": DatasetFamily(lambda _config: _DIGITS),
    "imagenet": IMAGENET,
    "imagenet_lt": IMAGENET_LT,
    "plantnet300k": PLANTNET300K,
    "plantnet300k_v2": PLANTNET300K_V2,
    "synthetic_species": SYNTHETIC_SPECIES,
}


def dataset_spec(config: Mapping[str, Any]) -> DatasetSpec:
    """The data set of `config.dataset`."""
    return DATASETS[config["name"]].spec(config)


__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetFamily",
    "DatasetSpec",
    "Records",
    "Split",
    "TrueDistribution",
    "dataset_spec",
]
