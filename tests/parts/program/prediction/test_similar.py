"""Training examples of each class of a set that are similar to an example."""

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parts.program.prediction.small_pages import image
from train.classifiers import trained
from train.data.classes import Classes
from train.data.examples import Examples
from train.prediction import similar
from train.prediction.entries import Entry
from train.prediction.similar import TrainingFeatures


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
    made = types.SimpleNamespace(
        train=Examples.of_source(matrix, of_rows, "abcd", "rows").take(indices),
        classes=Classes(tuple("abcd"), (1,) * 4),
        features=lambda: jnp.asarray,
        load_dataset=lambda: made,
    )
    made.run = made
    return made


def test_they_are_the_nearest_of_the_class(rows, rng):
    found = TrainingFeatures(rows)
    queries = [*rng.normal(size=(2, 5)).astype(np.float32), np.zeros(5, np.float32)]
    features, labels = rows.train.rows(np.arange(60)), rows.train.labels
    for query in queries[:2]:
        direction = found.direction(query)
        for label in range(4):
            ones = found.nearest(label, direction, 3)
            places, cosines = nearest(features, labels, query, label, 3)
            # As the file of features numbers its rows; class 3 has no third one.
            expected = [f"row {rows.train.places[place]}" for place in places]
            assert [one.name for one in ones] == expected
            # Sums of five products in 32 bits.
            np.testing.assert_allclose([one.cosine for one in ones], cosines, atol=1e-6)
            assert all(one.thumbnail is None for one in ones)
    (one,) = found.nearest(3, found.direction(queries[2]), 1)
    assert one.cosine == 0


def test_a_run_on_images_finds_its_own_training_images(finished_run):
    classifier = trained.load(finished_run)
    train = classifier.load_dataset().train
    images = train.rows(np.arange(len(train)))
    number = len(classifier.classes.names)
    chances = dict.fromkeys(range(number), 1 / number)
    entries = [image("a", chances, num_classes=number, inputs=images[place]) for place in (0, 1)]
    found = [*similar.beside([Entry(), *entries], classifier, 3)]
    # What cannot be read has none.
    assert [len(one.similar) for one in found] == [0, number, number]
    features = np.asarray(jax.jit(classifier.features())(images)).astype(np.float64)
    for place, entry in zip((0, 1), found[1:], strict=True):
        # The image itself is the nearest of its class.
        first = entry.similar[train.labels[place]][0]
        assert (first.name, round(first.cosine, 5)) == (f"training image {place}", 1)
        assert (first.thumbnail.width, first.thumbnail.is_small) == (images.shape[2], True)
        for label, ones in enumerate(entry.similar):
            places = [int(re.fullmatch(r"training image (\d+)", one.name)[1]) for one in ones]
            assert {*train.labels[places].tolist()} == {label}
            _, cosines = nearest(features, train.labels, features[place], label, 3)
            # Of another batch; nearly equal examples may change places.
            np.testing.assert_allclose([one.cosine for one in ones], cosines, atol=1e-3)
