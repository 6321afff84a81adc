"""A page with images and their sets: one file, which needs no network and works without script.

Its style and its script lie beside this file. Cards are kept on the disk until all are there, so
that any number of them takes no memory.
"""

import contextlib
import hashlib
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from train.foundation import files
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.html_page.cards import card, escaped, percent, plural
from train.prediction.image_sets import ImageSet, Unreadable
from train.prediction.trained import TrainedClassifier

_STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
_SCRIPT = Path(__file__).with_name("script.js").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Facts:
    """What the page says of the classifier.

    Attributes:
        names: of the classes.
        rule: what makes the sets, in words.
        expected: what is known of such sets from the test images, in words; empty if nothing is.
        table: what it is, and what that is called.
    """

    names: Sequence[str]
    rule: str
    expected: str
    table: dict[str, str]

    @classmethod
    def of(
        cls, classifier: TrainedClassifier, rule: CalibratedRule, names: Sequence[str]
    ) -> "Facts":
        """What is said of a classifier with that rule."""
        table = {
            "Data set": f"{classifier.spec.name}, {len(names):,} classes",
            "Network": str(classifier.config["model"]["name"]),
            "Loss": str(classifier.config["loss"]["name"]),
            "Rule": str(rule),
        }
        if rule.threshold is not None:
            table["Threshold"] = f"{rule.threshold:.6g}"
        test = classifier.results["test"]
        metric = f"{rule.name.removesuffix('_k')}_{rule.short_value}"
        expected = ""
        if (accuracy := test.get(f"{metric}_accuracy")) is not None:
            expected = f"Of the test images, {accuracy:.1%} had their true class in such a set"
            size = test.get(f"{metric}_set_size")
            expected += "." if size is None else f"; the sets had {size:.3g} classes on average."
        return cls(names, rule.in_words(), expected, table)


class Page:
    """A page that is being written.

    Args:
        facts: what it says of the classifier.
        cards: a file that keeps its images until the page is written.
    """

    def __init__(self, facts: Facts, cards: BinaryIO) -> None:
        self._facts = facts
        self._cards = cards
        self._images = 0
        self._classes = 0
        self._empty = 0
        self._unreadable: list[Unreadable] = []

    def add(self, entry: ImageSet | Unreadable) -> None:
        """Adds an image, or the name of a file that is none."""
        if isinstance(entry, Unreadable):
            self._unreadable.append(entry)
            return
        self._images += 1
        self._classes += len(entry.classes)
        self._empty += not entry.classes
        self._cards.write(card(entry, self._facts.names).encode())

    def write(self, file: BinaryIO) -> None:
        """Writes all of it."""
        file.write(self._head().encode())
        self._cards.seek(0)
        shutil.copyfileobj(self._cards, file)
        file.write(self._tail().encode())

    def _head(self) -> str:
        facts = self._facts
        title = f"Sets of classes for {plural(self._images, 'image')}"
        # Nothing may be loaded from anywhere, and no script may run but this one.
        digest = b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        )
        table = "".join(
            f"<div><dt>{escaped(what)}</dt><dd>{escaped(value)}</dd></div>"
            for what, value in (facts.table | self._counts()).items()
        )
        unreadable = (
            f'<p class="warning"><a href="#unreadable">'
            f"{plural(len(self._unreadable), 'file')} could not be read</a></p>"
            if self._unreadable
            else ""
        )
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{_STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="rule">{escaped(facts.rule)} {escaped(facts.expected)}</p>
<dl>{table}</dl>
{unreadable}
</header>
<main>
<form id="controls" role="search" hidden>
<label>Filter <input id="filter" type="search" placeholder="file or class" \
autocomplete="off" spellcheck="false"></label>
<label>Sort <select id="sort">
<option value="">as they came</option>
<option value="name">by name</option>
<option value="smallest">smallest sets first</option>
<option value="largest">largest sets first</option>
<option value="surest">highest probability first</option>
<option value="unsurest">lowest top probability first</option>
</select></label>
<button id="reset" type="button">Reset</button>
<p id="status" role="status"></p>
</form>
<ul id="cards" class="cards">
"""

    def _counts(self) -> dict[str, str]:
        """What the images at hand have come to."""
        if not self._images:
            return {}
        counts = {"Mean size here": f"{self._classes / self._images:.3g}"}
        if self._empty:
            counts["Empty sets here"] = f"{self._empty:,} ({percent(self._empty / self._images)})"
        return counts

    def _tail(self) -> str:
        rows = "".join(f"<li>{escaped(entry.error)}</li>\n" for entry in self._unreadable)
        unreadable = (
            f'<section id="unreadable">\n<h2>Files that could not be read</h2>\n'
            f"<ul>\n{rows}</ul>\n</section>\n"
            if self._unreadable
            else ""
        )
        return f"""</ul>
{unreadable}</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


@contextlib.contextmanager
def writing(path: Path, facts: Facts) -> Iterator[Page]:
    """A page to add images to, written at the end; after an error there is none."""
    # Beside the page, for there has to be room for it; without a name, so that nothing stays.
    with (
        files.replacing(path) as file,
        files.naming(path),
        tempfile.TemporaryFile(dir=path.parent) as cards,
    ):
        page = Page(facts, cards)
        yield page
        page.write(file)
