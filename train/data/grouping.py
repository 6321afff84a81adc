r"""The group of each example, such as the plant that several photographs show, by a grammar.

- A regular expression with one capture, `(obs\d+)_`: what it finds in the name of the example.
- `parent`: the folder of the image.
- `near_duplicates`: images that look alike; see `near_duplicates`.

A user may have overlooked groups. Likely ones are in the names of files that number the photographs
of each thing. A false alarm is worse than silence: likely groups have to be inside classes, and to
divide the classes.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from absl import logging

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.data import near_duplicates
from train.foundation import names as unicode_names
from train.foundation.errors import UserError

PARENT, NEAR_DUPLICATES = "parent", "near_duplicates"
# Likely groups: the fewest groups of several examples, and the least part of all examples in them.
_FEWEST_GROUPS, _LEAST_PART = 5, 0.2
# The fewest groups of a class on average: a name with the class, such as oak_0012.jpg, makes it one
# group.
_LEAST_PER_CLASS = 3
# The most groups that may have several classes, or be numbered in another way.
_MOST_MIXED, _MOST_OTHER_NUMBERS = 0.05, 0.3
# The forms of the name of a file: the group, and then a number (obs17_2) or a word with a number
# (017-leaf_2).
_BETWEEN, _NUMBER, _ENDING = "[-_. ]+", r"\d{1,9}", "[.][^./]*$"
_FORMS = ((r"[^/]*?", _NUMBER), (r"[^/]*?\d", rf"[^\W\d_]+[-_. ]*{_NUMBER}"))


def find(
    grammar: str,
    names: Sequence[str],
    *,
    field: str,
    copies: np.ndarray | None = None,
    may_be_one: bool = False,
) -> np.ndarray:
    """The group of each example, texts [n]; "" for an example that is a group of its own.

    Names that look the same are one; see `same_form`. A warning counts the names without a group.

    Args:
        grammar: how the group is found; see above.
        names: the names of the examples, with "/" between folders; there are some.
        field: what has the grammar in messages, such as "config.dataset.group" or "--group".
        copies: the grey copies of images, for `near_duplicates`; None for other examples.
        may_be_one: whether all examples may be of one group.

    Raises:
        UserError: the grammar is wrong, no name has a group, or all are one group but may not be.
    """
    pattern = check(grammar, field)
    if pattern is not None:
        matches = (pattern.search(unicode_names.same_form(name)) for name in names)
        texts = [(match and match[1]) or "" for match in matches]
    elif copies is not None:
        texts = _alike(names, copies)
    else:
        must_be = "found in the names, because the data are not images"
        raise UserError(field=field, must_be=must_be, got=grammar)
    found = np.array([*map(unicode_names.same_form, texts)], object)
    number, without = len(found), np.flatnonzero(found == "")
    if number > 1 and found[0] and (found == found[0]).all() and not may_be_one:
        but = f"'{grammar}' makes all {number:,} one group, {found[0]!r}"
        raise UserError(field=field, must_be="different between examples", but=but)
    # Most images look like no other one.
    if without.size and grammar != NEAR_DUPLICATES:
        such = f"of {number:,} names, such as {names[without[0]]}"
        if len(without) == number:
            but = f"'{grammar}' finds a group in none {such}"
            raise UserError(field=field, must_be="found in the names", but=but)
        told = f"'{grammar}' finds no group in {len(without):,} {such}"
        logging.warning("%s: %s; each is a group of its own", field, told)
    return found


def is_pattern(grammar: str | None) -> TypeGuard[str]:
    """Whether it finds groups in names or images; otherwise it may name a column or an array."""
    return grammar is not None and (grammar in (PARENT, NEAR_DUPLICATES) or "(" in grammar)


def check(grammar: str, field: str) -> re.Pattern[str] | None:
    """The pattern of a grammar; None for `near_duplicates`.

    Raises:
        UserError: it is not a grammar.
    """
    if grammar == NEAR_DUPLICATES:
        return None
    try:
        pattern = re.compile("(.*)/" if grammar == PARENT else grammar)
        but = f"'{grammar}' has {pattern.groups} captures"
        if pattern.groups == 1:
            return pattern
    except (re.error, OverflowError, RecursionError) as error:
        but = f"'{grammar}' is not a regular expression: {error}"
    raise UserError(field=field, must_be=HOW_GROUPS_ARE_FOUND, but=but)


def warn_of_likely(
    where: str,
    names: Sequence[str],
    labels: np.ndarray,
    how: str = "{flag}",
    *,
    splits: np.ndarray | None = None,
) -> None:
    """Warns of likely groups in the names of examples that are given without groups.

    Whatever reads such examples calls this, because it counts each of them as independent.

    Args:
        where: the examples in the warning.
        names: their names, with "/" between folders.
        labels: the class of each, [n].
        how: what names the groups; "{flag}" stands for the flag that does.
        splits: the split of each, [n], if groups count only that several splits have.
    """
    likely = find_likely(names, labels)
    if likely is None:
        return
    grammar, told = likely
    number, counts = len(told), "each of which counts as independent"
    if splits is not None:
        told = [one for one in told if len({*splits[one].tolist()}) > 1]
        counts = f"{len(told):,} of them in several splits, which makes accuracies too good"
    if not told:
        return
    first, second, *_ = told[0]
    given = f"config.dataset.group={shlex.quote(grammar)}"
    named_by = how.format(flag=f"--{given.removeprefix('--')}")
    such = f"names of files look like those of groups, such as {names[first]} and {names[second]}"
    counts = f"{number:,} groups of several examples, {counts}"
    logging.warning("%s: %s: %s; %s names them", where, such, counts, named_by)


def find_likely(names: Sequence[str], labels: np.ndarray) -> tuple[str, list[list[int]]] | None:
    """Likely groups in the names of examples, with the label of each, [n]; None without any.

    Returns:
        The grammar that finds them, and the indices of each group of several.
    """
    for name, member in _FORMS:
        # Numbers of observations may start again in the folder of each class.
        for folder in ("", "[^/]*/"):
            grammar = f"({folder}{name}){_BETWEEN}{member}{_ENDING}"
            members: dict[str, list[int]] = defaultdict(list)
            for index, one in enumerate(names):
                match = re.search(grammar, one)
                if match and match[1]:
                    members[match[1]].append(index)
            several = [indices for indices in members.values() if len(indices) > 1]
            classes = [{*labels[indices].tolist()} for indices in members.values()]
            others = sum(not _are_numbered([names[index] for index in one]) for one in several)
            if (
                len(several) >= _FEWEST_GROUPS
                and sum(map(len, several)) >= _LEAST_PART * len(names)
                and len(members) >= _LEAST_PER_CLASS * len(set().union(*classes))
                and sum(len(one) > 1 for one in classes) <= _MOST_MIXED * len(several)
                and others <= _MOST_OTHER_NUMBERS * len(several)
            ):
                return grammar, several
    return None


def _alike(names: Sequence[str], copies: np.ndarray) -> list[str]:
    """The cluster of near-duplicates of each image, named by its first one; empty if alone."""
    found = near_duplicates.clusters(near_duplicates.alike(copies), len(names))
    _, first, number = np.unique(found, return_index=True, return_counts=True)
    # A run keeps these names.
    called = [unicode_names.in_utf8(names[index]) for index in first.tolist()]
    return [called[one] if number[one] > 1 else "" for one in found.tolist()]


def _are_numbered(names: Sequence[str]) -> bool:
    """Whether names of files are different, and numbered from 0 or 1 with few gaps."""
    different = {name.rpartition("/")[2].rpartition(".")[0] for name in names}
    numbers = {int(re.split(r"\D", name)[-1]) for name in different}
    has_few_gaps = max(numbers) - min(numbers) < 1.5 * len(numbers)
    return len(different) == len(names) and min(numbers) <= 1 and has_few_gaps
