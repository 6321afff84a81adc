"""Groups by a grammar, and groups in names that users may have overlooked."""

from collections import Counter

import numpy as np
import pytest

from tests.parts.program.data import observations
from tests.parts.program.data.test_look import examples_of
from train.data import grouping, look
from train.foundation.errors import UserError

NAMES = ("oak/obs1_1.jpg", "oak/obs1_2.jpg", "ash/obs2_1.jpg", "ash/other.jpg")
CLASSES = [f"class {number}" for number in range(6)]
_RNG = np.random.default_rng(0)


def observed(name, *, restarts=False):
    """Photographs of observations: `name` makes one of its number, and k."""
    numbered = (
        (label, label * 10 * (not restarts) + n) for label in range(6) for n in range(1, 11)
    )
    return [
        f"{CLASSES[label]}/{name(observation, 1 + k)}.jpg"
        for label, observation in numbered
        for k in range(1 + observation % 3)
    ]


def each(name, count=40):
    """Photographs of each class: `name` makes one of the class, a number, and a random one."""
    return [
        f"{folder}/{name(folder, number, draw)}.jpg"
        for folder in CLASSES
        for number, draw in enumerate(_RNG.choice(10**6, count, replace=False).tolist(), start=1)
    ]


# What finds the name before a number, such as obs17 of obs17_2.
NUMBERED = r"[^/]*?)[-_. ]+\d{1,9}[.][^./]*$"
LIKELY = {
    "a number": (observed(lambda n, k: f"obs{n:04d}_{k}"), f"({NUMBERED}"),
    "hashes": (observed(lambda n, k: f"{hash((n, 7)) % 2**40:010x} {k}"), f"({NUMBERED}"),
    "words with numbers": (
        observed(lambda n, k: f"{n:03d}-{('leaf', 'bark', 'fruit')[k - 1]}_{k}"),
        r"([^/]*?\d)[-_. ]+[^\W\d_]+[-_. ]*\d{1,9}[.][^./]*$",
    ),
    "numbers that start again": (
        observed(lambda n, k: f"obs{n}_{k}", restarts=True),
        f"([^/]*/{NUMBERED}",
    ),
    "names that are patterns": (observed(lambda n, k: f"(a+)+[{n}]$_{k}"), f"({NUMBERED}"),
}
UNLIKELY = {
    "a camera": each(lambda _folder, _n, draw: f"IMG_{draw % 10**4:04d}"),
    "a camera in order": each(lambda _folder, n, _draw: f"IMG_{n:04d}"),
    "classes": each(lambda folder, n, _draw: f"{folder}_{n:04d}"),
    "CIFAR-10": each(lambda folder, _n, draw: f"{'abcd'[draw % 4]}_{folder}_s_{draw % 2000:06d}"),
    "dates": each(lambda _folder, _n, draw: f"2019-{draw % 12 + 1:02d}-{draw % 28 + 1:02d}"),
    "hashes": each(lambda _folder, _n, draw: f"{draw:08x}"),
    "batches of a camera": each(lambda _folder, n, draw: f"batch{draw % 5}_img{n}"),
    "species": each(lambda _folder, n, draw: f"species {draw % 3}/{n}"),
    "numbers from 100": each(lambda folder, n, _: f"{folder[-1]}{n % 10}_{100 + n // 10}"),
    "numbers with gaps": each(lambda folder, n, _: f"{folder[-1]}{n % 10}_{50 * (n // 10)}"),
    "days with all classes": [
        f"{CLASSES[number % 6]}/day{number // 5}_{number % 5 + 1}.jpg" for number in range(240)
    ],
    "numbers that start again in each split": [
        f"{split}/{path}"
        for split in ("train", "test")
        for path in observed(lambda n, k: f"obs{n}_{k}")
    ],
    "folders of splits": [
        f"{('train', 'val', 'test')[index % 3]}/{path}"
        for index, path in enumerate(each(lambda *draws: f"{draws[2]:x}", count=15))
    ],
}


