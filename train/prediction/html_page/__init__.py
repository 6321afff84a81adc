"""An HTML page of sets that needs no network and works without scripts.

The cards of many examples are on several pages, each a file of its own with links to the others:
a browser takes long to lay out thousands. The templates, the style and the scripts are next to this
file. Pages start with counts of all examples, so the cards are collected first, in a temporary
file.
"""

import contextlib
import functools
import hashlib
import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from markupsafe import Markup

from train.data.taxonomy import ClassTree
from train.evaluation.metric import Metric
from train.foundation import files
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Similar, Unreadable
from train.prediction.html_page import cells, page_files, words
from train.prediction.html_page.class_index import ClassIndex
from train.prediction.trained import TrainedClassifier

_HERE = Path(__file__).parent
STYLE = (_HERE / "style.css").read_text(encoding="utf-8")
# The script that every page has.
DROPS = (_HERE / "drops.js").read_text(encoding="utf-8")
# In the order in which they run: a file uses what the files before it define.
_SCRIPTS = ("csv.js", "marks.js", "view.js", "keys.js")
_SCRIPT = DROPS + "".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
# How many classes of a set are visible before the list is opened.
_SEEN = 5

# The name of a class, what tables call it if that is another name, its probability, and similar
# training examples.
_Member = tuple[str, str | None, float, Sequence[Similar]]

_templates = words.make_templates(_HERE)


class _Group(NamedTuple):
    """A node that names classes of a set, which start at a place of the set."""

    title: str
    probability: float
    members: Sequence[_Member]
    start: int


@dataclass(frozen=True)
class PageFacts:
    """What the page shows about the classifier.

    Attributes:
        names: the names of the classes.
        rule: the rule that makes the sets, in words.
        expected: the results of such sets on the test images, in words; may be empty.
        table: the facts by their names.
        example: what an example is called: "image", "row" or "name".
        labels: what tables call the classes; by default their names.
        tree: what is above the classes, if sets have names.
    """

    names: Sequence[str]
    rule: str
    expected: str
    table: dict[str, str]
    example: str = "image"
    labels: Sequence[str] | None = None
    tree: ClassTree | None = None

    @classmethod
    def of(
        cls, classifier: TrainedClassifier, rule: CalibratedRule, names: Sequence[str]
    ) -> "PageFacts":
        """The facts of a classifier and a rule."""
        origin, name = classifier.origin
        table = {
            "Data set": f"{classifier.spec.name}, {len(names):,} classes",
            "Network": classifier.network_name,
            origin.capitalize(): name,
            "Rule": str(rule),
        }
        if rule.threshold is not None:
            table["Threshold"] = f"{rule.threshold:.6g}"
        if classifier.spec.attribution:
            table["Source of the data"] = classifier.spec.attribution
        example = classifier.spec.example
        expected = _expected(classifier.results.get("test", {}), rule, example)
        labels = classifier.classes.names
        return cls(names, rule.in_words(), expected, table, example, labels, rule.tree)


def _expected(test: Mapping[str, float | None], rule: CalibratedRule, example: str) -> str:
    """The results of such sets on the test examples, in words; empty if the run has none."""
    if rule.name not in ("top_k", "average_k") or not float(rule.value).is_integer():
        return ""
    k = int(rule.value)
    accuracy = test.get(Metric.accuracy("top" if rule.name == "top_k" else "average", k).name)
    if accuracy is None:
        return ""
    text = f"Of the test {example}s, {accuracy:.1%} had their true class in such a set"
    size = test.get(Metric.set_size(k).name) if rule.name == "average_k" else None
    return text + ("." if size is None else f"; the sets had {size:.3g} classes on average.")


