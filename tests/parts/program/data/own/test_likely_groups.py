"""Groups that users may have overlooked: found in names and times, and not where there are none."""

import re

import numpy as np
import pytest

from train.data.own import group_names, likely_groups
from train.data.own.exif import Taken

CLASSES = [f"class {number}" for number in range(6)]
_RNG = np.random.default_rng(0)


def numbers(most, count):
    return _RNG.choice(most, count, replace=False).tolist()


def observed(name, *, restarts=False, first=1, words="abcdef"):
    """Photographs of observations: `name` makes one of its number, k, and a letter or word."""
    found = []
    for label, folder in enumerate(CLASSES):
        for number in range(1, 11):
            observation = number if restarts else 10 * label + number
            for k in range(1 + observation % 3):
                found.append(f"{folder}/{name(observation, first + k, words[k])}.jpg")
    return found


def each(name, count=40):
    """Photographs of each class: `name` makes one of the class, a number, and a random one."""
    return [
        f"{folder}/{name(folder, number, draw)}.jpg"
        for folder in CLASSES
        for number, draw in enumerate(numbers(10**6, count), start=1)
    ]


LIKELY = {
    "a number": (observed(lambda n, k, _: f"obs{n:04d}_{k}"), r"(obs\d+)_"),
    "a letter": (observed(lambda n, _, letter: f"IMG_{n:04d}{letter}"), r"(IMG_\d+)[a-zA-Z][.]"),
    "words": (
        observed(lambda n, _, word: f"plant{n}_{word}", words=["leaf", "bark", "fruit"]),
        r"(plant\d+)_",
    ),
    "hashes": (
        observed(lambda n, k, _: f"{hash((n, 'x')) % 2**40:010x} {k}"),
        r"([^/]*?) \d+[.][^./]*$",
    ),
    "words with numbers": (
        observed(lambda n, k, word: f"{n:03d}-{word}_{k}", words=["leaf", "bark", "fruit"]),
        r"(\d+)-",
    ),
    "numbers that start again": (
        observed(lambda n, k, _: f"obs{n}_{k}", restarts=True),
        r"([^/]*/obs\d+)_",
    ),
    "folders": (observed(lambda n, k, _: f"plant {n}/{k}"), "parent"),
}
UNLIKELY = {
    "a camera": each(lambda _folder, _number, draw: f"IMG_{draw % 10**4:04d}"),
    "a camera in order": each(lambda _folder, number, _draw: f"IMG_{number:04d}"),
    "classes": each(lambda folder, number, _draw: f"{folder}_{number:04d}"),
    "CIFAR-10": each(
        lambda folder, _number, draw: f"{'abcd'[draw % 4]}_{folder}_s_{draw % 2000:06d}"
    ),
    "dates": each(lambda _f, _number, draw: f"2019-{draw % 12 + 1:02d}-{draw % 28 + 1:02d}"),
    "hashes": each(lambda _folder, _number, draw: f"{draw:08x}"),
    "batches of a camera": each(lambda _f, number, draw: f"batch{draw % 5}_img{number}"),
    "species": each(lambda _folder, number, draw: f"species {draw % 3}/{number}"),
}


UNLIKELY["folders of splits"] = [
    f"{('train', 'val', 'test')[index % 3]}/{path}"
    for index, path in enumerate(each(lambda *draws: f"{draws[2]:x}"))
]


def labels(paths):
    return np.array([next(n for n, name in enumerate(CLASSES) if name in path) for path in paths])


@pytest.mark.parametrize("case", LIKELY)
def test_groups_in_names_are_found_with_what_finds_them(case):
    paths, grammar = LIKELY[case]
    found = likely_groups.by_names(paths, labels(paths))
    assert found is not None
    assert found.grammar == grammar
    # As a run with that field has them.
    named = group_names.find(grammar, paths, field="--group")
    assert named == tuple(f"group {group}" for group in found.groups)
    assert len(set(named)) == 60


@pytest.mark.parametrize("case", UNLIKELY)
def test_ordinary_names_are_not_groups(case):
    paths = UNLIKELY[case]
    assert likely_groups.by_names(paths, labels(paths)) is None


def test_groups_of_other_files_are_found_beside_these():
    paths = LIKELY["a number"][0] + UNLIKELY["hashes"][:50]
    found = likely_groups.by_names(paths, labels(paths))
    assert found is not None
    assert found.grammar == r"(obs\d+)_"
    assert found.groups[-50:] == [""] * 50


def test_bursts_are_found():
    paths = UNLIKELY["hashes"]
    # Two photographs within two seconds, then none for ten minutes.
    bursts = [
        Taken("camera", 600.0 * (index // 2) + 2 * (index % 2)) for index in range(len(paths))
    ]
    found = likely_groups.by_times(paths, bursts, labels(paths))
    assert found is not None
    assert found.grammar == "burst:10"
    assert len(set(found.groups)) == len(paths) // 2
    scattered = [Taken("camera", 600.0 * index) for index in range(len(paths))]
    scanned = [Taken("camera", float(index)) for index in range(len(paths))]
    for taken in (scattered, scanned, [None] * len(paths)):
        assert likely_groups.by_times(paths, taken, labels(paths)) is None


def test_a_pattern_is_a_pattern_whatever_is_in_the_names():
    paths = observed(lambda n, k, _: f"(a+)+[{n}]$_{k}")
    found = likely_groups.by_names(paths, labels(paths))
    assert found is not None
    assert re.compile(found.grammar).groups == 1
