"""Training examples of each class of a set that are similar to an example, on the page of sets."""

import dataclasses
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from tests.parts.program.forked import start_each
from tests.parts.program.prediction.test_predict_page import EVIL, FACTS, Outline, image_set
from train.data import Examples
from train.evaluation import stored_scores
from train.prediction import html_page, similar_examples, trained
from train.prediction.class_sets import Similar
from train.prediction.similar_examples import TrainingFeatures
from train.prediction.thumbnails import Thumbnail

NUM_CLASSES = 4


def nearest(features, labels, query, label, number):
    """The places of the examples of a class by decreasing cosine, in 64 bits."""
    of_class = np.flatnonzero(labels == label)
    rows = features[of_class].astype(np.float64)
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    order = np.argsort(-cosines, kind="stable")[:number]
    return of_class[order].tolist(), cosines[order]


@pytest.fixture
def rows(rng):
    """A classifier on rows of features, whose network is the identity; class 3 has two rows."""
    labels = np.concatenate([rng.integers(3, size=58), [3, 3]]).astype(np.int32)
    matrix = rng.normal(size=(100, 5)).astype(np.float32)
    indices = rng.permutation(100)[:60]
    of_rows = np.zeros(100, np.int32)
    of_rows[indices] = labels
    train = Examples.of_source(matrix, of_rows, "abcd", "rows").take(indices)
    made = types.SimpleNamespace(
        load_dataset=lambda: types.SimpleNamespace(train=train),
        spec=types.SimpleNamespace(inputs="features", example="row"),
        features=lambda: jnp.asarray,
        num_classes=NUM_CLASSES,
        train=train,
    )
    made.of_run = made
    return made


@pytest.mark.parametrize("in_file", [False, True])
def test_they_are_the_nearest_of_the_class(rows, rng, monkeypatch, in_file):
    # Several parts of a class, from memory or from a temporary file.
    monkeypatch.setattr(similar_examples, "_READ_TOGETHER", 7)
    if in_file:
        monkeypatch.setattr(stored_scores, "MOST_IN_MEMORY", 0)
    found = TrainingFeatures(rows)
    queries = rng.normal(size=(3, 5)).astype(np.float32)
    classes = [(0, 3), (), (2, 0, 1)]
    similar = found.nearest(classes, found.features_of([*queries]), 3)
    features, labels = rows.train.rows(np.arange(60)), rows.train.labels
    for chosen, query, of_query in zip(classes, queries, similar, strict=True):
        assert len(of_query) == len(chosen)
        for label, ones in zip(chosen, of_query, strict=True):
            places, cosines = nearest(features, labels, query, label, 3)
            # As the file of features numbers its rows; class 3 has no third one.
            expected = [f"row {rows.train.places[place]}" for place in places]
            assert [one.name for one in ones] == expected
            # Sums of five products in 32 bits.
            np.testing.assert_allclose([one.cosine for one in ones], cosines, atol=1e-6)
            assert all(one.thumbnail is None for one in ones)


def test_rows_have_the_names_of_the_file_and_a_row_of_zeros_has_cosine_zero(rows):
    names = np.array([f"leaf {index}" for index in range(60)], object)
    named = dataclasses.replace(rows.train, names=names)
    rows.load_dataset = lambda: types.SimpleNamespace(train=named)
    found = TrainingFeatures(rows)
    ((similar,),) = found.nearest([(3,)], found.features_of([np.zeros(5, np.float32)]), 1)
    assert (similar[0].name, similar[0].cosine) == ("leaf 58", 0)


def test_the_page_has_them_beside_their_class(tmp_path):
    thumbnail = Thumbnail.of(Image.new("RGB", (200, 100), "red"), 160)
    assert (thumbnail.width, thumbnail.height) == (160, 80)
    entry = dataclasses.replace(
        image_set("a.png", {0: 0.6, 1: 0.3, 2: 0.1}),
        similar=((Similar(EVIL, 0.876, thumbnail), Similar("b", 0.5, None)), ()),
    )
    with html_page.writing(tmp_path / "page.html", FACTS) as page:
        page.add(entry)
    outline = Outline((tmp_path / "page.html").read_text())
    (image,) = outline.all("img")
    assert image["title"] == image["alt"] == f"{EVIL}, similarity 0.88"
    assert image["src"] == thumbnail.data_uri()
    assert [one["title"] for one in outline.all("span") if "title" in one] == ["b, similarity 0.50"]
    assert len([one for one in outline.all("span") if one.get("class") == "similar"]) == 1


def test_a_run_on_images_finds_its_own_training_images(finished_run, tmp_path):
    classifier = trained.load(finished_run)
    train = classifier.load_dataset().train
    folder = tmp_path / "images"
    folder.mkdir()
    images = train.rows(np.arange(len(train)))
    for place in (0, 1):
        Image.fromarray(images[place, ..., 0]).save(folder / f"{place}.png")
    page = tmp_path / "page.html"
    common = [f"--workdir={finished_run}", f"--images={folder}", "--top_k=2"]
    (ended,) = start_each(
        "train.predict", [[*common, f"--html={page}", "--similar=3", f"--out={tmp_path}/sets"]], {}
    )
    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0)
    titles = [one["title"] for one in Outline(page.read_text()).all("img") if "title" in one]
    # Two images, two classes, three examples of each.
    assert len(titles) == 12
    features = np.asarray(jax.jit(classifier.features())(images)).astype(np.float64)
    for place, of_image in zip((0, 1), (titles[:6], titles[6:]), strict=True):
        # The image itself is the nearest of its class.
        assert f"training image {place}, similarity 1.00" in of_image
        places = [int(re.match(r"training image (\d+),", title)[1]) for title in of_image]
        for of_class in (places[:3], places[3:]):
            (label,) = {*train.labels[of_class].tolist()}
            _, cosines = nearest(features, train.labels, features[place], label, 3)
            got = [
                features[one]
                @ features[place]
                / np.linalg.norm(features[[one, place]], axis=1).prod()
                for one in of_class
            ]
            # Of another batch; nearly equal examples may change places.
            np.testing.assert_allclose(got, cosines, atol=1e-3)