class Page:
    """A page to which examples are added; with many examples, several pages.

    Args:
        path: the file of the first page.
        facts: what the page shows about the classifier.
        cards: a temporary file for the cards of the images.
    """

    def __init__(self, path: Path, facts: PageFacts, cards: BinaryIO) -> None:
        self._path = path
        self._facts = facts
        self._cards = cards
        # The start of the cards of each page in their file.
        self._starts = [0]
        self._card = _templates.get_template("card.html")
        self._digest = hashlib.sha256()
        self._columns: Sequence[str] = ()
        self._labels = facts.names if facts.labels is None else facts.labels
        self._index = ClassIndex(facts.names, self._labels)
        self._images = 0
        self._classes = 0
        self._empty = 0
        self._none_of_these = 0
        self._unreadable: list[Unreadable] = []

    @property
    def number(self) -> int:
        """The number of pages so far."""
        return page_files.number(self._images)

    def add(self, entry: ClassSet | Unreadable) -> None:
        """Adds an example, or a file that cannot be read."""
        if isinstance(entry, Unreadable):
            self._unreadable.append(entry)
            return
        if self._images and self._images % page_files.CARDS == 0:
            self._starts.append(self._cards.tell())
        self._images += 1
        self._classes += len(entry.classes)
        self._empty += not (entry.classes or entry.none_of_these)
        self._none_of_these += bool(entry.none_of_these)
        # The card of an empty set has the likeliest class.
        shown = () if entry.none_of_these else (entry.likeliest,)
        self._index.add(entry.classes or shown, self.number)
        self._columns, rows = cells.of(entry)
        names = self._facts.names
        without = len(entry.classes) - len(entry.similar)
        members = [
            (
                names[index],
                cells.other_label(names[index], self._labels[index]),
                probability,
                similar,
            )
            for index, probability, similar in zip(
                entry.classes, entry.probabilities, (*entry.similar, *((),) * without), strict=True
            )
        ]
        likeliest = entry.likeliest
        card = self._card.render(
            entry=entry,
            folder=words.common_folder([one.path for one in entry.photographs]),
            pictures=[one for one in entry.photographs if one.thumbnail],
            rows=rows,
            members=members,
            groups=[*self._groups(entry, members)],
            likeliest=names[likeliest],
            likeliest_label=cells.other_label(names[likeliest], self._labels[likeliest]),
            seen=_SEEN,
        ).encode()
        self._digest.update(card)
        self._cards.write(card)

    def _groups(self, entry: ClassSet, members: Sequence[_Member]) -> Iterator[_Group]:
        """The nodes that name a set, with their members; none for a set without names."""
        tree, start = self._facts.tree, 0
        if tree is None or entry.nodes is None:
            return
        member_of = dict(zip(entry.classes, members, strict=True))
        for node, probability in zip(entry.nodes, entry.node_probabilities, strict=True):
            below = {*tree.members(node).tolist()}
            # By decreasing probability, as in the set.
            own = [member for index, member in member_of.items() if index in below]
            yield _Group(tree.title(node, self._facts.names), probability, own, start)
            start += len(own)

    def write(self, file: BinaryIO, page: int) -> None:
        """Writes a page. Pages are counted from 1."""
        first = (page - 1) * page_files.CARDS
        written = _templates.get_template("page.html").stream(
            facts=self._facts,
            table=self._facts.table | self._counts(),
            images=self._images,
            # The template of a card has escaped them.
            cards=map(Markup, self._lines(page)),
            unreadable=self._unreadable,
            style=Markup(STYLE),
            script=Markup(_SCRIPT),
            script_digest=b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode(),
            page=page,
            pages=self.number,
            first=first + 1,
            last=min(first + page_files.CARDS, self._images),
            tag=page_files.tag(self._path, page),
            address=functools.partial(page_files.address, self._path),
            around=page_files.around_number(self._path),
            digest=self._digest.hexdigest(),
            columns=cells.to_json(self._columns),
            marks_file=page_files.marks_name(self._path),
            is_complete=self._index.is_complete,
            classes=self._index.options(page if self.number > 1 else None),
        )
        written.dump(file, encoding="utf-8")

    def _lines(self, page: int) -> Iterator[str]:
        """The cards of a page, line by line."""
        bounds = [*self._starts, self._cards.seek(0, os.SEEK_END)]
        self._cards.seek(bounds[page - 1])
        while self._cards.tell() < bounds[page]:
            yield self._cards.readline().decode()

    def _counts(self) -> dict[str, str]:
        """Statistics of the images on the page."""
        if not self._images:
            return {}
        counts = {"Mean size here": f"{self._classes / self._images:.3g}"}
        of_kinds = {"Empty sets here": self._empty, "“None of these” here": self._none_of_these}
        for what, number in of_kinds.items():
            if number:
                counts[what] = f"{number:,} ({words.percent(number / self._images)})"
        return counts


@contextlib.contextmanager
def writing(path: Path, facts: PageFacts) -> Iterator[Page]:
    """A page to add examples to. It is written at the end, and not at all after an error.

    Args:
        path: the file of the first page, which is replaced after the others. Further pages are
            beside it (see `page_files`). Further pages that are left over from an earlier run are
            removed.
        facts: what the page shows about the classifier.
    """
    # On the disk of the page, which must have room for it anyway. It has no name, so it cannot
    # remain.
    with (
        files.replacing(path) as file,
        files.name_in_errors(path),
        tempfile.TemporaryFile(dir=path.parent) as cards,
    ):
        page = Page(path, facts, cards)
        yield page
        for number in range(2, page.number + 1):
            with files.replacing(page_files.path(path, number)) as further:
                page.write(further, number)
        page.write(file, 1)
    page_files.remove_further(path, page.number)
