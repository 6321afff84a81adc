"""Marks of the right classes: with the keyboard, over pages and reloads, saved and loaded again."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.peers.browser.chromium import Tab
from train.data.sources import table
from train.prediction import html_page
from train.prediction.html_page import PageFacts, page_files
from train.prediction.image_sets import ImageSet
from train.prediction.observation_sets import ObservationSet
from train.prediction.thumbnails import Photograph, Thumbnail

# Names of files that a table, a page or a spreadsheet may misread.
ODD = (
    'a, "b"; c.png',
    "line\nand\r\nline.png",
    "=1+1.png",
    "skärm.png",
    " space .png",
    "'.png",
    "a\x7f\x1b[31m.png",
    "<b>&amp;.png",
)
NUM_PLAIN = 30
# Odd names of classes, two of which have other names in tables.
CLASSES = ["=SUM(A1)", 'oak, "white"', "-ash", "'=elm", "<i>fir</i>", "Chêne", "x", *"cdefghij"]
LABELS = [*CLASSES[:6], "Quercus\x1b robur", *CLASSES[7:]]
NAMED = dict(zip(LABELS, CLASSES, strict=True))
MOST_CARDS = 16


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with Tab(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The first of three pages; the folder of the photographs is not that of the page."""
    monkeypatch.setattr(page_files, "CARDS", MOST_CARDS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "pages").mkdir()
    (tmp_path / "saved").mkdir()
    path = tmp_path / "pages" / "sets #1.html"
    names = [*ODD, *(f"{index:02}.png" for index in range(NUM_PLAIN))]
    with html_page.writing(path, PageFacts(CLASSES, "Rule.", "", {}, labels=LABELS)) as written:
        for index, name in enumerate(names):
            image = Image.new("RGB", (4, 4), (index, 0, 0))
            image.save(tmp_path / "photos" / name)
            # Sets of zero to eleven classes; each twelfth is empty.
            size = index % 12
            written.add(
                ImageSet(
                    path=tmp_path.relative_to(tmp_path) / "photos" / name,
                    classes=tuple((index + place) % len(CLASSES) for place in range(size)),
                    probabilities=tuple(0.5**place for place in range(1, size + 1)),
                    likeliest=index % len(CLASSES),
                    highest=0.5,
                    thumbnail=Thumbnail.of(image),
                )
            )
    return path


def opened(tab, path, fragment=""):
    """Opens a page without marks of an earlier test."""
    tab.open(path.as_uri() + fragment)
    tab.evaluate("localStorage.clear()")
    tab.open(path.as_uri() + fragment)


def focused(tab):
    """The name of what has the focus."""
    return tab.evaluate("document.activeElement.ariaLabel ?? document.activeElement.id")


def said(tab):
    return tab.evaluate("document.getElementById('said').textContent")


def choices(tab):
    """What each card on the page is marked as."""
    script = """JSON.stringify(Array.from(list.children, (card) => [
        card.querySelector("select").selectedOptions[0].textContent,
        card.querySelector("select").nextSibling.value,
    ]))"""
    return [other or choice for choice, other in json.loads(tab.evaluate(script))]


def save(tab, folder):
    """The saved table, and its rows as another program reads them."""
    path = tab.download(folder, "document.getElementById('save').click()")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return path, list(csv.DictReader(file, strict=True))


def load(tab, path):
    """What is said when a table is loaded."""
    watch = "new MutationObserver(done).observe(said, { childList: true })"
    # Not the value of the expression, which would be waited for.
    tab.evaluate(f"window.loaded = new Promise((done) => {watch}); true")
    tab.choose_file("file", path)
    tab.evaluate("loaded.then(() => true)")
    return said(tab)


def complaints(tab):
    return [
        event["params"]
        for event in tab.events
        if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
    ]


