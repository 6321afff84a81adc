"""The page of errors: names are only text in it, it is bounded, and images have their credits."""

import dataclasses

import numpy as np
import pytest

from tests.parts.program.prediction.small_errors import table_of
from tests.parts.program.prediction.small_pages import EVIL, Outline, assert_names_are_text
from train.data.examples import Examples
from train.prediction import error_page, thumbnails

NUM_CLASSES, NUMBER = 600, 900


def images(number):
    """Images of which each has another shade."""
    pixels = np.zeros((number, 4, 4, 1), np.uint8) + np.arange(number).reshape(-1, 1, 1, 1) % 256
    made = Examples.of_source(pixels.astype(np.uint8), np.zeros(number), ("a",), "images")
    return dataclasses.replace(
        made, credits=np.array([f"{n} {EVIL}" for n in range(number)], object)
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "errors.html"
    names = np.array([f"{row} {EVIL}\n\u202egnp" for row in range(NUMBER)], object)
    classes = [EVIL, *map(str, range(1, NUM_CLASSES))]
    table = table_of(names, classes, number=NUMBER, ks=(1, 5))
    facts = dict.fromkeys(("title", "sets"), EVIL) | {"unreadable": [EVIL], "example": "image"}
    csv = {"examples": path.with_suffix(".csv")}
    error_page.write(path, table, images(NUMBER), **facts, tables=csv)
    return path.read_text(encoding="utf-8")


def test_names_are_text_and_nothing_else(page):
    assert_names_are_text(page)
    outline = Outline(page)
    assert len(outline.all("img")) == len(outline.cards)
    assert outline.text.count("\\n\\u202egnp") == len(outline.cards)
    assert "\u202e" not in page


def test_images_and_credits_are_of_the_places_in_the_split(page):
    thumbnail, outline = thumbnails.of_examples(images(NUMBER)), Outline(page)
    assert outline.text.count("Author, licence") == len(outline.cards)
    for one in outline.all("img"):
        place = NUMBER - 1 - int(one["alt"].split()[2])
        assert one["src"] == thumbnail(place).data_uri()
        assert f"{place} {EVIL}" in outline.text


def test_it_is_bounded_and_names_what_it_leaves_out(page):
    outline = Outline(page)
    assert len(outline.cards) == 400
    losses = [float(part.split()[0]) for part in outline.text.split("Loss")[1:]]
    assert losses == sorted(losses, reverse=True)
    assert "The first 500 of 600." in outline.words
    assert "The first 100 of " in outline.words
    # Headers of rows: 500 classes and 100 pairs.
    assert len(outline.all("th", scope="row")) == 600


def test_scores_of_a_file_and_unknown_classes_are_shown(tmp_path):
    table = table_of(None, ("oak", "ash"), number=3)
    scores = dataclasses.replace(
        table.examples,
        values=table.examples.values * 30,
        labels=np.array([2, 0, 1]),
        loss=np.array([np.nan, 1, 2]),
        unknown_classes=("new",),
        indices=None,
    )
    table = dataclasses.replace(table, examples=scores)
    facts = {"title": "a", "sets": "b", "example": "row", "tables": {}}
    error_page.write(tmp_path / "a.html", table, None, **facts)
    words = Outline((tmp_path / "a.html").read_text()).words
    assert "is a class that the classifier does not know" in words
    assert "likelier class" in words
    # Of the coverages and accuracies only.
    assert words.count("%") == 7
