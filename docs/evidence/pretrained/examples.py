"""The features of a data set, its splits, and the training sets that a setting and a seed draw."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pretrained.design import Setting, Study
from train.models import feature_norm

# What the seed of a training set is not: of the splits, of the groups and of wrong validation
# labels, which all runs share.
_SPLITS, _BLOCKS, _VALIDATION = 2**20, 2**20 + 1, 2**20 + 2
# Of a development trial: images of a class that the study trains on.
_DEVELOPMENT = {"validation": 50, "test": 100}


@dataclass(frozen=True)
class Examples:
    """The features of a data set, normalized, with the rows of its splits.

    Attributes:
        features: float32 [n, d].
        labels: int32 [n].
        pool: the rows that may be trained on.
        validation: the rows that select.
        test: the rows that are compared.
        similar: the group of similar classes of each class, [L].
    """

    features: np.ndarray
    labels: np.ndarray
    pool: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    similar: np.ndarray

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.similar)


@dataclass(frozen=True)
class TrainingSet:
    """What a run is trained on.

    Attributes:
        rows: of the features, [m].
        labels: the labels that training sees, some of which may be wrong, int32 [m].
        class_counts: the images of each class by these labels, [L].
    """

    rows: np.ndarray
    labels: np.ndarray
    class_counts: np.ndarray


def load(folder: Path, data_set: str, study: Study, *, development: bool = False) -> Examples:
    """Reads what `train.embed` wrote to `folder/DATA_SET.npz`.

    Args:
        folder: the folder of the files.
        data_set: tiny_imagenet or omniglot.
        study: the study.
        development: whether validation and test are taken from the images that the study trains
            on, whose own ones are then left out. No number of the study is of such a split.
    """
    with np.load(folder / f"{data_set}.npz") as file:
        features, labels = file["features"], file["labels"].astype(np.int32)
        # `test/...` of a folder that has splits.
        in_test = np.array([name.partition("/")[0] == "test" for name in file["names"]])
    numbers = study.numbers
    rng = np.random.default_rng(_SPLITS)
    per_class = numbers["test_per_class"].get(data_set)
    if per_class is None:
        test, rest = np.flatnonzero(in_test), np.flatnonzero(~in_test)
    else:
        test, rest = split_rows(np.arange(len(labels)), labels, per_class, rng)
    validation, pool = split_rows(rest, labels, numbers["validation_per_class"][data_set], rng)
    if development:
        validation, pool = split_rows(pool, labels, _DEVELOPMENT["validation"], rng)
        test, pool = split_rows(pool, labels, _DEVELOPMENT["test"], rng)
    norm = feature_norm.measure([features[pool]])
    assert norm is not None
    features -= norm["mean"]
    features /= norm["scale"]
    means = np.stack(
        [features[pool[labels[pool] == one]].mean(axis=0) for one in np.unique(labels)]
    )
    return Examples(
        features, labels, pool, validation, test, similar_groups(means, numbers["group_size"])
    )


def training_set(setting: Setting, examples: Examples, seed: int) -> TrainingSet:
    """The training set of a setting and a seed.

    The seed draws which class has how many images, the images, and the wrong labels.
    """
    rng = np.random.default_rng([seed, 1])
    rows = examples.pool
    if setting.largest is not None and setting.smallest is not None:
        sizes = tail_sizes(examples.num_classes, setting.largest, setting.smallest)
        drawn = rng.permutation(rows)
        order = np.argsort(examples.labels[drawn], kind="stable")
        drawn, classes = drawn[order], examples.labels[drawn[order]]
        starts = np.searchsorted(classes, np.arange(examples.num_classes))
        rank = np.arange(len(drawn)) - starts[classes]
        rows = drawn[rank < rng.permutation(sizes)[classes]]
    labels = wrong_labels(setting, examples, examples.labels[rows], rng)
    counts = np.bincount(labels, minlength=examples.num_classes)
    return TrainingSet(rows, labels, counts)


def validation_labels(setting: Setting, examples: Examples) -> np.ndarray:
    """The labels of the validation images as the training images have them; all runs share them."""
    rng = np.random.default_rng(_VALIDATION)
    return wrong_labels(setting, examples, examples.labels[examples.validation], rng)


def tail_sizes(num_classes: int, largest: float, smallest: float) -> np.ndarray:
    """The images of the classes of a long tail, which fall exponentially."""
    sizes = largest * (smallest / largest) ** (np.arange(num_classes) / (num_classes - 1))
    return np.maximum(1, np.rint(sizes)).astype(int)


def wrong_labels(
    setting: Setting, examples: Examples, labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The labels, of which a share is another class of the same block."""
    if not setting.wrong:
        return labels
    blocks = examples.similar if setting.groups == "within" else blocks_across(examples.similar)
    drawn = rng.random(len(labels))
    wrong = rng.random(len(labels)) < setting.wrong
    found = labels.copy()
    for label in np.unique(labels):
        others = np.flatnonzero((blocks == blocks[label]) & (np.arange(len(blocks)) != label))
        rows = np.flatnonzero(wrong & (labels == label))
        found[rows] = others[(drawn[rows] * len(others)).astype(int)]
    return found


