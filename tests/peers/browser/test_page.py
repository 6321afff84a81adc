"""The page of `train.predict` as a person sees it: 200 images, light and dark, wide and narrow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from tests.peers.browser.chromium import Tab
from train.prediction import html_page
from train.prediction.html_page import PageFacts, page_files
from train.prediction.image_sets import ImageSet

ROOT = Path(__file__).parents[3]
# A limit for a hang; a command takes some ten seconds.
TIME_LIMIT = 300
EVIL = "<img src=x onerror=document.title=1>"
NUM_DIGITS, NUM_PHOTOGRAPHS = 179, 20
NUM_IMAGES = NUM_DIGITS + NUM_PHOTOGRAPHS + 1
# Top, left, height and width of what is on the screen, of every element that a selector finds.
BOXES = """
JSON.stringify(Array.from(document.querySelectorAll(%r), (element) => {
  const box = element.getBoundingClientRect();
  return [box.top, box.left, box.bottom, box.right];
}))
"""


def run(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )


def write_images(folder):
    for index in range(NUM_DIGITS):
        pixels = (load_digits().images[index] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"digit {index}.png")
    for photograph, subject in zip(load_sample_images().images, ("temple", "flower"), strict=True):
        for index in range(NUM_PHOTOGRAPHS // 2):
            box = (20 * index, 10 * index, 20 * index + 300, 10 * index + 200 + 20 * index)
            Image.fromarray(photograph).crop(box).save(
                folder / f"{subject} with a name that is too long for a line {index}.jpg"
            )
    Image.new("RGB", (20, 20), "white").save(folder / f"{EVIL}.png")
    (folder / f"broken {EVIL}.png").write_text("no image")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The address of the page, and the lines of JSON for the same images."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "images").mkdir()
    write_images(folder / "images")
    (folder / "names.txt").write_text("\n".join([EVIL, *map(str, range(1, 10))]))
    done = run(
        "train.main",
        *("--config=configs/digits.py", "--config.num_epochs=2", f"--workdir={folder}/run"),
    )
    assert done.returncode == 0, done.stderr
    done = run(
        "train.predict",
        *(f"--workdir={folder}/run", f"--images={folder}/images", "--average_k=6"),
        *(f"--class_names={folder}/names.txt", f"--html={folder}/page.html"),
    )
    assert done.stderr.splitlines()[-2:] == [
        "1 of 201 images could not be read",
        f"page  {folder}/page.html",
    ], done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return (folder / "page.html").as_uri(), [line for line in lines if "set" in line]


@pytest.fixture(scope="module")
def tab(page, tmp_path_factory):
    # After the page, which takes its time: a browser has a limit.
    with Tab(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


def shown(tab):
    """The names of the files whose cards are seen, in their order."""
    return json.loads(
        tab.evaluate(
            "JSON.stringify(Array.from(document.querySelectorAll('.card:not([hidden]) h2'),"
            " (name) => name.lastChild.textContent))"
        )
    )


def names(lines):
    return [Path(line["path"]).name for line in lines]


def choose(tab, identifier, value):
    """Does what a person does to a field."""
    event = "change" if identifier == "sort" else "input"
    tab.evaluate(
        f"{{ const field = document.getElementById('{identifier}'); field.value = "
        f"{json.dumps(value)}; field.dispatchEvent(new Event('{event}', {{bubbles: true}})); }}"
    )


def complaints(tab):
    """What the browser finds wrong with the page, and what it asks others for."""
    return [
        event["params"]
        for event in tab.events
        if event["method"]
        in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        or (
            event["method"] == "Network.requestWillBeSent"
            and not event["params"]["request"]["url"].startswith("data:")
            and event["params"]["type"] != "Document"
        )
    ]


def test_all_is_there_and_nothing_is_loaded_from_elsewhere(tab, page):
    address, lines = page
    tab.open(address)
    assert len(lines) == NUM_IMAGES
    assert shown(tab) == names(lines)
    assert tab.evaluate("document.title") == "Sets of classes for 200 images"
    assert tab.evaluate("document.getElementById('status').textContent") == "200 shown"
    assert tab.evaluate("document.querySelectorAll('#unreadable li').length") == 1
    # Every picture can be drawn, the last too.
    assert (
        tab.evaluate(
            "Promise.all(Array.from(document.images, (image) => { image.loading = 'eager';"
            " return image.decode(); })).then((all) => all.length)"
        )
        == NUM_IMAGES
    )
    assert complaints(tab) == []
    assert len([one for one in tab.events if one["method"] == "Network.requestWillBeSent"]) > 1


def test_the_filter_leaves_files_and_classes_with_the_text(tab, page):
    address, lines = page
    tab.open(address)
    choose(tab, "filter", "FLOWER ")
    assert shown(tab) == [name for name in names(lines) if name.startswith("flower")]
    assert tab.evaluate("document.getElementById('status').textContent") == "10 of 200 shown"
    # The view is in the address, and so survives a reload.
    tab.open(tab.evaluate("location.href"))
    assert len(shown(tab)) == 10
    choose(tab, "filter", "src=x")
    members = [
        any(member["class"] == EVIL for member in line["set"]) or EVIL in line["path"]
        for line in lines
    ]
    # An empty set names its likeliest class, which the lines do not.
    empty = {name for name, line in zip(names(lines), lines, strict=True) if not line["set"]}
    wanted = [name for name, is_member in zip(names(lines), members, strict=True) if is_member]
    assert [name for name in shown(tab) if name not in empty] == [
        name for name in wanted if name not in empty
    ]
    # A list that hides what was looked for is open, and no other.
    folded = "Array.from(document.querySelectorAll('.card:not([hidden]) details'))"
    assert tab.evaluate(f"{folded}.length") > 0
    assert tab.evaluate(f"{folded}.every((one) => one.open === one.textContent.includes('src=x'))")
    choose(tab, "filter", "in no name")
    assert shown(tab) == []
    tab.evaluate("document.getElementById('reset').click()")
    assert shown(tab) == names(lines)
    assert complaints(tab) == []


def test_cards_are_sorted(tab, page):
    address, lines = page
    sizes = {name: line["size"] for name, line in zip(names(lines), lines, strict=True)}
    tab.open(f"{address}#sort=largest")
    assert max(sizes.values()) == 10
    # Sorted as numbers; cards of one size in their order.
    assert shown(tab) == sorted(names(lines), key=lambda name: -sizes[name])
    choose(tab, "sort", "smallest")
    assert shown(tab) == sorted(names(lines), key=lambda name: sizes[name])
    top = {
        name: line["set"][0]["probability"]
        for name, line in zip(names(lines), lines, strict=True)
        if line["set"]
    }
    choose(tab, "sort", "surest")
    assert [top[name] for name in shown(tab) if name in top] == sorted(top.values(), reverse=True)
    choose(tab, "sort", "unsurest")
    assert [top[name] for name in shown(tab) if name in top] == sorted(top.values())
    choose(tab, "sort", "name")
    digits = [name for name in shown(tab) if name.startswith("digit")]
    assert digits == [f"digit {index}.png" for index in range(NUM_DIGITS)]
    choose(tab, "sort", "")
    assert shown(tab) == names(lines)
    tab.open(f"{address}#sort=nonsense&filter=flower")
    assert len(shown(tab)) == 10
    assert complaints(tab) == []


def luminance(pixels):
    return float(np.median(pixels @ [0.2126, 0.7152, 0.0722]))


def test_the_page_is_dark_where_that_is_wanted(tab, page):
    address, _ = page
    tab.open(address)
    light = tab.screenshot()
    tab.open(address, dark=True)
    dark = tab.screenshot()
    # The backgrounds of the words, from 0 to 255.
    assert luminance(light[:100]) > 220
    assert luminance(dark[:100]) < 40


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
  for (const element of document.querySelectorAll("body *:not(script)")) {
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


@pytest.mark.parametrize("dark", [False, True])
def test_words_have_the_contrast_that_guidelines_ask_for(tab, page, dark):
    tab.open(page[0], dark=dark)
    assert tab.evaluate(CONTRASTS) >= 4.5


@pytest.mark.parametrize("width", [320, 390, 1280, 2560])
def test_nothing_sticks_out_at_any_width(tab, page, width):
    tab.open(page[0], width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    pictures = np.array(json.loads(tab.evaluate(BOXES % ".picture")))
    images = np.array(json.loads(tab.evaluate(BOXES % ".picture img")))
    assert len(pictures) == len(images) == NUM_IMAGES
    # Half a pixel for what the layout rounds.
    assert (images[:, :2] >= pictures[:, :2] - 0.5).all()
    assert (images[:, 2:] <= pictures[:, 2:] + 0.5).all()
    words = np.array(json.loads(tab.evaluate(BOXES % ".words")))
    assert (words[:, 0] >= pictures[:, 2] - 0.5).all()
    columns = len(set(words[:, 1].round().tolist()))
    assert columns == {320: 1, 390: 1, 1280: 4, 2560: 5}[width]


def test_a_file_that_is_dropped_does_not_replace_the_page(tab, page):
    address, _ = page
    tab.open(address)
    assert tab.keeps_page()
    # A text may be dropped into a field.
    assert not tab.keeps_page("'oak', 'text/plain'")


def test_names_do_nothing(tab, page):
    address, _ = page
    for script in (True, False):
        tab.open(address, script=script)
        assert tab.evaluate("document.title") == "Sets of classes for 200 images"
        assert tab.evaluate("document.querySelectorAll('[onerror]').length") == 0


def test_without_script_all_is_there_but_the_controls(tab, page):
    tab.open(page[0], script=False)
    assert shown(tab) == names(page[1])
    assert tab.evaluate("document.getElementById('controls').offsetHeight") == 0


def test_everything_has_a_name_for_those_who_do_not_see(tab, page):
    tab.open(page[0])
    tab.call("Accessibility.enable")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {}
    for node in nodes:
        role = node.get("role", {}).get("value")
        roles = ("searchbox", "combobox", "button", "image", "heading", "article")
        if role in roles and not node["ignored"]:
            named.setdefault(role, []).append(node["name"]["value"])
    assert named["searchbox"] == ["Filter"]
    assert named["combobox"][:2] == ["Sort", "Show"]
    # Of the cards that are seen; each has another name.
    marked = [name.removeprefix("Right class of ") for name in named["combobox"][2:]]
    assert marked == named["article"] == shown(tab)[: len(marked)]
    assert len(marked) > 1
    assert named["button"] == ["Reset", "Save marks", "Load marks", "Clear marks", "Keys"]
    assert all(named["image"])
    assert len(named["heading"]) > 1
    # In the order in which they are seen, the controls are reached by the key.
    for wanted in ("unreadable", "filter", "sort", "show", "reset", "load", "keys"):
        tab.press("Tab")
        focused = "document.activeElement.id || document.activeElement.hash.slice(1)"
        assert tab.evaluate(focused) == wanted


def test_of_many_cards_each_page_has_some_and_leads_to_the_others(tab, tmp_path):
    number = 2 * page_files.CARDS + 50
    path = tmp_path / f"many {EVIL.replace('/', '|')} #1.html"
    with html_page.writing(path, PageFacts([EVIL, "cat", "dog"], "Rule.", "", {})) as page:
        for index in range(number):
            page.add(
                ImageSet(
                    path=Path(f"{index:04}.png"),
                    classes=(index % 3,),
                    probabilities=(0.25,),
                    likeliest=1,
                    highest=0.25,
                    thumbnail=None,
                )
            )
    files = [f"{index:04}.png" for index in range(number)]
    told = "document.getElementById('status').textContent"
    ranges = (
        "Array.from(document.querySelectorAll('main > nav span'), (one) => one.textContent).join()"
    )
    for script in (True, False):
        tab.open(path.as_uri(), script=script)
        assert shown(tab) == files[:200]
        assert tab.evaluate(ranges) == ",".join(["images 1 to 200 of 450"] * 2)
        tab.follow("Next")
        assert shown(tab) == files[200:400]
        assert tab.evaluate(ranges) == ",".join(["images 201 to 400 of 450"] * 2)
        assert tab.evaluate("document.title") == "Sets of classes for 450 images, page 2 of 3"
        tab.follow("Next")
        assert shown(tab) == files[400:]
        tab.follow("First page")
        assert shown(tab) == files[:200]
        tab.follow("Last page")
        assert shown(tab) == files[400:]
        tab.follow("Previous")
        assert shown(tab) == files[200:400]
    tab.open(path.with_name(f"{path.stem}.3.html").as_uri())
    assert tab.evaluate(told) == "50 shown on this page"
    choose(tab, "filter", "0449")
    assert shown(tab) == files[-1:]
    assert tab.evaluate(told) == "1 of 50 shown on this page"
    choose(tab, "filter", "0001")
    assert shown(tab) == []
    assert tab.evaluate(CONTRASTS) >= 4.5
    assert complaints(tab) == []
    tab.open(path.as_uri(), width=320)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