def test_cards_are_marked_with_the_keyboard(tab, page, tmp_path):
    opened(tab, page)
    tab.press("j")
    # The class that is the likeliest of an empty set.
    assert focused(tab) == 'a, "b"; c.png'
    tab.press("Enter", "j")
    assert focused(tab) == r"line\nand\r\nline.png"
    tab.press("Enter", "ArrowDown", "2", "j", "0", "j", "c", "j", "5", "j", "o")
    assert focused(tab).startswith(r"Another class of a\x7f")
    # Letters are letters there.
    tab.press(*"jxq", "Enter")
    assert focused(tab).startswith(r"a\x7f")
    tab.press("j", "7", "k", "ArrowUp", "x", "ArrowUp")
    assert focused(tab) == " space .png"
    expected = ["1. =SUM(A1)", '1. oak, "white"', "2. '=elm", "none of these", "cannot tell"]
    assert choices(tab)[:8] == [*expected, "not marked", "jxq", "7. i"]
    assert said(tab) == "'.png: not marked; 7 marked on all pages"
    assert tab.evaluate("document.querySelectorAll('.unknown:not([hidden])').length") == 1
    assert tab.evaluate("document.querySelectorAll('.right').length") == 4
    # An unfinished name is dropped, and the card has the focus again.
    tab.press("o", *"oak", "Escape", "j")
    assert focused(tab) == "'.png"
    assert choices(tab)[4:6] == ["cannot tell", "not marked"]
    # A set may have fewer classes than the number of the key.
    tab.press("k", "k", "9")
    assert choices(tab)[3] == "none of these"
    assert complaints(tab) == []
    _, rows = save(tab, tmp_path / "saved")
    by_name = {Path(row["path"]).name: (row["label"], row["mark"]) for row in rows}
    assert by_name == {
        ODD[0]: ("'=SUM(A1)", ""),
        ODD[1]: ('oak, "white"', ""),
        ODD[2]: ("''=elm", ""),
        "skärm.png": ("", "none of these"),
        ODD[4]: ("", "cannot tell"),
        ODD[6]: ("jxq", ""),
        ODD[7]: ("i", ""),
    }


def test_keys_lead_to_the_search_the_help_and_other_pages(tab, page):
    opened(tab, page)
    tab.press("/")
    assert focused(tab) == "filter"
    # Each letter filters, and does nothing else.
    tab.press(*"jn07", "Enter")
    assert tab.evaluate("filter.value") == "jn07"
    # Without a card to go to, the focus stays.
    tab.press(*["Backspace"] * 4, *"07", "Enter")
    assert focused(tab) == "07.png"
    # What was looked for before is replaced.
    tab.press("/", *"fir", "Enter", "j")
    assert tab.evaluate("cards.filter(({ element }) => !element.hidden).length") > 1
    assert tab.evaluate("document.activeElement.closest('.card').hidden") is False
    tab.press("?")
    assert tab.evaluate("help.open") is True
    tab.press("j", "Escape")
    assert tab.evaluate("help.open") is False
    tab.press("Tab")
    # From the card to its own controls.
    assert tab.evaluate("document.activeElement.closest('.card') !== null") is True
    with_control = {"key": "n", "modifiers": 2, "windowsVirtualKeyCode": 78}
    tab.call("Input.dispatchKeyEvent", type="rawKeyDown", **with_control)
    assert tab.evaluate("location.pathname").endswith("sets%20%231.html")
    assert complaints(tab) == []


def test_marks_are_kept_over_pages_and_reloads_and_are_a_data_set(tab, page, tmp_path, caplog):
    opened(tab, page)
    every = "markings.forEach(({ markMember }, index) => markMember(index % 3))"
    first = "markings.forEach(({ markMember }) => markMember(0))"
    tab.evaluate(f"{first}; {every}")
    tab.follow("Next")
    tab.evaluate(first)
    tab.evaluate("markings[0].mark('', UNSURE); markings[1].mark('', NONE)")
    tab.open(page.as_uri())
    assert said(tab) == f"{2 * MOST_CARDS} marked on all pages"
    shown = choices(tab)
    assert "not marked" not in shown
    path, rows = save(tab, tmp_path / "saved")
    assert path.name == "sets #1-marks.csv"
    assert len(rows) == 2 * MOST_CARDS
    # The program reads it in whichever folder it is.
    found = table.find(path, columns={}, kind="one", rule="shares")
    names = [*ODD, *(f"{index:02}.png" for index in range(NUM_PLAIN))]
    files = [str(tmp_path / "photos" / name) for name in names[: 2 * MOST_CARDS]]
    assert set(found.names) == {*files[:16], *files[18:]}
    assert all(map(len, found.inputs))
    labels = {
        path: NAMED[found.class_names[label]]
        for path, label in zip(found.names, found.labels, strict=True)
    }
    assert [labels[file] for file in files[:16]] == [text.partition(". ")[2] for text in shown]
    assert "Quercus\x1b robur" in found.class_names
    assert caplog.messages == [
        f"config.dataset.path {path}: 2 rows marked 'none of these' or 'cannot tell' are left out"
    ]
    assert complaints(tab) == []


