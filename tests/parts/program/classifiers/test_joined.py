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
from train.prediction import embedding, exported_program
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


def load(run, **given):
    return loading.load(ChosenClassifier(workdir=str(run), **given), takes_images=True)


def photographs(folder, split):
    """The paths of the photographs of a split, and the features of their rows."""
    with np.load(folder / "a.npz") as arrays:
        rows = np.flatnonzero(arrays["split"] == split)
        return [folder / "photos" / arrays["names"][row] for row in rows], arrays["features"][rows]


def pixels_of(classifier, paths):
    return np.stack(
        [classifier.reader.for_evaluation(path.read_bytes(), path.name) for path in paths]
    )


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
    described = exported_program.describe(both, of_images)
    assert described["images"]["shape"] == ["n", 32, 32, 3]
    assert described["images"]["normalization"]["mean"] == list(both.network.spec.mean)
    assert described["network"] == "resnet50, then linear on its features"


@pytest.fixture(scope="module")
def of_ours(folder, finished_run):
    """A run on features that a run on digits has made."""
    features = folder / "b.npz"
    used = network.of_run(finished_run)
    embedding.embed(used, embedding.find(folder / "photos"), features)
    train_head(features, folder / "of_ours")
    return folder / "of_ours"


def test_a_run_of_ours_can_have_made_the_features(folder, of_ours, finished_run, tmp_path):
    both = load(of_ours)
    assert both.shape == (8, 8, 1)
    with np.load(folder / "b.npz") as arrays:
        path, features = folder / "photos" / arrays["names"][5], arrays["features"][5:6]
    expected = both.run.scores()(features)
    np.testing.assert_allclose(both.scores()(pixels_of(both, [path])), expected, **CLOSE)
    moved = shutil.copytree(finished_run, tmp_path / "moved")
    assert load(of_ours, weights=str(moved)).network.path == moved
    with pytest.raises(UserError, match="other weights than the network that made the features"):
        load(folder / "run", weights=str(moved))


def test_new_photographs_are_in_groups_as_those_that_were_embedded(folder, tmp_path):
    grammar = r"([^/]*/\d)\d*[.]"
    photos, out = folder / "photos", tmp_path / "a.npz"
    used = network.of_weights(folder / "w.safetensors", image_size=32)
    parts = {"validation_fraction": 0.3, "test_fraction": 0.3}
    embedding.embed(used, embedding.find(photos, **parts), out)
    # Those without the pattern are not taken for them.
    embedding.embed(used, embedding.find(photos, **parts, group=grammar), out)
    train_head(out, tmp_path / "run")
    expected = {
        path.relative_to(photos).as_posix(): f"{path.parent.name}/{path.name[0]}"
        for path in photos.rglob("*.jpg")
    }

    def groups(classifier, flag, path):
        examples, _ = labelled.find(flag, path, classifier)
        return dict(zip(examples.names.tolist(), examples.groups.tolist(), strict=True))

    both = load(tmp_path / "run")
    assert groups(both, "images", photos) == expected
    # Features of new photographs, embedded without groups.
    assert groups(both.run, "features", folder / "a.npz") == expected


def test_photographs_of_training_rows_are_told(folder, caplog):
    both = load(folder / "run")
    new, _ = labelled.find("images", folder / "photos", both)
    training_examples.warn(both, new, folder / "photos")
    (warning,) = caplog.messages
    number = len(photographs(folder, "train")[0])
    assert f"{number} of {2 * EACH} images have the name of a training row" in warning


def test_weights_that_moved_are_named_and_checked(folder, run, tmp_path):
    data = json.loads((run / run_folder.DATA).read_text())
    data["embedded_by"]["path"] = str(tmp_path / "gone")
    (run / run_folder.DATA).write_bytes(json.dumps(data).encode())
    with pytest.raises(UserError, match="gone"):
        load(run)
    assert load(run, weights=str(folder / "w.safetensors")).shape == (32, 32, 3)
    with pytest.raises(UserError, match="--image_size"):
        load(run, weights=f"{folder}/w.safetensors", image_size=48)


def test_a_run_that_does_not_know_its_network_is_told_it(folder, run, tmp_path, caplog):
    data = json.loads((run / run_folder.DATA).read_text())
    del data["embedded_by"]
    (run / run_folder.DATA).write_bytes(json.dumps(data).encode())
    # It still takes features.
    alone = load(run)
    with pytest.raises(UserError, match=r"--features is needed, not --images: .*--weights=FILE"):
        check_takes(alone, "images")
    weights = str(folder / "w.safetensors")
    both = load(run, weights=weights, image_size=32)
    assert "--weights is not checked" in caplog.text
    paths, features = photographs(folder, "val")
    expected = alone.scores()(features[:1])
    np.testing.assert_allclose(both.scores()(pixels_of(both, paths[:1])), expected, **CLOSE)
    wide = dataclasses.replace(alone.parts.data.facts, image_shape=(99,))
    alone.parts.data.facts = wide
    with pytest.raises(UserError, match=r"of a network with 64 features; the run in .* is on 99"):
        joined.join(alone, ChosenClassifier(weights=weights))
