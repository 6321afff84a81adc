"""The page of errors: names are only text in it, it loads nothing, and it is bounded."""

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.prediction.test_predict_page import Outline, assert_nothing_is_loaded
from train.evaluation.example_table import ExampleTable
from train.evaluation.predictions import Predictions
from train.evaluation.summaries import Sets
from train.prediction import error_page
from train.prediction.error_page import ErrorPageFacts
from train.prediction.thumbnails import Thumbnail

EVIL = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>"
NUM_CLASSES, NUMBER = 600, 900


def table_of(names, class_names, *, number=NUMBER, num_classes=NUM_CLASSES):
    rng = np.random.default_rng(5)
    scores = rng.dirichlet(np.full(num_classes, 0.05), size=number).astype(np.float32)
    # Each class has an example, which most have a likelier class for.
    labels = np.arange(number, dtype=np.int32) % num_classes
    of_label = scores[np.arange(number), labels]
    ranks = (scores > of_label[:, None]).sum(axis=1)
    examples = Predictions(
        *(-np.log(np.maximum(of_label, 1e-9)), scores, labels, ranks, names),
        indices=np.arange(number)[::-1].copy(),
    )
    return ExampleTable.of(examples, Sets(ranks < 3, np.full(number, 3)), class_names, (1, 5))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "errors.html"
    names = np.array([f"{EVIL} {row}\n\u202egnp" for row in range(NUMBER)], object)
    classes = [EVIL, *map(str, range(1, NUM_CLASSES))]
    facts = ErrorPageFacts(EVIL, EVIL, "image", {"examples": path.with_suffix(".csv")}, (EVIL,))
    seen = []

    def thumbnail(place):
        seen.append(place)
        return Thumbnail.of(Image.new("RGB", (8, 8)))

    table = table_of(names, classes)
    error_page.write(path, table, facts, thumbnail)
    # The places in the split, and not in the table.
    assert sorted(seen) == sorted((NUMBER - 1 - table.worst(200, 400)).tolist())
    return path.read_text(encoding="utf-8")


def test_names_are_text_and_nothing_else(page):
    outline = Outline(page)
    assert len(outline.all("script")) == 1
    assert not [key for _, attributes in outline.elements for key in attributes if key[:2] == "on"]
    cards = [one for one in outline.all("li") if one.get("class") == "card"]
    assert len(outline.all("img")) == len(cards)
    assert outline.text.count("\\n\\u202egnp") == len(cards)
    assert "\u202e" not in page


def test_nothing_is_loaded_and_only_its_own_script_may_run(page):
    assert_nothing_is_loaded(Outline(page))


def test_it_is_bounded_and_names_what_it_leaves_out(page):
    outline = Outline(page)
    cards = [one for one in outline.all("li") if one.get("class") == "card"]
    assert len(cards) == 400
    losses = [float(one["data-loss"]) for one in cards]
    assert losses == sorted(losses, reverse=True)
    words = " ".join(outline.text.split())
    assert "The first 500 of 600." in words
    assert "The first 100 of " in words
    # Headers of rows: 500 classes and 100 pairs.
    assert len([one for one in outline.all("th") if one.get("scope") == "row"]) == 600
    shown = {one["data-label"] for one in cards}
    # And one for any class.
    assert len(outline.all("option")) == len(shown) + 1
