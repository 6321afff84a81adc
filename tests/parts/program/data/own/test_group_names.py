"""Groups by a grammar, and groups in names that users may have overlooked."""

import io
import re
from collections import Counter

import numpy as np
import pytest

from tests.parts.program.data.own.pictures import picture
from train.data.own import groups
from train.foundation.errors import UserError

PATHS = ("oak/obs1_1.jpg", "oak/obs1_2.jpg", "ash/obs2_1.jpg", "ash/other.jpg")
CLASSES = [f"class {number}" for number in range(6)]
_RNG = np.random.default_rng(0)


def numbers(most, count):
    return _RNG.choice(most, count, replace=False).tolist()


def observed(name, *, restarts=False, words=("", "", "")):
    """Photographs of observations: `name` makes one of its number, k, and a word."""
    found = []
    for label, folder in enumerate(CLASSES):
        for number in range(1, 11):
            observation = number if restarts else 10 * label + number
            for k in range(1 + observation % 3):
                found.append(f"{folder}/{name(observation, 1 + k, words[k])}.jpg")
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
    "hashes": (
        observed(lambda n, k, _: f"{hash((n, 'x')) % 2**40:010x} {k}"),
        r"([^/]*?)[-_. ]+\d{1,9}[.][^./]*$",
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
    "numbers from 100": each(lambda folder, n, _: f"{folder[-1]}{n % 10}_{100 + n // 10}"),
    "numbers with gaps": each(lambda folder, n, _: f"{folder[-1]}{n % 10}_{50 * (n // 10)}"),
    "days with all classes": [
        f"{CLASSES[number % 6]}/day{number // 5}_{number % 5 + 1}.jpg" for number in range(240)
    ],
    "numbers that start again in each split": [
        f"{split}/{path}"
        for split in ("train", "test")
        for path in observed(lambda n, k, _: f"obs{n}_{k}")
    ],
    "folders of splits": [
        f"{('train', 'val', 'test')[index % 3]}/{path}"
        for index, path in enumerate(each(lambda *draws: f"{draws[2]:x}", count=15))
    ],
}


def labels(paths):
    return np.array([next(n for n, name in enumerate(CLASSES) if name in path) for path in paths])


def find(grammar, paths=PATHS, **options):
    return groups.find(grammar, paths, field="--group", **options)


def test_a_pattern_finds_its_capture_and_a_file_without_it_is_a_group(caplog):
    with caplog.at_level("WARNING"):
        found = find(r"(obs\d+)_")
    assert found == ("group obs1", "group obs1", "group obs2", "path ash/other.jpg")
    (line,) = caplog.messages
    assert "in 1 of 4 images, such as ash/other.jpg" in line


def test_names_that_look_the_same_are_one_group():
    assert find("(ch.*ne)_", ["a/che\u0302ne_1.jpg", "b/ch\u00eane_2.jpg", "c/chine_3.jpg"]) == (
        "group ch\u00eane",
        "group ch\u00eane",
        "group chine",
    )


def test_the_folder():
    assert find("parent") == ("group oak", "group oak", "group ash", "group ash")


def test_images_that_look_alike_and_unreadable_ones_by_themselves(caplog):
    files = [io.BytesIO() for _ in PATHS]
    for file, name in zip(files, ["one", "other", "one"], strict=False):
        picture(name, size=(64, 64)).save(file, "PNG")
    found = find("near_duplicates", open_image=lambda index: io.BytesIO(files[index].getvalue()))
    assert found == (
        "group oak/obs1_1.jpg",
        "group oak/obs1_2.jpg",
        "group oak/obs1_1.jpg",
        "path ash/other.jpg",
    )
    assert "in 1 of 4 images" in caplog.text

    def missing(index):
        raise FileNotFoundError(index)

    with pytest.raises(UserError, match="'near_duplicates' finds a group in none of the 4"):
        find("near_duplicates", open_image=missing)


@pytest.mark.parametrize(
    "grammar", ["(obs", "(o)(b)", "(plant\\d+)", "(jpg)", "plant", "near_duplicates"]
)
def test_refused(grammar):
    with pytest.raises(UserError, match=r"^--group must be ") as error:
        find(grammar)
    assert f"'{grammar}'" in str(error.value)


def test_all_images_may_be_one_group_where_that_is_asked():
    assert set(find("(jpg)", may_be_one=True)) == {"group jpg"}


@pytest.mark.parametrize("case", LIKELY)
def test_groups_in_names_are_found_with_what_finds_them(case):
    paths, grammar = LIKELY[case]
    found = groups.find_likely(paths, labels(paths))
    assert found is not None
    assert found.grammar == grammar
    # As a run with that field has them.
    named = find(grammar, paths)
    assert len(set(named)) == 60
    counts = Counter(named)
    assert [len(one) for one in found.members] == [n for n in counts.values() if n > 1]
    for indices in found.members:
        assert len({named[index] for index in indices}) == 1


@pytest.mark.parametrize("case", UNLIKELY)
def test_ordinary_names_are_not_groups(case):
    paths = UNLIKELY[case]
    assert groups.find_likely(paths, labels(paths)) is None


def test_groups_of_other_files_are_found_beside_these():
    paths = LIKELY["a number"][0] + UNLIKELY["hashes"][:50]
    found = groups.find_likely(paths, labels(paths))
    assert found is not None
    assert found.grammar == r"(obs\d+)_"
    assert max(map(max, found.members)) < len(paths) - 50


def test_a_pattern_is_a_pattern_whatever_is_in_the_names():
    paths = observed(lambda n, k, _: f"(a+)+[{n}]$_{k}")
    found = groups.find_likely(paths, labels(paths))
    assert found is not None
    assert re.compile(found.grammar).groups == 1