def test_saved_marks_are_loaded_again(tab, page, tmp_path):
    opened(tab, page)
    tab.evaluate("markings.forEach(({ markMember }, index) => markMember(index % 2))")
    tab.evaluate("markings[0].mark('', NONE); markings[3].mark('Sorbus torminalis')")
    tab.follow("Next")
    tab.evaluate("markings[2].markMember(0)")
    before, _ = save(tab, tmp_path / "saved")
    tab.open(page.as_uri())
    expected = choices(tab)
    tab.evaluate("window.confirm = () => true; document.getElementById('clear').click()")
    assert said(tab) == "all marks are removed; 0 marked on all pages"
    assert tab.evaluate("localStorage.length") == 0
    assert set(choices(tab)) == {"not marked"}
    assert tab.evaluate("document.getElementById('save').disabled") is True
    # As a spreadsheet may save it.
    again = tmp_path / "again.csv"
    text = before.read_bytes().decode("utf-8-sig")
    with again.open("w", encoding="utf-16", newline="") as file:
        csv.writer(file, delimiter=";").writerows(csv.reader(text.splitlines(keepends=True)))
    for chosen in (before, again):
        tab.evaluate("markings.forEach(({ mark }) => mark(''))")
        assert load(tab, chosen) == "15 loaded, 14 of them on this page; 15 marked on all pages"
        assert choices(tab) == expected
    after, _ = save(tab, tmp_path / "saved")
    assert after.read_bytes() == before.read_bytes()
    for content, told in [
        (b"file,label\n", "has no column path"),
        (b"path,label\n\xff\n", "is not a text in UTF-8"),
        (b"", "has no column path"),
    ]:
        again.write_bytes(content)
        assert load(tab, again) == f"again.csv {told}; 15 marked on all pages"
    (first, second) = (str(tmp_path / "photos" / f"{index:02}.png") for index in range(2))
    again.write_text(f"path,label\n{first},x\n{first},c\n{second},\n")
    told = (
        f"1 loaded, 1 of them on this page; with two labels, of which the first is taken: {first}"
    )
    assert load(tab, again).startswith(told)
    assert complaints(tab) == []


def test_a_class_is_found_on_all_pages(tab, page):
    opened(tab, page, "#filter=fir")
    links = """JSON.stringify(Array.from(elsewhere.querySelectorAll("a"), (one) => [
        one.textContent, decodeURIComponent(one.href.split("/").at(-1)),
    ]))"""
    told = "elsewhere.firstChild.textContent"
    assert json.loads(tab.evaluate(links)) == [
        ["Next: page 2", "sets #1.2.html#filter=fir"],
        ["Last: page 3", "sets #1.3.html#filter=fir"],
    ]
    assert tab.evaluate(told) == "<i>fir</i>, in sets on all pages: 13"
    tab.follow("Last: page 3")
    assert tab.evaluate("filter.value") == "fir"
    assert [text for text, _ in json.loads(tab.evaluate(links))] == [
        "First: page 1",
        "Previous: page 2",
    ]
    # The links between the pages keep what is looked for, too.
    tab.follow("First page")
    assert tab.evaluate("location.hash") == "#filter=fir"
    tab.evaluate("filter.value = 'no such class'; filter.dispatchEvent(new Event('input'))")
    assert tab.evaluate(told) == "No set on any page has a class with “no such class”"
    tab.evaluate("document.getElementById('reset').click()")
    assert tab.evaluate("elsewhere.hidden") is True
    tab.evaluate("markings[4].markMember(0)")
    tab.evaluate("showOnly.value = 'unmarked'; showOnly.dispatchEvent(new Event('change'))")
    assert tab.evaluate("shownLine.textContent") == "15 of 16 shown on this page"
    assert complaints(tab) == []


