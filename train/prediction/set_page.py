"""The page of sets: a card for each, on which a person can mark the right class."""

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.foundation.console import printable
from train.foundation.errors import UserError
from train.foundation.names import in_utf8
from train.prediction import pages
from train.prediction.entries import Entry, title_of
from train.prediction.pages import percent, to_json
from train.prediction.thumbnails import Similar
from train.reports.rules import SetRule

# Thumbnails of photographs have 15 to 25 kB each.
MOST_CARDS = 2000
# How many classes of a set are seen before the list is opened.
_SEEN = 5


@dataclass(frozen=True)
class PageFacts:
    """What the page shows beside the sets.

    Attributes:
        rule: the rule that makes them.
        names: the names of the classes.
        labels: what tables call the classes.
        what: what an example is called.
        table: further facts by their names.
    """

    rule: SetRule
    names: Sequence[str]
    labels: Sequence[str]
    what: str
    table: Mapping[str, str]

    @classmethod
    def of(cls, classifier: Classifier, rule: SetRule) -> "PageFacts":
        """The facts of a classifier and a rule with limits."""
        names = labels = classifier.classes.names
        table = {"Classifier": classifier.title, "Classes": f"{len(names):,}", "Rule": str(rule)}
        if isinstance(classifier, TrainedClassifier):
            labels = classifier.parts.data.classes.names
            if classifier.spec.attribution:
                table["Source of the data"] = classifier.spec.attribution
        return cls(rule, names, labels, classifier.what, table)

    def label(self, index: int) -> str | None:
        """What tables call a class, as JSON; None if a page shows just that."""
        label = self.labels[index]
        return None if label == printable(self.names[index]) else to_json(label)


class _Member(NamedTuple):
    name: str
    label: str | None
    probability: float
    similar: Sequence[Similar]


def check(number: int) -> None:
    """Raises `UserError` for more sets than a page shows."""
    if number > MOST_CARDS:
        parts = -(-number // MOST_CARDS)
        but = f"there are {number:,}; --shard=1/{parts} takes the first of {parts} parts"
        raise UserError(field="--html", must_be=f"of at most {MOST_CARDS:,} sets", but=but)


def write(path: Path, entries: Iterable[Entry], facts: PageFacts) -> None:
    """Writes the page at the end; an error before leaves the page that was there."""
    unreadable: list[str] = []
    cards, what, digest = [], facts.what, hashlib.sha256()
    for entry in entries:
        unreadable += [one["error"] for one in entry.unreadable_origins]
        if entry.probabilities is not None:
            what = what if entry.group is None else "observation"
            cards.append(_card(entry, facts))
            digest.update(cards[-1]["rows"].encode() + entry.probabilities.tobytes())
    shown = [one["entry"] for one in cards]
    pages.write(
        path,
        "set_page.html",
        ("cards.js", "csv.js", "marks.js", "set_page.js"),
        title=f"Sets of classes for {pages.plural(len(cards), what)}",
        rule=facts.rule.in_words,
        table={**facts.table, **_numbers(shown)},
        cards=cards,
        unreadable=unreadable,
        digest=digest.hexdigest(),
        marks_file=f"{in_utf8(path.stem)}-marks.csv",
        offered=sorted((name, facts.label(index) or "") for index, name in enumerate(facts.names)),
    )


def _card(entry: Entry, facts: PageFacts) -> dict[str, Any]:
    """An entry as the template shows it."""
    chances = entry.probabilities
    assert chances is not None
    similar = dict(zip(entry.classes, entry.similar, strict=False))

    def member(index: int) -> _Member:
        name, label = facts.names[index], facts.label(index)
        return _Member(name, label, float(chances[index]), similar.get(index, ()))

    # A photograph in the current folder shows none.
    paths = [Path(one["path"]) for one in entry.origins if "path" in one]
    folders = {path.parent for path in paths} - {Path()}
    return {
        # Without the probabilities: of many classes, those of all sets would fill the memory.
        "entry": dataclasses.replace(entry, probabilities=None, inputs=None),
        "rows": to_json([*_rows(entry)]),
        "folder": os.path.join(*folders, "") if len(folders) == 1 else "",  # noqa: PTH118
        "pictures": [*zip(entry.thumbnails, map(title_of, entry.origins), strict=False)],
        "likeliest": member(int(chances.argmax())),
        "parts": [*_parts(entry, {index: member(index) for index in entry.classes}, facts)],
    }


def _parts(
    entry: Entry, of: Mapping[int, _Member], facts: PageFacts
) -> Iterator[tuple[int, str, Sequence[_Member]]]:
    """Classes that stand together, from a place of the set on; with a title, in a list to open."""
    tree, start, members = facts.rule.tree, 0, [*of.values()]
    if tree is None or entry.nodes is None:
        # One class more takes no more room than the line that hides it.
        seen = _SEEN if len(members) > _SEEN + 1 else len(members)
        yield 0, "", members[:seen]
        if members[seen:]:
            yield seen, f"and {len(members) - seen:,} more", members[seen:]
        return
    for node, probability in entry.nodes:
        below = {*tree.members(node).tolist()}
        own = [one for index, one in of.items() if index in below]
        title = f"{tree.title(node, facts.names)} {percent(probability)}" if len(own) > 1 else ""
        yield start, title, own
        start += len(own)


def _rows(entry: Entry) -> Iterator[dict[str, str]]:
    """What the table of marks has of each example of a set beside its label."""
    group = {} if entry.group is None else {"group": in_utf8(entry.group)}
    for origin in entry.origins:
        if "path" in origin:
            # Nobody knows which folder the table will be saved in.
            yield {"path": in_utf8(os.path.abspath(origin["path"])), **group}  # noqa: PTH100
        else:
            row = str(origin["row"])
            yield {"row": row, "name": origin.get("name") or f"row {row}", **group}


def _numbers(entries: Sequence[Entry]) -> dict[str, str]:
    empty = sum(not (one.classes or one.none_of_these) for one in entries)
    new = sum(bool(one.none_of_these) for one in entries)
    counts = {"Empty sets here": empty, "“None of these” here": new}
    shares = {what: f"{n:,} ({percent(n / len(entries))})" for what, n in counts.items() if n}
    size = sum(len(one.classes) for one in entries) / max(len(entries), 1)
    return {"Mean size here": f"{size:.3g}", **shares}
