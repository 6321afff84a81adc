"""The page of sets: names are only text in it; it is written completely or not at all."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.prediction.small_pages import (
    EVIL,
    Outline,
    assert_names_are_text,
    facts,
    image,
    page_of,
)
from train.data import taxonomy
from train.data.classes import Classes
from train.foundation.errors import UserError
from train.prediction import pages, set_page
from train.prediction.entries import Entry
from train.prediction.thumbnails import Similar, Thumbnail
from train.reports import rules

THUMBNAIL = Thumbnail.of(Image.new("RGB", (8, 8)))
PIXELS = "a_b-c.png"


@pytest.fixture
def page(tmp_path):
    similar = ((Similar(EVIL, 0.876, THUMBNAIL, EVIL), Similar("b", 0.5, None)), ())
    bad = ({"path": EVIL, "error": f"{EVIL} is not an image"},)
    return page_of(
        tmp_path / "page.html",
        image(EVIL.replace("/", "|"), {0: 0.9, 2: 0.05}, thumbnail=THUMBNAIL, similar=similar),
        image(f"folder/{PIXELS}", {2: 0.25}, size=0),
        image("c.png", dict.fromkeys(range(42), 0.02)),
        image("new.png", {2: 0.25}, size=0, none_of_these=True),
        image("either.png", {2: 0.25}, none_of_these=True),
        Entry(unreadable_origins=bad),
    )


def test_names_are_text_and_nothing_else(page):
    assert_names_are_text(page)
    outline = Outline(page)
    assert len(outline.all("img")) == 2
    # In the table, three sets, an empty set, a credit, and the error of the unreadable file.
    assert outline.text.count(EVIL) == 7
    alts = ["the image " + EVIL.replace("/", "|"), f"{EVIL}, similarity 0.88"]
    assert [one["alt"] for one in outline.all("img")] == alts


def test_the_scripts_can_stand_in_a_page():
    scripts = [*Path(pages.__file__).parent.glob("*.js")]
    assert scripts
    for script in scripts:
        assert not re.search(r"</script|<!--", script.read_text(encoding="utf-8"), re.IGNORECASE)


def test_sets_are_shown_as_a_person_reads_them(page):
    outline = Outline(page)
    sizes = [(one["data-size"], np.float32(one["data-top"])) for one in outline.cards]
    expected = [("2", 0.9), ("0", 0.25), ("42", 0.02), ("0", 0.25), ("1", 0.25)]
    assert sizes == [(size, np.float32(top)) for size, top in expected]
    words = outline.words
    assert "2 classes cat 90.0%" in words
    assert f"No class reaches the limit. The likeliest is {EVIL}, 25.0%." in words
    # Five are seen, and the others behind a line that opens.
    assert words.index("class 4 ") < words.index("and 37 more") < words.index("class 5 ")
    assert "none of these It is unlike the examples of every class." in words
    assert "1 class, or none of these" in words
    assert "Mean size here9" in words
    assert "Empty sets here1 (20.0%)" in words
    assert "“None of these” here2 (40.0%)" in words
    assert "1 file could not be read" in words
    # Pixels are seen as they are; long names break where a person would break them.
    assert outline.all("img")[0]["class"] == "small"
    assert "folder/<wbr></span>" in page
    assert "a_<wbr>b-<wbr>c.png</span>" in page
    assert outline.all("span", title="b, similarity 0.50")


def test_sets_with_names_are_folded_by_name(tmp_path):
    names = ("ilex a", "ilex b", "acer c")
    tree = taxonomy.first_words(names)
    rule = rules.SetRule(
        rules.parse("coverage=0.9, rule=taxonomic").rule, Classes(names, (1,) * 3, tree)
    )
    node = next(n for n in range(3, 9) if len(tree.members(n)) == 2)
    entry = image("a", {0: 0.5, 2: 0.3, 1: 0.2}, num_classes=3, nodes=((node, 0.7), (2, 0.3)))
    outline = Outline(page_of(tmp_path / "a.html", entry, shown=facts(rule, names)))
    assert "ilex (2 species) 70.0% ilex a 50.0% ilex b 20.0% acer c 30.0%" in outline.words
    assert [one["start"] for one in outline.all("ol")] == ["1", "3"]


def test_more_sets_than_a_browser_can_show_are_refused():
    set_page.check(set_page.MOST_CARDS)
    with pytest.raises(UserError, match="4,001"):
        set_page.check(2 * set_page.MOST_CARDS + 1)


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


def rows_of(page):
    return [json.loads(card["data-rows"]) for card in Outline(page).cards]


def test_cards_have_the_cells_of_their_marks(tmp_path):
    paths = [f"{tmp_path}/a\x7f\n\r.png", f"{tmp_path}/sk\udce4rm.png"]
    page = page_of(tmp_path / "a.html", *(image(path, {0: 0.5}) for path in paths))
    # Bytes that are not UTF-8 are written as Python does.
    assert rows_of(page) == [[{"path": path.replace("\udce4", r"\udce4")}] for path in paths]
    rows = [{"row": 7, "name": "x"}, {"row": 8}]
    entries = [image("", {0: 0.5}, origins=(row,)) for row in rows]
    named = [[{"row": "7", "name": "x"}], [{"row": "8", "name": "row 8"}]]
    assert rows_of(page_of(tmp_path / "b.html", *entries)) == named


def test_marks_of_other_sets_are_others(tmp_path):
    def digest(*chances):
        page = page_of(tmp_path / "a.html", *(image("a.png", {0: one}) for one in chances))
        return re.findall('data-digest="([0-9a-f]{64})"', page)[0]

    assert digest(0.5) == digest(0.5)
    assert len({digest(0.5), digest(0.25), digest(0.5, 0.5)}) == 3


def test_an_observation_has_its_photographs_side_by_side(tmp_path):
    thumbnail = Thumbnail.of(Image.new("RGB", (200, 100)))
    paths = [f"/x/<b>{index}" for index in range(4)]
    given = {"origins": tuple({"path": path} for path in paths), "thumbnails": (thumbnail,) * 3}
    entry = image("", {0: 0.5}, **given, group=EVIL)
    outline = Outline(page := page_of(tmp_path / "a.html", entry))
    assert [one["alt"] for one in outline.all("img")] == [f"photograph {i} of 4" for i in (1, 2, 3)]
    assert "and 1 more photograph" in outline.text
    assert rows_of(page) == [[{"path": path, "group": EVIL} for path in paths]]
