"""The page: names are only text in it; it is written completely or not at all."""

import base64
import contextlib
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from train.prediction import html_page
from train.prediction.class_sets import ClassSet, Unreadable
from train.prediction.html_page import PageFacts
from train.prediction.image_sets import ImageSet
from train.prediction.row_sets import RowSet
from train.prediction.thumbnails import Photograph, Thumbnail

EVIL = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>"
NAMES = ["cat", "dog", EVIL, *(f"class {index}" for index in range(3, 50))]
ROW = {"classes": (0,), "probabilities": (0.5,), "likeliest": 0, "highest": 0.5}
FACTS = PageFacts(NAMES, f"Rule {EVIL}.", "", {"Data set": EVIL})


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


def assert_nothing_is_loaded(outline):
    """Nothing comes from elsewhere, and only the script of the page may run."""
    addresses = [
        attributes[key]
        for _, attributes in outline.elements
        for key in ("src", "href", "srcset", "action", "data")
        if key in attributes
    ]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    (script,) = (text for kind, text in outline.raw if kind == "script")
    (policy,) = (
        attributes["content"]
        for attributes in outline.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}';" in policy


def test_nothing_is_loaded_and_only_its_own_script_may_run(page):
    outline = Outline(page)
    assert_nothing_is_loaded(outline)
    (style,) = (text for kind, text in outline.raw if kind == "style")
    assert "url(" not in style
    assert "@import" not in style


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


def test_the_scripts_can_stand_in_a_page():
    scripts = list(Path(html_page.__file__).parent.glob("*.js"))
    assert len(scripts) == 5
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        assert re.search(r"</script|<!--", text, re.IGNORECASE) is None


def cards_of(page):
    return [one for one in Outline(page).all("li") if one.get("class") == "card"]


def columns_of(page):
    (cards,) = (one for one in Outline(page).all("ul") if one.get("id") == "cards")
    return json.loads(cards["data-columns"])


def test_cards_have_the_cells_of_their_marks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["a\x7f\n\r.png", "sk\udce4rm.png", '"&quot;.png']
    page = page_of(tmp_path / "a.html", *(image_set(f"x/{name}", {0: 0.5}) for name in names))
    paths = [f"{tmp_path}/x/{name}" for name in names]
    # Bytes that are not UTF-8 are written as Python does.
    paths[1] = f"{tmp_path}/x/sk\\udce4rm.png"
    assert [json.loads(card["data-rows"]) for card in cards_of(page)] == [[[one]] for one in paths]
    assert columns_of(page) == ["path"]
    page = page_of(tmp_path / "b.html", RowSet(row=7, name="x", **ROW))
    assert columns_of(page) == ["row", "name"]
    assert json.loads(cards_of(page)[0]["data-rows"]) == [["7", "x"]]
    page = page_of(tmp_path / "b.html", RowSet(row=7, name=None, **ROW))
    assert columns_of(page) == ["row", "name"]
    assert json.loads(cards_of(page)[0]["data-rows"]) == [["7", "row 7"]]


def test_marks_of_other_sets_are_others(tmp_path):
    def digest(*probabilities):
        entries = [image_set("a.png", {0: one}) for one in probabilities]
        (found,) = re.findall(
            'data-digest="([0-9a-f]{64})"', page_of(tmp_path / "a.html", *entries)
        )
        return found

    assert digest(0.5) == digest(0.5)
    assert len({digest(0.5), digest(0.25), digest(0.5, 0.5)}) == 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation(ClassSet):
    """A set of several examples."""

    fields: dict
    shown: tuple[Photograph, ...] = ()

    @property
    def origin(self):
        return self.fields

    @property
    def title(self):
        return str(self.origin["group"])

    @property
    def photographs(self):
        return self.shown


def test_an_observation_has_its_photographs_side_by_side(tmp_path):
    thumbnail = Thumbnail.of(Image.new("RGB", (200, 100)))
    shown = [Photograph(Path(f"/x/<b>{index}"), thumbnail) for index in range(3)]
    shown.append(Photograph(Path("/x/y"), None))
    origin = {"group": EVIL, "paths": [str(one.path) for one in shown]}
    text = page_of(tmp_path / "a.html", Observation(fields=origin, shown=tuple(shown), **ROW))
    outline = Outline(text)
    assert [one["alt"] for one in outline.all("img")] == [f"photograph {i} of 4" for i in (1, 2, 3)]
    assert "and 1 more photograph" in outline.text
    assert columns_of(text) == ["path", "group"]
    rows = json.loads(cards_of(text)[0]["data-rows"])
    assert rows == [[path, EVIL] for path in origin["paths"]]