def labels(names):
    return np.array([next(n for n, one in enumerate(CLASSES) if one in name) for name in names])


def find(grammar, names=NAMES, **options):
    return grouping.find(grammar, names, field="--group", **options).tolist()


# Of decomposed and composed letters, which look the same.
CIRCUMFLEX = ["che\u0302ne/1.jpg", "ch\u00eane/2.jpg", "oak/3.jpg"]
FOUND = {
    "a capture": (r"(obs\d+)_", NAMES, ["obs1", "obs1", "obs2", ""]),
    "the folder": ("parent", NAMES, ["oak", "oak", "ash", "ash"]),
    "no folder": ("parent", ["a/1.jpg", "2.jpg", "3.jpg"], ["a", "", ""]),
    "folders that look the same": ("parent", CIRCUMFLEX, ["ch\u00eane", "ch\u00eane", "oak"]),
    "names that look the same": ("(.*)/", CIRCUMFLEX, ["ch\u00eane", "ch\u00eane", "oak"]),
}


@pytest.mark.parametrize("case", FOUND)
def test_groups_are_what_the_grammar_finds(case, caplog):
    grammar, names, groups = FOUND[case]
    assert find(grammar, names) == groups
    told = [f"no group in {groups.count('')} of {len(groups)} names"] * ("" in groups)
    assert len(caplog.messages) == len(told)
    assert all(one in line for one, line in zip(told, caplog.messages, strict=True))


@pytest.mark.parametrize(
    "grammar", ["(obs", "(o)(b)", "(plant\\d+)", "(jpg)", "plant", "near_duplicates"]
)
def test_refused(grammar):
    with pytest.raises(UserError, match=r"^--group must be ") as error:
        find(grammar)
    assert f"'{grammar}'" in str(error.value)


def test_groups_in_no_name_are_refused_and_one_group_may_be_meant():
    with pytest.raises(UserError, match="finds a group in none of 2 names, such as oak/obs1_1"):
        find("obs1_1(.*?)[.]", NAMES[:2])
    assert set(find("(jpg)", may_be_one=True)) == {"jpg"}


def test_images_that_look_alike_are_a_group_and_others_alone(tmp_path, caplog):
    names = [*observations.names(3), "ash/obs100_1.jpg"]
    observations.write(tmp_path, names)
    copies = look.look(examples_of([(tmp_path / name).read_bytes() for name in names])).copies
    firsts = {observations.observation(name): name for name in reversed(names)}
    expected = [firsts[observations.observation(name)] for name in names[:-1]]
    assert find("near_duplicates", names, copies=copies) == [*expected, ""]
    # That no image looks like another one is no mistake.
    assert find("near_duplicates", names[:1], copies=copies[:1]) == [""]
    assert caplog.messages == []


@pytest.mark.parametrize("case", LIKELY)
def test_groups_in_names_are_told_with_what_finds_them(case, caplog):
    names, grammar = LIKELY[case]
    others = UNLIKELY["hashes"][:50] if case == "a number" else []
    found = grouping.find_likely([*names, *others], labels([*names, *others]))
    assert found is not None
    assert found[0] == grammar
    # As a run with that field has them.
    named, members = np.array(find(grammar, names)), found[1]
    assert len(set(named)) == 60
    assert [len(set(named[one])) for one in members] == [1] * len(members)
    assert sum(map(len, members)) == sum(n for n in Counter(named).values() if n > 1)
    grouping.warn_of_likely("DATA", names, labels(names), "an array or {flag}")
    (line,) = caplog.messages
    assert line.startswith("DATA: names of files look like those of groups, such as ")
    assert f"{len(members)} groups of several examples, each of which counts" in line
    assert grammar in line


@pytest.mark.parametrize("case", UNLIKELY)
def test_ordinary_names_are_not_groups(case, caplog):
    names = UNLIKELY[case]
    grouping.warn_of_likely("DATA", names, labels(names))
    assert caplog.messages == []
