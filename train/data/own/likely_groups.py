"""Finds groups that a user may have overlooked: in the names of files, and in bursts.

A false alarm is worse than silence. Groups count as likely only if they are inside classes, divide
the classes, and their members are numbered from 0 or 1, also after a word, lettered from a, or have
few words.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from absl import logging

from train.data.own import exif, group_names
from train.data.own.listing import role_named
from train.foundation.spelling import spell

# The most seconds between two consecutive photographs of a burst.
BURST_SECONDS = 10
# Fewer groups of several images are chance, as is a smaller part of all images.
_FEWEST_GROUPS = 5
_LEAST_PART = 0.2
# The fewest groups of a class on average. By a name with the class, such as oak_0012.jpg, a class
# would be one group.
_LEAST_PER_CLASS = 3
# The part of the groups that may be exceptions.
_MOST_EXCEPTIONS = 0.05
_MOST_OTHER_NUMBERS = 0.3
# The most images of a folder on average.
_MOST_IN_FOLDER = 10
# The most images of a group that differ in a word, such as leaf and flower.
_MOST_WORDS = 12
_BETWEEN = "[-_. ]+"


@dataclass(frozen=True)
class Likely:
    """Groups that are likely.

    Attributes:
        grammar: what finds them; see `group_names`.
        groups: the name of the group of each image, [n]; empty for an image without one.
        what: what they were found in, as "names of files".
    """

    grammar: str
    groups: Sequence[str]
    what: str

    def members(self) -> list[list[int]]:
        """The indices of the images of each group that has several."""
        found: dict[str, list[int]] = {}
        for index, group in enumerate(self.groups):
            if group:
                found.setdefault(group, []).append(index)
        return [indices for indices in found.values() if len(indices) > 1]

    def in_words(self, where: str, one: str, other: str) -> str:
        """That the images look like those of groups, such as two images of one group."""
        return f"{where}: {self.what} look like those of groups, such as {one} and {other}"


@dataclass(frozen=True)
class _Form:
    """A form that the names of the images of groups may have.

    Attributes:
        pattern: finds the group, what follows it, and the member in a name without its ending.
        member: the pattern of a member.
        fits: whether the members of a group are as expected.
        most_members: the most different members in all groups.
    """

    pattern: re.Pattern[str]
    member: str
    fits: Callable[[Collection[str]], bool]
    most_members: float = float("inf")


def _are_numbered(members: Collection[str]) -> bool:
    """Whether members are numbered from 0 or 1, with few gaps."""
    return _are_consecutive([int(member) for member in members], 1)


def _are_lettered(members: Collection[str]) -> bool:
    return _are_consecutive([ord(member.lower()) for member in members], ord("a"))


def _are_words_with_numbers(members: Collection[str]) -> bool:
    """Whether members are different, and their numbers start at 0 or 1, with few gaps."""
    numbers = {int(re.split(r"\D", member)[-1]) for member in members}
    return _are_different(members) and _are_consecutive([*numbers], 1)


def _are_consecutive(numbers: Sequence[int], start: int) -> bool:
    lowest, highest, count = min(numbers), max(numbers), len(set(numbers))
    return lowest <= start and count == len(numbers) and highest - lowest < 1.5 * count


def _are_different(members: Collection[str]) -> bool:
    return len(set(members)) == len(members)


_FORMS = (
    _Form(re.compile(rf"(.*?)({_BETWEEN})(\d{{1,9}})"), r"\d+", _are_numbered),
    _Form(re.compile(r"(.*\d)([-_. ]*)([a-zA-Z])"), "[a-zA-Z]", _are_lettered),
    _Form(
        re.compile(r"([^-_. ]*\d)([-_. ]+)(\D+)"), r"\D+", _are_different, most_members=_MOST_WORDS
    ),
    _Form(
        re.compile(rf"(.*?\d)({_BETWEEN})([^\W\d_]+[-_. ]*\d{{1,9}})"),
        r"[^\W\d_]+[-_. ]*\d+",
        _are_words_with_numbers,
    ),
)


def flag(grammar: str) -> str:
    """The flag that gives a grammar, as for a shell."""
    given = spell(f"config.dataset.group={shlex.quote(grammar)}")
    return given if given.startswith("--") else f"--{given}"


def warn(
    where: str,
    paths: Sequence[str],
    labels: np.ndarray,
    named_by: str = "{flag}",
) -> None:
    """Warns of likely groups in the names of labelled examples that are given without groups.

    Whatever reads such examples calls this, because it counts each of them as independent.

    Args:
        where: the examples in the warning.
        paths: their names, as the paths of images with "/" between folders.
        labels: the class of each, [n].
        named_by: what names the groups; "{flag}" stands for the flag that does.
    """
    likely = by_names(paths, labels)
    if likely is None:
        return
    members = likely.members()
    one, other, *_ = members[0]
    logging.warning(
        "%s: %s groups of several examples, each of which counts as independent; %s names them",
        likely.in_words(where, paths[one], paths[other]),
        f"{len(members):,}",
        named_by.format(flag=flag(likely.grammar)),
    )


def by_names(paths: Sequence[str], labels: np.ndarray) -> Likely | None:
    """Likely groups in the paths of images; None if there are none.

    Args:
        paths: the paths of the images, with "/" between folders.
        labels: the class of each image, [n].
    """
    folders = [path.rpartition("/")[0] for path in paths]
    # Folders below the folder of a class, which may be in the folder of a split.
    has_splits = all(role_named(folder.partition("/")[0]) is not None for folder in set(folders))
    are_deeper = all(folder.count("/") > has_splits for folder in set(folders))
    # Larger ones are usually species of a genus.
    are_small = len(paths) <= _MOST_IN_FOLDER * len(set(folders))
    if are_deeper and are_small and _are_likely(folders, labels):
        return Likely("parent", folders, "folders")
    stems = [path.rpartition("/")[2].rpartition(".")[0] for path in paths]
    for form in _FORMS:
        found = [form.pattern.fullmatch(stem) for stem in stems]
        names = [match[1] if match else "" for match in found]
        members = [match[3] if match else "" for match in found]
        if len(set(members)) > form.most_members + 1:
            continue
        between = {match[2] for match in found if match}
        # Numbers of observations may start again in the folder of each class.
        parents = [folder.rpartition("/")[2] for folder in folders]
        with_folder = [
            f"{parent}/{name}" if name else "" for parent, name in zip(parents, names, strict=True)
        ]
        for groups, folder in ((names, ""), (with_folder, "[^/]*/")):
            if _are_likely(groups, labels) and _fit(groups, members, form.fits):
                for grammar in _grammars(names, between, form.member, folder):
                    if _captured(grammar, paths) == groups:
                        return Likely(grammar, groups, "names of files")
    return None


def by_times(
    paths: Sequence[str], taken: Sequence[exif.Taken | None], labels: np.ndarray
) -> Likely | None:
    """Likely bursts of photographs; None if there are none.

    Args:
        paths: the paths of the images.
        taken: when and with which camera each was taken; None if that is not known.
        labels: the class of each image, [n].
    """
    groups = group_names.bursts(paths, taken, BURST_SECONDS)
    if not _are_likely(groups, labels):
        return None
    return Likely(f"burst:{BURST_SECONDS}", groups, "times in EXIF data")


def _are_likely(groups: Sequence[str], labels: np.ndarray) -> bool:
    """Whether groups have several images, are inside classes, and divide the classes."""
    counts = Counter(group for group in groups if group)
    several = {group for group, count in counts.items() if count > 1}
    if len(several) < _FEWEST_GROUPS:
        return False
    if sum(counts[group] for group in several) < _LEAST_PART * len(groups):
        return False
    classes: dict[str, set[int]] = {}
    for group, label in zip(groups, labels.tolist(), strict=True):
        if group:
            classes.setdefault(group, set()).add(label)
    mixed = sum(len(classes[group]) > 1 for group in several)
    in_all = len(set().union(*classes.values()))
    return mixed <= _MOST_EXCEPTIONS * len(several) and len(counts) >= _LEAST_PER_CLASS * in_all


def _fit(
    groups: Sequence[str], members: Sequence[str], fits: Callable[[Collection[str]], bool]
) -> bool:
    """Whether the members of most groups are as expected."""
    of_group: dict[str, list[str]] = {}
    for group, member in zip(groups, members, strict=True):
        if group:
            of_group.setdefault(group, []).append(member)
    several = [found for found in of_group.values() if len(found) > 1]
    others = sum(not fits(found) for found in several)
    return others <= _MOST_OTHER_NUMBERS * len(several)


def _grammars(
    names: Sequence[str], between: Collection[str], member: str, folder: str
) -> Iterator[str]:
    """Patterns that may find the groups of these names, the plainest first."""
    shapes = {re.sub(r"\d+", r"\\d+", _escaped(name)) for name in names if name}
    separator = _escaped(next(iter(between))) if len(between) == 1 else _BETWEEN
    if len(shapes) == 1:
        (shape,) = shapes
        if separator:
            yield f"({folder}{shape}){separator}"
        yield f"({folder}{shape}){separator}{member}[.]"
    yield f"({folder}[^/]*?){separator}{member}[.][^./]*$"
    yield f"({folder}[^/]*){separator}{member}[.][^./]*$"


def _escaped(text: str) -> str:
    """A text as a pattern; outside brackets, dashes and spaces are plain characters."""
    return re.escape(text).replace(r"\-", "-").replace(r"\ ", " ")


def _captured(grammar: str, paths: Sequence[str]) -> list[str]:
    pattern = re.compile(grammar)
    return [(match[1] or "") if (match := pattern.search(path)) else "" for path in paths]