def test_marks_that_a_browser_does_not_keep_can_be_saved(tab, page, tmp_path):
    opened(tab, page)
    full = "Storage.prototype.setItem = () => { throw new DOMException('full'); }"
    tab.evaluate(f"{full}; markings[1].markMember(0)")
    assert said(tab).endswith("this browser does not keep marks: save them before you leave")
    _, rows = save(tab, tmp_path / "saved")
    assert [row["label"] for row in rows] == ['oak, "white"']
    tab.evaluate("markings[1].mark('')")


def test_on_paper_all_sets_are_seen_and_no_controls(tab, page):
    for script in (True, False):
        tab.open(page.as_uri(), script=script)
        tab.call("Emulation.setEmulatedMedia", media="print")
        # The classes of a folded list, too, and below each other.
        members = "Array.from(document.querySelectorAll('.card:nth-child(11) .set li'))"
        assert tab.evaluate(f"{members}.every((one) => one.checkVisibility())")
        tops = f"{members}.map((one) => one.getBoundingClientRect().top)"
        assert len(set(json.loads(tab.evaluate(f"JSON.stringify({tops})")))) == 10
        hidden = "#controls, dialog, summary, nav a, select, .marking input"
        shown = (
            f"Array.from(document.querySelectorAll('{hidden}')).filter((one) => one.offsetHeight)"
        )
        assert tab.evaluate(f"{shown}.length") == 0
        tab.call("Emulation.setEmulatedMedia", media="")
    shutil.rmtree(page.parent)


def test_an_observation_has_one_mark_for_its_photographs(tab, tmp_path):
    groups = {"obs 1": 3, "=obs 2": 2, None: 1}
    (tmp_path / "saved").mkdir()
    with html_page.writing(tmp_path / "a.html", PageFacts(CLASSES, "Rule.", "", {})) as written:
        for group, number in groups.items():
            images = [Image.new("RGB", (200, 150), (50 * place, 0, 0)) for place in range(number)]
            paths = [tmp_path / f"{group}-{place}.png" for place in range(number)]
            for image, path in zip(images, paths, strict=True):
                image.save(path)
            written.add(
                ObservationSet(
                    group=group,
                    examples={"paths": list(map(str, paths))},
                    number=number,
                    shown=tuple(map(Photograph, paths, map(Thumbnail.of, images))),
                    not_read=(),
                    classes=(5, 6),
                    probabilities=(0.5, 0.25),
                    likeliest=5,
                    highest=0.5,
                )
            )
    opened(tab, tmp_path / "a.html")
    tops = "Array.from(list.children[0].querySelectorAll('img'), (one) => one.offsetTop)"
    # Side by side.
    assert tab.evaluate(f"new Set({tops}).size") == 1
    tab.press("j", "2", "j", "1", "j", "1")
    path, rows = save(tab, tmp_path / "saved")
    assert [(row["label"], row["group"]) for row in rows] == [
        ("Chêne", ""),
        *[("Chêne", "'=obs 2")] * 2,
        *[("x", "obs 1")] * 3,
    ]
    found = table.find(path, columns={}, kind="one", rule="shares")
    assert sorted(found.groups) == sorted(["", *["=obs 2"] * 2, *["obs 1"] * 3])
    tab.evaluate("localStorage.clear()")
    tab.open((tmp_path / "a.html").as_uri())
    assert said(tab) == "0 marked"
    assert load(tab, path) == "3 loaded, 3 of them on this page; 3 marked"
    assert choices(tab) == ["2. x", "1. Chêne", "1. Chêne"]
    assert complaints(tab) == []
