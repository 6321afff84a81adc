"""Authors and licences are shown with their images."""

import dataclasses

import numpy as np
from PIL import Image

from tests.parts.program.prediction.test_error_page import table_of
from tests.parts.program.prediction.test_predict_page import EVIL, FACTS, Outline, image_set
from train.prediction import error_page, html_page
from train.prediction.class_sets import Similar
from train.prediction.thumbnails import Thumbnail

THUMBNAIL = Thumbnail.of(Image.new("RGB", (8, 8)))


def test_pages_have_those_of_similar_images_and_of_errors(tmp_path):
    similar = Similar("a", 0.5, THUMBNAIL, f"{EVIL}, cc0"), Similar("b", 0.4, THUMBNAIL)
    with html_page.writing(tmp_path / "a.html", FACTS) as page:
        page.add(dataclasses.replace(image_set("a.png", {0: 0.6}), similar=(similar,)))
    outline = Outline((tmp_path / "a.html").read_text())
    assert len([one for one in outline.all("small") if one.get("class") == "credit"]) == 1
    assert f"{EVIL}, cc0" in outline.text
    assert len(outline.all("script")) == 1
    table = table_of(np.array(["a"] * 3, object), ["x", "y", "z"], number=3, num_classes=3)
    credit = ["", "me, cc0", ""].__getitem__
    facts = error_page.ErrorPageFacts("t", "s", "image", {}, (), credit)
    error_page.write(tmp_path / "b.html", table, facts, lambda _place: THUMBNAIL)
    text = (tmp_path / "b.html").read_text()
    assert text.count("Author, licence") == text.count("me, cc0") == 1