def similar_groups(means: np.ndarray, size: int) -> np.ndarray:
    """Groups of classes whose mean features have large cosines, [L].

    All groups have `size` classes, but some have one more if the number of classes is no multiple.
    Groups begin greedily. Then classes change places while that makes the sum of the cosines
    within groups larger.

    Args:
        means: the mean features of the classes, [L, d].
        size: the classes of a group.
    """
    centred = means - means.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = (unit @ unit.T).astype(np.float64)
    np.fill_diagonal(cosines, 0)
    num_classes = len(means)
    num_groups = num_classes // size
    groups = np.full(num_classes, -1)
    for group in range(num_groups):
        free = np.flatnonzero(groups < 0)
        among = cosines[np.ix_(free, free)]
        nearest = np.argsort(-among, axis=1, kind="stable")[:, : size - 1]
        first = np.take_along_axis(among, nearest, axis=1).sum(axis=1).argmax()
        groups[free[[first, *nearest[first]]]] = group
    for rest in np.flatnonzero(groups < 0):
        sizes = np.bincount(groups[groups >= 0], minlength=num_groups)
        gains = np.bincount(groups[groups >= 0], cosines[rest][groups >= 0], minlength=num_groups)
        groups[rest] = np.where(sizes == size, gains, -np.inf).argmax()
    while True:
        member = np.equal.outer(groups, np.arange(num_groups)).astype(np.float64)
        to_group = cosines @ member
        own = to_group[np.arange(num_classes), groups]
        # What the sum gains if two classes change places.
        swapped = to_group[:, groups]
        gains = swapped + swapped.T - own[:, None] - own - 2 * cosines
        gains[np.equal.outer(groups, groups)] = 0
        first, second = np.unravel_index(gains.argmax(), gains.shape)
        if gains[first, second] <= 1e-9:
            return groups
        groups[[first, second]] = groups[[second, first]]


def blocks_across(similar: np.ndarray) -> np.ndarray:
    """Blocks of classes of different groups, as large as the groups, [L].

    Needs twice as many groups as a group has classes. Groups and their classes are in a random
    order that all runs share. The blocks are of consecutive classes, if first the first classes of
    all groups come, then the second ones, and so on.
    """
    rng = np.random.default_rng(_BLOCKS)
    size = int(np.bincount(similar).min())
    shuffled = rng.permutation(len(similar))
    place = {group: index for index, group in enumerate(rng.permutation(similar.max() + 1))}
    ranks: dict[int, int] = {}
    keys = []
    for label in shuffled:
        group = int(similar[label])
        ranks[group] = ranks.get(group, -1) + 1
        keys.append((ranks[group], place[group], int(label)))
    ordered = [label for _, _, label in sorted(keys)]
    num_blocks = len(similar) // size
    blocks = np.empty(len(similar), int)
    blocks[ordered] = np.minimum(np.arange(len(similar)) // size, num_blocks - 1)
    return blocks


def split_rows(
    rows: np.ndarray, labels: np.ndarray, per_class: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As many rows of each class, drawn, and the others; both sorted."""
    drawn = rng.permutation(rows)
    order = np.argsort(labels[drawn], kind="stable")
    drawn = drawn[order]
    _, starts, sizes = np.unique(labels[drawn], return_index=True, return_counts=True)
    rank = np.arange(len(drawn)) - np.repeat(starts, sizes)
    return np.sort(drawn[rank < per_class]), np.sort(drawn[rank >= per_class])
