"""The cards of sets that say "none of these", as a person sees them."""

import json
from pathlib import Path

import pytest

from tests.peers.browser.chromium import Tab
from train.prediction import html_page
from train.prediction.html_page import PageFacts
from train.prediction.image_sets import ImageSet

NAMES = ("Acer campestre", "Acer platanoides", "Ilex aquifolium")
# Each card by its heading: what its text is, line by line, without the heading.
CARDS = """
JSON.stringify(Object.fromEntries(
  Array.from(document.querySelectorAll('.card:not([hidden])'), (card) => [
    card.querySelector('h2').lastChild.textContent,
    Array.from(card.querySelectorAll('.size, .empty, .set li'),
      (line) => line.innerText.replace(/\\s+/g, ' ').trim())
  ])
))
"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def image_set(name, classes, *, is_new):
    return ImageSet(
        path=Path(name),
        classes=classes,
        probabilities=(0.75, 0.25)[: len(classes)],
        likeliest=0,
        highest=0.75,
        none_of_these=is_new,
        thumbnail=None,
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "sets.html"
    with html_page.writing(path, PageFacts(NAMES, "Rule.", "", {})) as page:
        page.add(image_set("apron.png", (), is_new=True))
        page.add(image_set("maple.png", (0, 1), is_new=True))
        page.add(image_set("holly.png", (2,), is_new=False))
        page.add(image_set("unsure.png", (), is_new=False))
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with Tab(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


@pytest.mark.parametrize("width", [320, 1200])
def test_a_card_says_it_and_names_no_class(tab, page, width):
    tab.open(page.as_uri(), width=width)
    cards = json.loads(tab.evaluate(CARDS))
    assert cards["apron.png"] == ["none of these", "It is unlike the examples of every class."]
    assert cards["maple.png"][0] == "2 classes, or none of these"
    assert cards["maple.png"][1:] == ["Acer campestre 75.0%", "Acer platanoides 25.0%"]
    assert cards["holly.png"] == ["1 class", "Ilex aquifolium 75.0%"]
    assert "none of these" not in " ".join(cards["unsure.png"])
    assert tab.evaluate(OVERFLOW) == 0


def test_a_class_is_not_found_on_a_card_without_it(tab, page):
    tab.open(page.as_uri())
    tab.evaluate(
        "{ const field = document.getElementById('filter'); field.value = 'Acer campestre';"
        " field.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    assert list(json.loads(tab.evaluate(CARDS))) == ["maple.png", "unsure.png"]


def test_the_page_counts_them(tab, page):
    tab.open(page.as_uri())
    facts = tab.evaluate("document.body.innerText")
    assert "“None of these” here" in facts
    assert "2 (50.0%)" in facts
