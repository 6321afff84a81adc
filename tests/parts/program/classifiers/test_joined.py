"""A head that was trained on features, and the network that made them: one classifier of images."""

import dataclasses
import json
import shutil

import jax
import jax.export
import numpy as np
import pytest
import safetensors.numpy

from configs import features as recipe
from tests.parts.program.data import pictures
from tests.parts.program.prediction import small_network
from train.classifiers import fitted, joined, labelled, loading, network, trained
from train.classifiers.classifier import check_takes
from train.classifiers.flags import ChosenClassifier
from train.evaluating import training_examples
from train.foundation.errors import UserError
from train.package import program
from train.prediction import embedding
from train.reports import rules
from train.run import experiment, run_folder

pytestmark = pytest.mark.usefixtures("standard_promotion")
CLASSES = ("china", "flower")
EACH = 60
# Float32 rounding: the head gets features of a batch of another size.
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        small_network.shrink(patch.setitem)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photographs of two sizes; weights; features; and a run on these."""
    root = tmp_path_factory.mktemp("joined")
    for size in (25, 70):
        paths = [f"{name}/{i}.jpg" for name in CLASSES for i in range(size % 2, EACH, 2)]
        pictures.write(root / "photos", paths, size=(size, 40))
    safetensors.numpy.save_file(small_network.weights()[1], root / "w.safetensors")
    used = network.of_weights(root / "w.safetensors", image_size=32)
    embedding.embed(used, embedding.find(root / "photos"), root / "a.npz")
    train_head(root / "a.npz", root / "run")
    return root


def train_head(features, workdir):
    config = recipe.get_config()
    config.dataset.path = str(features)
    config.dataset.batch_size = 24
    config.num_epochs = 2
    config.eval.ks = (1, 2)
    config.select_by = "top_1_accuracy"
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(json.loads(config.to_json()), workdir)


@pytest.fixture
def run(folder, tmp_path):
    """A copy of the run, to be changed."""
    return shutil.copytree(folder / "run", tmp_path / "run")


def change(run, **of_network):
    """Changes what a run knows of its network; without arguments, it knows nothing."""
    data = json.loads((run / run_folder.DATA).read_text())
    data["embedded_by"] = {**data["embedded_by"], **of_network} if of_network else None
    (run / run_folder.DATA).write_text(json.dumps(data))


def load(run, **given):
    return loading.load(ChosenClassifier(workdir=str(run), **given), takes_images=True)


def photographs(folder, split, name="a.npz"):
    """The paths of the photographs of a split, and the features of their rows."""
    with np.load(folder / name) as arrays:
        rows = np.flatnonzero(arrays["split"] == split)
        return [folder / "photos" / arrays["names"][row] for row in rows], arrays["features"][rows]


def pixels_of(classifier, paths):
    read = classifier.reader.for_evaluation
    return np.stack([read(path.read_bytes(), path.name) for path in paths])


@pytest.mark.parametrize("score", ["energy", "neighbors"])
def test_images_have_the_scores_and_the_limits_of_their_features(folder, run, score):
    both, alone = load(run), trained.load(run)
    paths, features = photographs(folder, "test")
    text = f"coverage=0.7, new_score={score}"
    of_images, of_rows = (fitted.find(one, rules.parse(text)) for one in (both, alone))
    assert of_images.to_json() == of_rows.to_json()
    pixels = pixels_of(both, paths)
    outliers = alone.outliers(score)(features)
    np.testing.assert_allclose(both.outliers(score)(pixels), outliers, rtol=1e-3)
    described = program.describe(both, of_images)
    assert described["images"]["shape"] == ["n", 32, 32, 3]
    assert described["images"]["normalization"]["mean"] == list(both.network.spec.mean)
    assert described["network"] == "resnet50, then linear on its features"


@pytest.fixture(scope="module")
def of_ours(folder, finished_run):
    """A run on features that a run on digits has made."""
    used = network.of_run(finished_run)
    embedding.embed(used, embedding.find(folder / "photos"), folder / "b.npz")
    train_head(folder / "b.npz", folder / "of_ours")
    return folder / "of_ours"


def test_a_run_of_ours_can_have_made_the_features(folder, of_ours, finished_run, tmp_path):
    both = load(of_ours)
    assert both.shape == (8, 8, 1)
    (path, *_), features = photographs(folder, "val", "b.npz")
    expected = both.run.scores()(features[:1])
    np.testing.assert_allclose(both.scores()(pixels_of(both, [path])), expected, **CLOSE)
    moved = shutil.copytree(finished_run, tmp_path / "moved")
    assert load(of_ours, weights=str(moved)).network.path == moved
    with pytest.raises(UserError, match="other weights than the network that made the features"):
        load(folder / "run", weights=str(moved))


def test_new_photographs_are_grouped_and_compared_with_training_rows(folder, tmp_path, caplog):
    photos, out = folder / "photos", tmp_path / "a.npz"
    used = network.of_weights(folder / "w.safetensors", image_size=32)
    parts = {"validation_fraction": 0.3, "test_fraction": 0.3, "group": r"([^/]*/\d)\d*[.]"}
    embedding.embed(used, embedding.find(photos, **parts), out)
    train_head(out, tmp_path / "run")
    both = load(tmp_path / "run")
    # Of images by the pattern, and of features that were embedded without groups.
    for one, flag, path in ((both, "images", photos), (both.run, "features", folder / "a.npz")):
        new, _ = labelled.find(flag, path, one)
        assert new.groups.tolist() == [name[: name.index("/") + 2] for name in new.names]
    caplog.clear()
    new, _ = labelled.find("images", photos, load(folder / "run"))
    training_examples.warn(load(folder / "run"), new, photos)
    number = len(photographs(folder, "train")[0])
    assert f"{number} of {2 * EACH} images have the name of a training row" in caplog.text


def test_weights_that_moved_are_named_and_checked(folder, run, tmp_path):
    change(run, path=str(tmp_path / "gone"))
    # It still takes features.
    alone = load(run)
    with pytest.raises(UserError, match=r"--features is needed, not --images: .*--weights=FILE"):
        check_takes(alone, "images")
    assert load(run, weights=str(folder / "w.safetensors")).shape == (32, 32, 3)
    with pytest.raises(UserError, match="--image_size"):
        load(run, weights=f"{folder}/w.safetensors", image_size=48)


def test_a_run_that_does_not_know_its_network_is_told_it(folder, run, caplog):
    change(run)
    alone = load(run)
    weights = str(folder / "w.safetensors")
    both = load(run, weights=weights, image_size=32)
    assert "--weights is not checked" in caplog.text
    paths, features = photographs(folder, "val")
    expected = alone.scores()(features[:1])
    np.testing.assert_allclose(both.scores()(pixels_of(both, paths[:1])), expected, **CLOSE)
    alone.parts.data.facts = dataclasses.replace(alone.parts.data.facts, image_shape=(99,))
    with pytest.raises(UserError, match=r"of a network with 64 features; the run in .* is on 99"):
        joined.join(alone, ChosenClassifier(weights=weights))
