"""The page of sets as a person sees it, light and dark, wide and narrow; and marks on it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.parts.program.prediction.small_pages import facts, image
from tests.peers.browser.chromium import Tab
from train.data.sources import table
from train.prediction import set_page
from train.prediction.entries import Entry
from train.prediction.thumbnails import Thumbnail

EVIL = "<img src=x onerror=document.title=1>"
# Names of files that a table, a page or a spreadsheet may misread.
ODD = (
    'a, "b"; c.png',
    "line\nand\r\nline.png",
    "=1+1.png",
    "skärm.png",
    " space .png",
    "'.png",
    "a\x7f\x1b[31m.png",
    f"{EVIL}.png",
)
# As the page shows them.
SHOWN = [r"line\nand\r\nline.png" if "\n" in one else one for one in ODD]
SHOWN[6] = r"a\x7f\x1b[31m.png"
NUMBER = 200
# Odd names of classes, two of which have other names in tables.
CLASSES = ["=SUM(A1)", 'oak, "white"', "-ash", "'=elm", EVIL, "Chêne", "x", *"cdefghij"]
LABELS = [*CLASSES[:6], "Quercus\x1b robur", *CLASSES[7:]]
RULE = "coverage=0.9, rule=aps"
# Top, left, bottom and right of every element that a selector finds.
BOXES = """
JSON.stringify(Array.from(document.querySelectorAll(%r), (element) => {
  const box = element.getBoundingClientRect();
  return [box.top, box.left, box.bottom, box.right];
}))
"""
# Contrast by the definition of WCAG 2, of everything that has text of its own.
CONTRASTS = """
(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((value) => value / 255).map(
    (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4,
  ).reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let least = Infinity;
  for (const element of document.querySelectorAll("body *:not(script):not(:disabled)")) {
    const own = Array.from(element.childNodes).some(
      (node) => node.nodeType === 3 && node.textContent.trim() !== "",
    );
    if (!own) continue;
    const pair = [numbers(getComputedStyle(element).color), ground(element)].map(luminance);
    least = Math.min(least, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05));
  }
  return least;
})()
"""


def name_of(index):
    if index < len(ODD):
        return ODD[index]
    return f"obs{index:03}_a-photograph-with_a-very-long-name-for_a-line_{index}.jpg"


def entries(folder):
    """Sets of zero to eleven classes; each twelfth is empty."""
    photograph = load_sample_images().images[1]
    for index in range(NUMBER):
        side = 4 if index < len(ODD) else 200 + index
        made = Image.fromarray(photograph[:side, :side])
        if index < 2 * len(ODD):
            made.save(folder / name_of(index), "PNG")
        chances = {(index + place) % len(CLASSES): 0.5 ** (place + 1) for place in range(12)}
        yield image(
            folder / name_of(index),
            chances,
            size=index % 12,
            num_classes=len(CLASSES),
            thumbnail=Thumbnail.of(made),
        )
    yield Entry(unreadable_origins=({"path": EVIL, "error": f"{EVIL} is not an image"},))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for name in ("photos", "pages"):
        (folder / name).mkdir()
    path = folder / "pages" / f"sets {EVIL} #1.html"
    rule = {"Rule": RULE, "Source of the data": "Somebody, CC-BY"}
    set_page.write(path, entries(folder / "photos"), facts(RULE, CLASSES, LABELS, **rule))
    return path


@pytest.fixture(scope="module")
def tab(page, tmp_path_factory):
    # After the page, which takes its time: a browser has a limit.
    with Tab(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


@pytest.fixture
def opened(tab, page):
    """The page without marks of an earlier test."""
    tab.open(page.as_uri())
    tab.evaluate("localStorage.clear()")
    tab.open(page.as_uri())
    yield tab
    assert tab.complaints() == []


def shown(tab):
    """The names of the files whose cards are seen, in their order."""
    return tab.texts(".card:not([hidden]) .title")


NAMES = [*SHOWN, *map(name_of, range(len(ODD), NUMBER))]


def test_all_is_there_and_nothing_is_loaded_from_elsewhere(opened):
    assert shown(opened) == NAMES
    assert opened.evaluate("document.title") == f"Sets of classes for {NUMBER} images"
    assert opened.texts("#status") == ["200 shown"]
    assert opened.texts("#unreadable li") == [f"{EVIL} is not an image"]
    assert opened.evaluate("document.querySelectorAll('[onerror]').length") == 0
    # Every picture can be drawn, the last too.
    drawn = "(image) => { image.loading = 'eager'; return image.decode(); }"
    drawn = f"Promise.all(Array.from(document.images, {drawn})).then((all) => all.length)"
    assert opened.evaluate(drawn) == NUMBER


def test_without_scripts_all_is_there_but_the_controls(tab, page):
    tab.open(page.as_uri(), script=False)
    assert shown(tab) == NAMES
    assert tab.evaluate("document.getElementById('controls').offsetHeight") == 0
    assert tab.evaluate("document.querySelectorAll('[onerror]').length") == 0


def test_the_filter_leaves_files_and_classes_with_the_text(opened):
    opened.fill("filter", "OBS01 ")
    assert shown(opened) == [name for name in NAMES if name.startswith("obs01")]
    assert opened.texts("#status") == ["10 of 200 shown"]
    opened.fill("filter", "src=x")
    sizes = np.arange(NUMBER) % 12
    # The likeliest class of an empty set is shown, too.
    members = np.maximum(sizes, 1)
    place = (4 - np.arange(NUMBER)) % len(CLASSES)
    wanted = np.flatnonzero((place < members) | (np.arange(NUMBER) == 7))
    assert shown(opened) == [NAMES[index] for index in wanted]
    # A list that hides what was looked for is open, and no other.
    folded = "Array.from(document.querySelectorAll('.card:not([hidden]) details'))"
    is_right = "(one) => one.open === one.textContent.includes('src=x')"
    assert opened.evaluate(f"{folded}.length") > 0
    assert opened.evaluate(f"{folded}.every({is_right})")
    opened.evaluate("field('fields').reset()")
    opened.evaluate("new Promise((done) => setTimeout(done))")
    assert shown(opened) == NAMES


def test_cards_are_sorted(opened):
    sizes = {name: index % 12 for index, name in enumerate(NAMES)}
    # Sorted as numbers; cards of one size in their order.
    opened.fill("sort", "largest")
    assert shown(opened) == sorted(NAMES, key=lambda name: -sizes[name])
    opened.fill("sort", "smallest")
    assert shown(opened) == sorted(NAMES, key=lambda name: sizes[name])
    opened.fill("sort", "name")
    assert [name for name in shown(opened) if name.startswith("obs")] == NAMES[len(ODD) :]
    opened.fill("sort", "")
    assert shown(opened) == NAMES


def test_the_page_is_dark_where_that_is_wanted(tab, page):
    medians = []
    for dark in (False, True):
        tab.open(page.as_uri(), dark=dark)
        medians.append(float(np.median(tab.screenshot()[:100] @ [0.2126, 0.7152, 0.0722])))
        assert tab.evaluate(CONTRASTS) >= 4.5
    assert medians[0] > 220
    assert medians[1] < 40


@pytest.mark.parametrize(("width", "columns"), [(320, 1), (390, 1), (1280, 4), (2560, 5)])
def test_nothing_sticks_out_at_any_width(tab, page, width, columns):
    tab.open(page.as_uri(), width=width, height=844)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    boxes = (".picture", ".picture img", ".words")
    pictures, images, words = (np.array(json.loads(tab.evaluate(BOXES % one))) for one in boxes)
    assert len(pictures) == len(images) == NUMBER
    # Half a pixel for what the layout rounds.
    assert (images[:, :2] >= pictures[:, :2] - 0.5).all()
    assert (images[:, 2:] <= pictures[:, 2:] + 0.5).all()
    assert (words[:, 0] >= pictures[:, 2] - 0.5).all()
    assert len(set(words[:, 1].round().tolist())) == columns
    # The first photograph is on the first screen, of a phone too.
    assert width < 390 or pictures[0, 2] <= 844


def test_everything_has_a_name_for_those_who_do_not_see(opened):
    opened.call("Accessibility.enable")
    named = {}
    for node in opened.call("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            named.setdefault(node["role"]["value"], []).append(node["name"]["value"])
    assert named["searchbox"] == ["Filter"]
    # Of the cards that are seen.
    marked = [one.removeprefix("Right class of").strip() for one in named["combobox"][2:]]
    assert named["combobox"][:2] == ["Sort", "Show"]
    assert marked == [*map(str.strip, named["article"])]
    assert marked == [name.strip() for name in NAMES[: len(marked)]]
    assert len(marked) > 1
    assert named["button"][:4] == ["Reset", "Save marks", "Load marks", "Clear marks"]
    assert all(map(all, (named["image"], named["button"], named["heading"])))
    # In the order in which they are seen, the controls are reached by the key.
    for wanted in ("A", "SUMMARY", "filter", "sort", "show", "BUTTON", "load"):
        opened.press("Tab")
        focus = "document.activeElement.id || document.activeElement.tagName"
        assert opened.evaluate(focus) == wanted


def test_a_file_that_is_dropped_does_not_replace_the_page(opened):
    assert opened.keeps_page()
    # A text may be dropped into a field.
    assert not opened.keeps_page("'oak', 'text/plain'")


def test_on_paper_all_sets_are_seen_and_no_controls(tab, page):
    for script in (True, False):
        tab.open(page.as_uri(), script=script)
        tab.call("Emulation.setEmulatedMedia", media="print")
        # The classes of a folded list, too, and below each other.
        members = "Array.from(document.querySelectorAll('.card:nth-child(11) .set li'))"
        assert tab.evaluate(f"{members}.every((one) => one.checkVisibility())")
        tops = f"{members}.map((one) => one.getBoundingClientRect().top)"
        assert len(set(json.loads(tab.evaluate(f"JSON.stringify({tops})")))) == 10
        hidden = "Array.from(document.querySelectorAll('#controls, summary, button, input'))"
        assert tab.evaluate(f"{hidden}.every((one) => !one.offsetHeight)")
        tab.call("Emulation.setEmulatedMedia", media="")


def focused(tab):
    """The name of what has the focus."""
    return tab.evaluate("document.activeElement.ariaLabel ?? document.activeElement.id")


def said(tab):
    return tab.texts("#said")[0]


def marks(tab):
    """What each card is marked as."""
    return [one.removeprefix("Marked: ") for one in tab.texts(".marked")]


def save(tab, folder):
    """The saved table, and its rows as another program reads them."""
    path = tab.download(folder, "field('save').click()")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return path, list(csv.DictReader(file, strict=True))


def load(tab, path):
    """What is said when a table is loaded."""
    watch = "new MutationObserver(done).observe(field('said'), { childList: true })"
    # Not the value of the expression, which would be waited for.
    tab.evaluate(f"window.loaded = new Promise((done) => {watch}); true")
    tab.choose_file("file", path)
    tab.evaluate("loaded.then(() => true)")
    return said(tab)


def test_cards_are_marked_with_the_keyboard(opened, tmp_path):
    opened.press("j")
    # The class that is the likeliest of an empty set.
    assert focused(opened) == SHOWN[0]
    opened.press("Enter", "j", "Enter", "ArrowDown", "2", "j", "0", "j", "c", "j", "5", "j", "o")
    assert focused(opened) == f"Right class of {SHOWN[6]}"
    # Letters are letters there.
    opened.press(*"jxq", "Enter")
    assert focused(opened) == SHOWN[6]
    opened.press("j", "7", "k", "ArrowUp", "x", "ArrowUp")
    assert focused(opened) == SHOWN[4]
    expected = ["=SUM(A1)", 'oak, "white"', "'=elm", "none of these", "cannot tell", "", "jxq", "i"]
    assert marks(opened)[:8] == expected
    assert said(opened) == "'.png: not marked; 7 marked"
    assert opened.evaluate("document.querySelectorAll('.unknown:not([hidden])').length") == 1
    assert opened.evaluate("document.querySelectorAll('.right').length") == 4
    # An unfinished name is dropped, and the card has the focus again.
    opened.press("o", *"oak", "Escape", "j")
    assert focused(opened) == SHOWN[5]
    assert marks(opened)[4:6] == ["cannot tell", ""]
    # A set may have fewer classes than the number of the key.
    opened.press("k", "k", "9")
    assert marks(opened)[:8] == expected
    _, rows = save(opened, tmp_path)
    saved = [(Path(row["path"]).name, row["label"], row["mark"]) for row in rows]
    labels = ["'=SUM(A1)", 'oak, "white"', "''=elm", "", "", None, "jxq", "i"]
    words = {3: "none of these", 4: "cannot tell"}
    wanted = zip(ODD, labels, strict=True)
    assert saved == [
        (name, label, words.get(index, ""))
        for index, (name, label) in enumerate(wanted)
        if label is not None
    ]


def test_keys_lead_to_the_filter_and_the_list_of_keys(opened):
    opened.press("/")
    assert focused(opened) == "filter"
    # Each letter filters, and does nothing else; without a card to go to, the focus stays.
    opened.press(*"jn07", "Enter")
    assert focused(opened) == "filter"
    opened.press(*["Backspace"] * 4, *"020", "Enter")
    assert focused(opened) == NAMES[20]
    # What was looked for before is replaced.
    opened.press("/", *"obs021", "Enter")
    assert focused(opened) == NAMES[21]
    opened.press("?")
    assert opened.evaluate("field('keys').open") is True
    opened.press("?")
    assert opened.evaluate("field('keys').open") is False


def test_classes_are_marked_with_a_pointer(opened):
    opened.evaluate("list.children[5].querySelectorAll('.name')[1].click()")
    assert marks(opened)[5] == "x"
    assert said(opened) == "'.png: x; 1 marked"
    opened.fill("show", "marked")
    assert shown(opened) == ["'.png"]
    # The same once more removes it.
    opened.evaluate("list.children[5].querySelectorAll('.name')[1].click()")
    opened.evaluate("list.children[4].querySelectorAll('button')[0].click()")
    assert marks(opened)[4:6] == ["none of these", ""]
    opened.evaluate("list.children[4].querySelectorAll('button')[0].click()")
    assert marks(opened)[4] == ""


def test_marks_are_kept_and_are_a_data_set(opened, page, tmp_path, caplog):
    opened.evaluate("markings.slice(0, 16).forEach(({ mark, members }) => mark(members[0] ?? {}))")
    opened.evaluate("markings[12].mark({ mark: UNSURE }); markings[1].mark({ mark: NONE })")
    opened.open(page.as_uri())
    assert said(opened) == "16 marked"
    seen = marks(opened)[:16]
    path, rows = save(opened, tmp_path)
    assert path.name == f"{page.stem}-marks.csv".translate(str.maketrans("<>", "__"))
    assert len(rows) == 16
    # The program reads it in whichever folder it is.
    found = table.find(path, columns={}, kind="one", rule="shares")
    photos = page.parent.parent / "photos"
    names = [str(photos / name_of(index)) for index in range(16) if index not in (1, 12)]
    assert set(found.names) == {*names}
    assert all(map(len, found.inputs))
    called = dict(zip(LABELS, CLASSES, strict=True))
    labels = {
        name: called[found.class_names[label]]
        for name, label in zip(found.names, found.labels, strict=True)
    }
    assert [labels[name] for name in names] == [*seen[:1], *seen[2:12], *seen[13:]]
    assert "Quercus\x1b robur" in found.class_names
    assert caplog.messages == [
        f"config.dataset.path {path}: 2 rows marked 'none of these' or 'cannot tell' are left out"
    ]


def test_saved_marks_are_loaded_again(opened, page, tmp_path):
    opened.evaluate("markings.forEach(({ mark, members }, at) => mark(members[at % 2] ?? {}))")
    opened.evaluate("markings[0].mark({ mark: NONE }); markings[3].mark({ label: 'Sorbus' })")
    before, rows = save(opened, tmp_path)
    expected = marks(opened)
    opened.evaluate("window.confirm = () => true; field('clear').click()")
    assert said(opened) == "all marks are removed; 0 marked"
    assert opened.evaluate("localStorage.length") == 0
    assert set(marks(opened)) == {""}
    assert opened.evaluate("field('save').disabled") is True
    # As a spreadsheet may save it.
    again = tmp_path / "again.csv"
    text = before.read_bytes().decode("utf-8-sig")
    with again.open("w", encoding="utf-16", newline="") as file:
        csv.writer(file, delimiter=";").writerows(csv.reader(text.splitlines(keepends=True)))
    for chosen in (before, again):
        opened.evaluate("markings.forEach(({ mark }) => mark({}))")
        assert load(opened, chosen) == f"{len(rows)} loaded; {len(rows)} marked"
        assert marks(opened) == expected
    after, _ = save(opened, tmp_path)
    assert after.read_bytes() == before.read_bytes()
    for content, told in [
        (b"file,label\n", "has no column path"),
        (b"path,label\n\xff\n", "is not a text in UTF-8"),
        (b"", "has no column path"),
    ]:
        again.write_bytes(content)
        assert load(opened, again) == f"again.csv {told}; {len(rows)} marked"
    photo = page.parent.parent / "photos" / name_of(9)
    again.write_text(f"path,label\n{photo},x\n{photo},c\nelsewhere.png,x\n{photo.parent},\n")
    told = "1 loaded; 1 are not on this page; with two labels, of which the first is taken: "
    assert load(opened, again).startswith(f"{told}{photo}")
    assert marks(opened)[9] == "x"


def test_an_observation_has_one_mark_for_its_photographs(tab, tmp_path):
    made = []
    for group, number in {"obs 1": 3, "=obs 2": 2, "": 1}.items():
        paths = [tmp_path / f"{group}-{place}.png" for place in range(number)]
        for path in paths:
            Image.new("RGB", (200, 150)).save(path)
        pictures = tuple(Thumbnail.of(Image.open(path)) for path in paths)
        of = {"group": group, "origins": tuple({"path": str(path)} for path in paths)}
        chances = {5: 0.5, 6: 0.25}
        made.append(image("", chances, thumbnails=pictures, **of))
    set_page.write(tmp_path / "a.html", made, facts(names=CLASSES))
    tab.open((tmp_path / "a.html").as_uri())
    tops = "Array.from(list.children[0].querySelectorAll('img'), (one) => one.offsetTop)"
    # Side by side.
    assert tab.evaluate(f"new Set({tops}).size") == 1
    tab.press("j", "2", "j", "1", "j", "1")
    path, rows = save(tab, tmp_path)
    assert [(row["label"], row["group"]) for row in rows] == [
        *[("x", "obs 1")] * 3,
        *[("Chêne", "'=obs 2")] * 2,
        ("Chêne", ""),
    ]
    found = table.find(path, columns={}, kind="one", rule="shares")
    assert sorted(found.groups) == sorted(["", *["=obs 2"] * 2, *["obs 1"] * 3])
    tab.evaluate("localStorage.clear()")
    tab.open((tmp_path / "a.html").as_uri())
    assert load(tab, path) == "3 loaded; 3 marked"
    assert marks(tab) == ["x", "Chêne", "Chêne"]
    assert tab.complaints() == []
