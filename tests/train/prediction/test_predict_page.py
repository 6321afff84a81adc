"""The page: names are only text in it; it is written completely or not at all."""

import base64
import contextlib
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from tests.train.foundation.test_printable import ESCAPED, NAME
from train.foundation.printable import printable_lines
from train.prediction import html_page
from train.prediction.class_sets import Unreadable
from train.prediction.html_page import Facts, page_files
from train.prediction.html_page import words as page_words
from train.prediction.image_sets import ImageSet
from train.prediction.thumbnails import Thumbnail

EVIL = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>"
NAMES = ["cat", "dog", EVIL, *(f"class {index}" for index in range(3, 50))]
FACTS = Facts(NAMES, f"Rule {EVIL}.", "", {"Data set": EVIL})


class Outline(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.raw = [], "", []
        self._inside = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data):
        if self._inside:
            self.raw.append((self._inside[-1], data))
        else:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def image_set(name, probabilities, *, likeliest=0, highest=0.5, thumbnail=None):
    return ImageSet(
        path=Path(name),
        classes=tuple(probabilities),
        probabilities=tuple(probabilities.values()),
        likeliest=likeliest,
        highest=highest,
        thumbnail=thumbnail,
    )


def page_of(path, *entries):
    with html_page.writing(path, FACTS) as page:
        for entry in entries:
            page.add(entry)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def page(tmp_path):
    thumbnail = Thumbnail.of(Image.new("RGB", (8, 8)))
    evil_name = EVIL.replace("/", "|")
    return page_of(
        tmp_path / "page.html",
        image_set(evil_name, {0: 0.9, 2: 0.05}, highest=0.9, thumbnail=thumbnail),
        image_set("folder/b.png", {}, likeliest=2, highest=0.25),
        image_set("c.png", dict.fromkeys(range(42), 0.02)),
        Unreadable(Path(EVIL), f"{EVIL} is not an image"),
    )


def test_names_are_text_and_nothing_else(page):
    outline = Outline(page)
    assert len(outline.all("script")) == 1
    assert len(outline.all("img")) == 1
    assert not [key for _, attributes in outline.elements for key in attributes if key[:2] == "on"]
    # In the rule, the table, two sets, an empty set, and the error of the unreadable file.
    assert outline.text.count(EVIL) == 6
    assert outline.all("img")[0]["alt"] == "the image " + EVIL.replace("/", "|")


def test_nothing_is_loaded_and_only_its_own_script_may_run(page):
    outline = Outline(page)
    addresses = [
        attributes[key]
        for _, attributes in outline.elements
        for key in ("src", "href", "srcset", "action", "data")
        if key in attributes
    ]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    (style,) = (text for kind, text in outline.raw if kind == "style")
    (script,) = (text for kind, text in outline.raw if kind == "script")
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (
        attributes["content"]
        for attributes in outline.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}';" in policy


def test_sets_are_shown_as_a_person_reads_them(page):
    outline = Outline(page)
    sizes = [
        (attributes["data-size"], attributes["data-top"])
        for attributes in outline.all("li")
        if attributes.get("class") == "card"
    ]
    assert sizes == [("2", "0.9"), ("0", "0.25"), ("42", "0.5")]
    words = " ".join(outline.text.split())
    assert "2 classescat 90.0%" in words
    assert f"No class reaches the threshold. The likeliest is {EVIL}, 25.0%." in words
    # Five are seen, and the others behind a line that opens.
    assert words.index("class 4 ") < words.index("and 37 more") < words.index("class 5 ")
    assert len(outline.all("details")) == 1
    assert "Mean size here14.7" in words
    assert "Empty sets here1 (33.3%)" in words
    assert "1 file could not be read" in words
    # Every picture is seen as its pixels are.
    assert outline.all("img")[0]["class"] == "small"


def test_six_classes_are_not_folded(tmp_path):
    page = page_of(tmp_path / "a.html", image_set("a.png", dict.fromkeys(range(6), 0.1)))
    assert "<details>" not in page
    assert "Sets of classes for 1 image<" in page


def test_a_page_without_images_says_what_could_not_be_read(tmp_path):
    page = page_of(tmp_path / "a.html", Unreadable(Path("a"), "a is not an image"))
    assert "Sets of classes for 0 images" in page
    assert "Mean size" not in page
    assert "a is not an image" in page


def test_what_a_terminal_obeys_is_escaped_in_every_place(tmp_path):
    names = ["\x1b[31mcat", "dog\x9b2J", "\u202etac", "a\rb", "a\0b"]
    facts = Facts(names, f"Rule {NAME}.", f"Expected {NAME}.", {"Data set": NAME})
    path = tmp_path / f"{NAME}.html"
    with html_page.writing(path, facts) as page:
        page.add(image_set(f"{NAME}/{NAME}.png", {0: 0.9, 1: 0.05, 2: 0.01}))
        page.add(image_set("c.png", {}, likeliest=3))
        page.add(image_set("d.png", dict.fromkeys([4] * 10, 0.1)))
        page.add(Unreadable(Path("a"), f"{NAME} is not an image"))
        for number in range(page_files.CARDS):
            page.add(image_set(f"{number}.png", {}))
    for file in (path, page_files.path(path, 2)):
        text = file.read_text(encoding="utf-8")
        assert printable_lines(text) == text
    first = path.read_text(encoding="utf-8")
    # In the name and the folder of an image, the rule, what is expected, the table and the error.
    assert first.count(ESCAPED) == 6
    assert all(repr(name)[1:-1] in first for name in names)


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (0.0, "0.0%"),
        (0.0009, "< 0.1%"),
        (0.1234, "12.3%"),
        (0.9994, "99.9%"),
        (0.9999, "> 99.9%"),
        (1.0, "100.0%"),
        (float("nan"), "no number"),
    ],
)
def test_probabilities_in_words(probability, words):
    assert page_words.percent(probability) == words


def test_an_error_leaves_the_page_that_was_there(tmp_path):
    path = tmp_path / "a.html"
    path.write_text("before")
    with contextlib.suppress(KeyboardInterrupt), html_page.writing(path, FACTS) as page:
        page.add(image_set("a.png", {0: 0.5}))
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_thumbnails_are_small_and_bare():
    photograph = Image.effect_noise((1200, 900), 50).convert("RGB")
    # Pillow copies this into a JPEG file by default.
    photograph.info["comment"] = b"taken at home"
    thumbnail = Thumbnail.of(photograph)
    assert (thumbnail.width, thumbnail.height, thumbnail.is_small) == (384, 288, False)
    assert thumbnail.data_uri().startswith("data:image/jpeg;base64,")
    assert b"at home" not in thumbnail.encoded
    narrow = Thumbnail.of(Image.new("RGB", (1, 5000)))
    assert (narrow.width, narrow.height) == (1, 384)


def test_the_script_is_one_that_can_stand_in_a_page():
    text = (Path(html_page.__file__).parent / "script.js").read_text(encoding="utf-8")
    assert re.search(r"</script|<!--", text, re.IGNORECASE) is None
