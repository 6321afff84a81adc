"""From files to sets: the rule that is chosen, and batches that keep the order and the memory."""

import shutil

import jax
import numpy as np
import pytest
from PIL import Image

from topk_jax import sets
from train.prediction import image_sets, inference, trained
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import Unreadable
from train.prediction.image_sets import ImageSet


@pytest.fixture(scope="module")
def classifier(finished_run, tmp_path_factory):
    return trained.load(shutil.copytree(finished_run, tmp_path_factory.mktemp("sets") / "run"))


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).integers(0, 256, (150, 8, 8, 1), np.uint8)


@pytest.fixture(scope="module")
def paths(pictures, tmp_path_factory):
    """Files of all pictures, and among them two that cannot be read."""
    folder = tmp_path_factory.mktemp("images")
    found = []
    for index, pixels in enumerate(pictures):
        if index in (1, 70):
            found.append(folder / f"{index}.bad.png")
            found[-1].touch()
        found.append(folder / f"{index}.png")
        Image.fromarray(pixels[..., 0]).save(found[-1])
    return found


@pytest.mark.parametrize("threshold", [None, 0.1, 2.0])
def test_sets_are_those_of_the_scores_in_the_order_of_the_files(
    classifier, pictures, paths, threshold, monkeypatch
):
    shapes = []
    make = inference.make

    def recording(*arguments):
        infer = make(*arguments)
        return lambda images: (shapes.append(images.shape), infer(images))[1]

    monkeypatch.setattr(inference, "make", recording)
    rule = (
        CalibratedRule("top_k", 3, None)
        if threshold is None
        else CalibratedRule("average_k", 3.0, threshold)
    )
    found = list(image_sets.make_sets(classifier, rule, paths, thumbnails=False))
    assert [entry.path for entry in found] == paths
    assert [isinstance(entry, Unreadable) for entry in found] == [
        "bad" in path.name for path in paths
    ]
    # It is traced, and so compiled, once.
    assert shapes == [(64, 8, 8, 1)]
    scores = np.asarray(jax.jit(classifier.scores())(pictures))
    chosen = np.asarray(
        sets.top_k_set(scores, k=3) if threshold is None else sets.threshold_set(scores, threshold)
    )
    read = [entry for entry in found if isinstance(entry, ImageSet)]
    for entry, row, members in zip(read, scores, chosen, strict=True):
        assert sorted(entry.classes) == np.flatnonzero(members).tolist()
        assert list(entry.probabilities) == sorted(entry.probabilities, reverse=True)
        # Another size of batches may round otherwise.
        np.testing.assert_allclose(entry.probabilities, row[list(entry.classes)], rtol=1e-5)
        assert entry.likeliest == row.argmax()
        assert entry.highest == pytest.approx(row.max(), rel=1e-5)
        assert entry.thumbnail is None


def test_the_first_of_equally_likely_classes_comes_first(classifier, paths, monkeypatch):
    probabilities = np.array([[0.1, 0.3, 0.1, 0.3, 0.2]], np.float32)
    chosen = np.array([[True, True, True, True, False]])
    monkeypatch.setattr(
        inference, "make", lambda *_arguments: lambda _images: (probabilities, chosen)
    )
    rule = CalibratedRule("top_k", 4, None)
    (entry,) = image_sets.make_sets(classifier, rule, paths[:1], thumbnails=False)
    assert (entry.classes, entry.likeliest) == ((1, 3, 0, 2), 1)
