"""Pages of a few sets, and what is on a page."""

import base64
import hashlib
from html.parser import HTMLParser

import numpy as np

from train.prediction import set_page
from train.prediction.entries import Entry
from train.prediction.set_page import PageFacts
from train.reports import rules

EVIL = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>"
NAMES = ("cat", "dog", EVIL, *(f"class {index}" for index in range(3, 50)))


def image(path, chances, *, size=None, thumbnail=None, num_classes=50, **more):
    """The set of an image: the first classes of some probabilities, by default all of these."""
    probabilities = np.zeros(num_classes, np.float32)
    probabilities[[*chances]] = [*chances.values()]
    return Entry(
        **{"origins": ({"path": str(path)},), "thumbnails": (thumbnail,) if thumbnail else ()}
        | more,
        probabilities=probabilities,
        classes=tuple(chances)[:size],
    )


def facts(rule="top_k=2", names=NAMES, labels=None, **table):
    """What a page shows beside its sets."""
    rule = rule if isinstance(rule, rules.SetRule) else rules.parse(rule)
    return PageFacts(rule, names, labels or names, "image", table)


def page_of(path, *entries, shown=None):
    """The text of a page of sets."""
    set_page.write(path, entries, shown or facts(data=EVIL))
    return path.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.raw = [], "", {}
        self._inside = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag):
        self._inside = None if tag == self._inside else self._inside

    def handle_data(self, data):
        if self._inside:
            self.raw[self._inside] = data
        else:
            self.text += data

    def all(self, tag, **attributes):
        """The attributes of the elements of a kind that have some values."""
        found = [own for name, own in self.elements if name == tag]
        return [own for own in found if attributes.items() <= own.items()]

    @property
    def cards(self):
        return self.all("li", **{"class": "card"})

    @property
    def words(self):
        return " ".join(self.text.split())


def assert_names_are_text(page):
    """No name is an element or an attribute; nothing is loaded, and only its own script may run."""
    outline = Outline(page)
    keys = [(key, value) for _, attributes in outline.elements for key, value in attributes.items()]
    assert not [key for key, _ in keys if key.startswith("on")]
    loaded = [value for key, value in keys if key in ("src", "href", "srcset", "action", "data")]
    assert all(address.startswith(("data:", "#")) for address in loaded)
    assert len(outline.all("script")) == 1
    digest = hashlib.sha256(outline.raw["script"].encode()).digest()
    (policy,) = outline.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}';" in policy["content"]
    assert "url(" not in outline.raw["style"]
    assert "@import" not in outline.raw["style"]
