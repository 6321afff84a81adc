r"""The group of each image, such as the plant that several photographs show, by a grammar.

- A regular expression with one capture, `(obs\d+)_`: what it finds in the path of the image.
- `parent`: the folder of the image.
- `near_duplicates`: images that look alike; see `near_duplicates`.

A user may have overlooked groups. Likely ones are in the names of files that number the photographs
of each thing, or in small folders. A false alarm is worse than silence: likely groups have to be
inside classes, and to divide the classes.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from absl import logging

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.data.own import near_duplicates, thumbnails
from train.data.own.listing import name_groups
from train.foundation import names, reading
from train.foundation.console import make_console
from train.foundation.errors import UserError
from train.foundation.progress_bar import make_bar
from train.foundation.spelling import spell

_PARENT, _NEAR_DUPLICATES = "parent", "near_duplicates"
# The images that are read before they are wanted.
_AHEAD = 256
# Likely groups: the fewest groups of several images, and the least part of all images in them.
_FEWEST_GROUPS, _LEAST_PART = 5, 0.2
# The fewest groups of a class on average: a name with the class, such as oak_0012.jpg, makes it one
# group. A class can have a folder in each of three splits.
_LEAST_PER_CLASS, _MOST_FOLDERS = 3, 3
# The most groups that may have several classes, or be numbered in another way.
_MOST_MIXED, _MOST_OTHER_NUMBERS = 0.05, 0.3
# The most images of a folder on average. Larger folders are usually species of a genus.
_MOST_IN_FOLDER = 10
# The forms of the name of a file: the group, and then a number (obs17_2) or a word with a number
# (017-leaf_2).
_BETWEEN, _NUMBER, _ENDING = "[-_. ]+", r"\d{1,9}", "[.][^./]*$"
_FORMS = ((r"[^/]*?", _NUMBER), (r"[^/]*?\d", rf"[^\W\d_]+[-_. ]*{_NUMBER}"))

# An image as a file, by its index.
Open = Callable[[int], BinaryIO]


def find(
    grammar: str,
    paths: Sequence[str],
    *,
    field: str,
    open_image: Open | None = None,
    may_be_one: bool = False,
) -> tuple[str, ...]:
    """The name of the group of each image: "group X", or "path P" for an image without one.

    Images without a group are counted in a warning; each of them is a group of its own. Names that
    look the same are one; see `names.same_form`.

    Args:
        grammar: how the group is found; see above.
        paths: the paths of the images, with "/" between folders; there are some.
        field: what has the grammar in messages, such as "config.dataset.group" or "--group".
        open_image: opens an image by its index in `paths`, for `near_duplicates`; an `OSError`
            leaves the image without a group. None for examples that are not images.
        may_be_one: whether all images may be of one group.

    Raises:
        UserError: the grammar is wrong, no image has a group, or all are one group but may not be.
    """
    pattern = check(grammar, field)
    if pattern is not None:
        matches = (pattern.search(names.same_form(path)) for path in paths)
        given = [(match and match[1]) or "" for match in matches]
    elif grammar == _PARENT:
        given = [path.rpartition("/")[0] for path in paths]
    elif open_image is not None:
        given = _alike(paths, open_image)
    else:
        raise UserError(
            field=field, must_be="found in the paths, because the data are not images", got=grammar
        )
    found = [names.same_form(name) for name in given]
    number = len(found)
    without = [path for path, name in zip(paths, found, strict=True) if not name]
    if len(without) == number:
        raise UserError(
            field=field,
            must_be="found in the images",
            but=f"'{grammar}' finds a group in none of the {number:,}, such as {paths[0]}",
        )
    if not may_be_one and number > 1 and not without and len(set(found)) == 1:
        raise UserError(
            field=field,
            must_be="different between images",
            but=f"'{grammar}' makes all {number:,} images one group, {found[0]!r}",
        )
    if without:
        logging.warning(
            "%s: %r finds no group in %s of %s images, such as %s; each is a group of its own",
            spell(field),
            grammar,
            f"{len(without):,}",
            f"{number:,}",
            without[0],
        )
    return name_groups(found, (f"path {path}" for path in paths))


def check(grammar: str, field: str) -> re.Pattern[str] | None:
    """The pattern of a grammar; None for a word.

    Raises:
        UserError: it is not a grammar.
    """
    if grammar in (_PARENT, _NEAR_DUPLICATES):
        return None
    try:
        pattern = re.compile(grammar)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(
            field=field,
            must_be=HOW_GROUPS_ARE_FOUND,
            but=f"'{grammar}' is not a regular expression: {error}",
        ) from error
    if pattern.groups != 1:
        several = " ((?:…) groups without a capture)" if pattern.groups else ""
        raise UserError(
            field=field,
            must_be=HOW_GROUPS_ARE_FOUND,
            but=f"'{grammar}' has {pattern.groups or 'no'} captures{several}",
        )
    return pattern


def _alike(paths: Sequence[str], open_image: Open) -> list[str]:
    """The cluster of near-duplicates of each image, named by its first one; empty if unreadable."""
    looked = reading.in_threads(
        lambda index: thumbnails.read(open_image, index), range(len(paths)), ahead=_AHEAD
    )
    with make_bar(make_console(stderr=True), before="finding groups", transient=True) as bar:
        copies = [*bar.track(looked, total=len(paths))]
    clusters = near_duplicates.find(thumbnails.stacked(copies)).clusters(len(paths)).tolist()
    first: dict[int, str] = {}
    for cluster, path in zip(clusters, paths, strict=True):
        first.setdefault(cluster, path)
    return [
        "" if copy is None else first[cluster]
        for cluster, copy in zip(clusters, copies, strict=True)
    ]


@dataclass(frozen=True)
class Likely:
    """Groups that are likely.

    Attributes:
        grammar: what finds them.
        members: the indices of the images of each group that has several.
    """

    grammar: str
    members: Sequence[Sequence[int]]

    def in_words(self, where: str, one: str, other: str) -> str:
        """That the images look like those of groups, such as two images of one group."""
        what = "folders" if self.grammar == _PARENT else "names of files"
        return f"{where}: {what} look like those of groups, such as {one} and {other}"


def flag(grammar: str) -> str:
    """The flag that gives a grammar, as for a shell."""
    given = spell(f"config.dataset.group={shlex.quote(grammar)}")
    return given if given.startswith("--") else f"--{given}"


def warn(where: str, paths: Sequence[str], labels: np.ndarray, named_by: str = "{flag}") -> None:
    """Warns of likely groups in the names of labelled examples that are given without groups.

    Whatever reads such examples calls this, because it counts each of them as independent.

    Args:
        where: the examples in the warning.
        paths: their names, as the paths of images with "/" between folders.
        labels: the class of each, [n].
        named_by: what names the groups; "{flag}" stands for the flag that does.
    """
    likely = find_likely(paths, labels)
    if likely is not None:
        one, other, *_ = likely.members[0]
        logging.warning(
            "%s: %s groups of several examples, each of which counts as independent; %s names them",
            likely.in_words(where, paths[one], paths[other]),
            f"{len(likely.members):,}",
            named_by.format(flag=flag(likely.grammar)),
        )


def find_likely(paths: Sequence[str], labels: np.ndarray) -> Likely | None:
    """Likely groups in the paths of images, with the label of each, [n]; None if there are none."""
    folders = [path.rpartition("/")[0] for path in paths]
    number = len(set(folders))
    is_deep = number > _MOST_FOLDERS * len(np.unique(labels))
    if is_deep and len(paths) <= _MOST_IN_FOLDER * number and (members := _likely(folders, labels)):
        return Likely(_PARENT, members)
    for name, member in _FORMS:
        # Numbers of observations may start again in the folder of each class.
        for folder in ("", "[^/]*/"):
            grammar = f"({folder}{name}){_BETWEEN}{member}{_ENDING}"
            form = re.compile(f"(?:^|/){grammar}")
            matches = [form.search(path) for path in paths]
            groups = [match[1] if match else "" for match in matches]
            ends = [match.string[match.end(1) :] if match else "" for match in matches]
            if members := _likely(groups, labels, ends):
                first = members[0][0]
                plain = _plain(folder, groups[first], ends[first])
                found = (re.search(plain, path) for path in paths)
                is_same = groups == [match[1] if match else "" for match in found]
                return Likely(plain if is_same else grammar, members)
    return None


def _likely(
    groups: Sequence[str], labels: np.ndarray, ends: Sequence[str] | None = None
) -> list[list[int]]:
    """The images of each group of several; empty if these are not likely.

    Args:
        groups: the group of each image, [n]; empty for an image without one.
        labels: the class of each image, [n].
        ends: what follows the group in the name of each image, [n]. None: it need not be numbered.
    """
    members: dict[str, list[int]] = {}
    classes: dict[str, set[int]] = {}
    for index, (group, label) in enumerate(zip(groups, labels.tolist(), strict=True)):
        if group:
            members.setdefault(group, []).append(index)
            classes.setdefault(group, set()).add(label)
    several = [indices for indices in members.values() if len(indices) > 1]
    others = 0 if ends is None else sum(not _are_numbered(ends, one) for one in several)
    are_likely = (
        len(several) >= _FEWEST_GROUPS
        and sum(map(len, several)) >= _LEAST_PART * len(groups)
        and len(members) >= _LEAST_PER_CLASS * len(set().union(*classes.values()))
        and sum(len(one) > 1 for one in classes.values()) <= _MOST_MIXED * len(several)
        and others <= _MOST_OTHER_NUMBERS * len(several)
    )
    return several if are_likely else []


def _are_numbered(ends: Sequence[str], indices: Sequence[int]) -> bool:
    """Whether the names of a group end in different ways, numbered from 0 or 1 with few gaps."""
    different = {ends[index].rpartition(".")[0] for index in indices}
    numbers = {int(re.split(r"\D", end)[-1]) for end in different}
    has_few_gaps = max(numbers) - min(numbers) < 1.5 * len(numbers)
    return len(different) == len(indices) and min(numbers) <= 1 and has_few_gaps


def _plain(folder: str, group: str, end: str) -> str:
    r"""A short pattern from the name of a group and what follows it, such as `(obs\d+)_`."""
    escaped = (re.escape(text) for text in (group.rpartition("/")[2], re.split("[^-_. ]", end)[0]))
    # Outside brackets, dashes and spaces are plain characters.
    name, between = (re.sub(r"\\([- ])", r"\1", text) for text in escaped)
    shape = re.sub(r"\d+", r"\\d+", name)
    return f"({folder}{shape}){between}"
