"""Finds what makes accuracies too good before the first step.

That is splits that divide likely groups, and images of different splits that look alike.
"""

import csv
import functools
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from absl import logging

from train.configuration.datasets import FolderFields, OwnImageFields
from train.data import Dataset
from train.data.own import groups, near_duplicates, table_columns, thumbnails
from train.data.own.encoded_images import EncodedImages
from train.data.own.groups import Likely
from train.data.own.listing import Listing, Role
from train.data.own.near_duplicates import Pairs
from train.data.records import Records
from train.devices import processes
from train.foundation import files, names, reading
from train.workdir import run_files, terminal

_COLUMNS = ("image", "split", "class", "looks_like", "its_split", "its_class", "correlation")
# The names of the splits in the file and in messages.
_WORDS = {Role.TRAIN: "train", Role.VALIDATION: "validation", Role.TEST: "test"}
_AHEAD = 256


@dataclass(frozen=True)
class Overlooked:
    """What was found in the images of a data set.

    Attributes:
        likely: a line about likely groups that splits divide; empty if there are none.
        rows: the images that look like one of another split, as in the file.
        summary: a line about these; empty if there are none.
    """

    likely: str = ""
    rows: Sequence[Sequence[str]] = ()
    summary: str = ""

    def tell(self, workdir: Path) -> None:
        """Warns of what was found, and lists it in the folder of the run."""
        if self.likely:
            logging.warning("%s", self.likely)
        if self.rows:
            path = workdir / run_files.NEAR_DUPLICATES
            text = io.StringIO(newline="")
            rows = (map(table_columns.escaped, map(names.in_utf8, row)) for row in self.rows)
            csv.writer(text).writerows([_COLUMNS, *rows])
            files.write_whole(path, text.getvalue().encode())
            logging.warning("%s; listed in %s", self.summary, path)


NOTHING = Overlooked()


def find(dataset: Dataset, fields: OwnImageFields) -> Overlooked:
    """What makes accuracies too good; the same in all processes.

    Args:
        dataset: the opened data set.
        fields: `config.dataset`.
    """
    records, listed = dataset.train.images, dataset.files
    if not isinstance(records, Records) or listed is None:
        return NOTHING
    splits = (dataset.train, dataset.validation, dataset.test)
    # Training images may be chosen.
    used = np.concatenate([one.images.indices for one in splits if isinstance(one.images, Records)])
    listing = listed.listing.take(used.tolist())
    line = in_names(listing, fields, records.name)
    if not fields.list_near_duplicates:
        return Overlooked(line)
    pairs = _between_splits(near_duplicates.find(_look(records, used)), listing.roles)
    rows, summary = _described(pairs, listing)
    # Nothing else was proposed, and some splits are not given.
    is_free = not (line or listing.has_groups) and bool(set(Role) - listing.given)
    if rows and is_free and isinstance(fields, FolderFields):
        flag = groups.flag("near_duplicates")
        summary += f"; {flag} keeps images that look alike in one split"
    return Overlooked(line, rows, summary)


def in_names(listing: Listing, fields: OwnImageFields, name: str) -> str:
    """A line about likely groups in the names of images; empty if no split divides one.

    Args:
        listing: the images with all splits.
        fields: `config.dataset`.
        name: the data in the line.
    """
    if listing.has_groups:
        return ""
    likely = groups.find_likely(listing.paths, listing.labels)
    return "" if likely is None else _divided(listing, likely, fields, name)


def _look(records: Records, used: np.ndarray) -> np.ndarray:
    """The grey copy of each image; black for an unreadable one, which the check of all reports."""
    source = records.source
    assert isinstance(source, EncodedImages)

    def look(part: range) -> np.ndarray:
        read = functools.partial(thumbnails.read, source.open)
        looked = reading.in_threads(read, used[part].tolist(), ahead=_AHEAD)
        tracked = terminal.tracked(looked, total=len(part), what="comparing the images")
        return thumbnails.stacked([*tracked])

    return processes.gather_parts(len(used), look)


def _divided(listing: Listing, likely: Likely, fields: OwnImageFields, name: str) -> str:
    """A line about likely groups that splits divide; empty if there are none."""
    members = likely.members
    divided = [indices for indices in members if len(set(listing.roles[indices].tolist())) > 1]
    if not divided:
        return ""
    first, *others = divided[0]
    second = next(one for one in others if listing.roles[one] != listing.roles[first])
    is_free = bool(set(Role) - listing.given)
    of_folder = isinstance(fields, FolderFields)
    what = groups.flag(likely.grammar) if of_folder else "a column group of the data"
    advice = f"{what} keeps each in one split" if is_free else f"{what} names them"
    told = likely.in_words(name, listing.paths[first], listing.paths[second])
    return (
        f"{told}: {len(members):,} groups of several images, {len(divided):,} of them in several "
        f"splits, which makes accuracies too good; {advice}"
    )


def _between_splits(pairs: Pairs, roles: np.ndarray) -> Pairs:
    return pairs.take(roles[pairs.first] != roles[pairs.second])


def _described(pairs: Pairs, listing: Listing) -> tuple[Sequence[Sequence[str]], str]:
    """The most similar image of another split for each image, and a summary of all.

    The image is from the later one of the two splits, in the order training, validation, test. The
    image that it looks like is from the earlier one.
    """
    best: dict[int, tuple[float, int]] = {}
    pairs_of_indices = zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
    for (one, other), correlation in zip(pairs_of_indices, pairs.correlation.tolist(), strict=True):
        earlier, later = sorted((one, other), key=lambda index: int(listing.roles[index]))
        best[later] = max(best.get(later, (-1.0, -1)), (correlation, earlier))
    if not best:
        return (), ""
    classes = (*listing.class_names, *listing.unseen_names)

    def described(index: int) -> list[str]:
        word = _WORDS[Role(int(listing.roles[index]))]
        return [listing.paths[index], word, classes[listing.labels[index]]]

    rows = [
        [*described(later), *described(earlier), f"{correlation:.3f}"]
        for later, (correlation, earlier) in sorted(best.items())
    ]
    counts = {
        role: (sum(listing.roles[index] == role for index in best), (listing.roles == role).sum())
        for role in (Role.VALIDATION, Role.TEST)
    }
    numbers = " and ".join(
        f"{count:,} of {total:,} {_WORDS[role]} images"
        for role, (count, total) in counts.items()
        if count
    )
    image, _, _, other, *_ = rows[0]
    return rows, (
        f"near-duplicates: {numbers} look like an image of another split, such as {image} and "
        f"{other}, which makes accuracies too good"
    )
