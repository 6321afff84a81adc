"""A head that was trained on features, and the network that made them: one classifier of images."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest
import safetensors.numpy
import sklearn.datasets
from PIL import Image

from configs import features as recipe
from tests.parts.program.prediction import small_network
from tests.parts.program.sealed import unsealed
from train import experiment
from train.foundation.errors import UserError
from train.prediction import (
    calibrated_rule,
    classifiers,
    exported_program,
    inference,
    labelled_data,
    row_sets,
    trained,
)
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.classifier_flags import ChosenClassifier
from train.prediction.embedding import found, network
from train.prediction.embedding.embedding import embed
from train.prediction.evaluating import new_data, training_examples
from train.prediction.evaluating.measures import Measures
from train.prediction.evaluating.new_data_flags import Asked
from train.prediction.rule_flags import ChosenRule
from train.workdir import run_files

pytestmark = pytest.mark.usefixtures("standard_promotion")
CLASSES = ("china", "flower")
EACH = 60
TOP = CalibratedRule("top_k", 1.0, None)
# Float32 rounding: the head gets features of a batch of another size.
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        small_network.shrink(patch.setitem)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Parts of two photographs, of many sizes; weights; features; and a run on these."""
    root = tmp_path_factory.mktemp("joined")
    random = np.random.default_rng(0)
    samples = Path(sklearn.datasets.__file__).parent / "images"
    for name in CLASSES:
        (root / "photos" / name).mkdir(parents=True)
        with Image.open(samples / f"{name}.jpg") as image:
            for index in range(EACH):
                width, height = random.integers(20, 90, 2).tolist()
                left, top = random.integers(0, (640 - width, 427 - height)).tolist()
                part = image.crop((left, top, left + width, top + height))
                part.save(root / "photos" / name / f"{index}.jpg")
    safetensors.numpy.save_file(small_network.weights()[1], root / "w.safetensors")
    used = network.of_weights(root / "w.safetensors", image_size=32)
    embed(used, images(root / "photos"), root / "a.npz")
    train_head(root / "a.npz", root / "run")
    return root


def images(path, **fields):
    return found.find(found.configuration(path, **fields))


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


def load(run, **flags):
    return classifiers.load(ChosenClassifier(features_run=str(run), **flags))


def photographs(folder, split):
    """The paths of the photographs of a split, and the features of their rows."""
    with np.load(folder / "a.npz") as arrays:
        rows = np.flatnonzero(arrays["split"] == split)
        return [folder / "photos" / arrays["names"][row] for row in rows], arrays["features"][rows]


def test_the_program_takes_images(folder):
    joined = load(folder / "run")
    paths, features = photographs(folder, "test")
    program = jax.export.deserialize(bytearray(exported_program.serialize(joined, TOP)))
    reader = joined.spec.image_reader
    pixels = np.stack([reader.for_evaluation(path.read_bytes(), path.name) for path in paths])
    probabilities, chosen = program.call(pixels)
    run = trained.load(folder / "run")
    np.testing.assert_allclose(probabilities, run.scores()(features), **CLOSE)
    assert (np.asarray(chosen).sum(axis=1) == 1).all()
    described = exported_program.describe(joined, TOP)
    assert described["images"]["shape"] == ["n", 32, 32, 3]
    assert described["images"]["steps"][-1]["to"] == "middle_part"
    assert described["images"]["normalization"]["mean"] == list(joined.network.spec.mean)
    assert described["data_set"] == "features"
    assert described["network"] == "resnet50, then linear on its features"
    assert exported_program.script(joined) is not None


@pytest.mark.parametrize("score", ["energy", "neighbors"])
def test_none_of_these_is_said_of_images(folder, run, score):
    chosen = ChosenRule("coverage", 0.7, new_score=score)
    joined, alone = load(run), trained.load(run)
    paths, features = photographs(folder, "test")
    reader = joined.spec.image_reader
    pixels = np.stack([reader.for_evaluation(path.read_bytes(), path.name) for path in paths])
    of_images = calibrated_rule.calibrate(joined, chosen)
    of_rows = calibrated_rule.calibrate(alone, chosen)
    assert of_images.new.limits == of_rows.new.limits
    np.testing.assert_allclose(
        of_images.new.score.of_inputs(pixels), of_rows.new.score.of_inputs(features), rtol=1e-3
    )
    outputs = jax.jit(inference.make(joined, of_images))(pixels)
    assert len(outputs) == 3


@pytest.fixture(scope="module")
def of_ours(folder, finished_run):
    """A run on features that a run on digits has made."""
    features = folder / "b.npz"
    used = network.of_run(finished_run)
    embed(used, images(folder / "photos"), features)
    train_head(features, folder / "of_ours")
    return folder / "of_ours"


def test_a_run_of_ours_can_have_made_the_features(folder, of_ours, finished_run, tmp_path):
    joined = load(of_ours)
    assert joined.image_shape == (8, 8, 1)
    with np.load(folder / "b.npz") as arrays:
        path, features = folder / "photos" / arrays["names"][5], arrays["features"][5:6]
    pixels = joined.spec.image_reader.for_evaluation(path.read_bytes(), "a")
    expected = joined.of_run.scores()(features)
    np.testing.assert_allclose(joined.scores()(pixels[None]), expected, **CLOSE)
    moved = shutil.copytree(finished_run, tmp_path / "moved")
    assert load(of_ours, weights=str(moved)).network.path == moved
    with pytest.raises(UserError, match="other weights than the network that made the features"):
        load(folder / "run", weights=str(moved))


def test_new_photographs_are_in_groups_as_those_that_were_embedded(folder, tmp_path):
    grammar = r"([^/]*/\d)\d*[.]"
    photos, out = folder / "photos", tmp_path / "a.npz"
    used = network.of_weights(folder / "w.safetensors", image_size=32)
    parts = {"validation_fraction": 0.3, "test_fraction": 0.3}
    embed(used, images(photos, **parts), out)
    # Those without the pattern are not taken for them.
    embed(used, images(photos, **parts, group=grammar), out)
    train_head(out, tmp_path / "run")
    expected = {
        path.relative_to(photos).as_posix(): f"{path.parent.name}/{path.name[0]}"
        for path in photos.rglob("*.jpg")
    }

    def groups(classifier, flag, path, group=None):
        asked = Asked(
            flag=flag,
            path=path,
            group=group,
            measures=Measures(),
            taxonomy=None,
            is_half=False,
            thresholds=None,
            calibration_out=None,
        )
        examples = new_data.find(classifier, asked).examples
        return dict(zip(examples.names.tolist(), examples.groups.tolist(), strict=True))

    joined = load(tmp_path / "run")
    assert groups(joined, "images", photos) == expected
    by_class = groups(joined, "images", photos, "(china|flower)/")
    assert set(by_class.values()) == {"china", "flower"}
    # Features of new photographs, embedded without groups.
    assert groups(joined.of_run, "features", folder / "a.npz") == expected


def test_photographs_of_training_rows_are_told(folder, caplog):
    joined = load(folder / "run")
    expected = labelled_data.Expected(CLASSES, "images", (32, 32, 3), joined.spec.image_reader)
    training_examples.warn_of_training_rows(
        joined.of_run, labelled_data.find("images", folder / "photos", expected)
    )
    (warning,) = caplog.messages
    number = len(photographs(folder, "train")[0])
    assert f"{number} of {2 * EACH} images have the name of a training row" in warning


def test_weights_that_moved_are_named_and_checked(folder, run, tmp_path):
    data = unsealed(run / run_files.DATA)
    data["embedded_by"]["path"] = str(tmp_path / "gone")
    (run / run_files.DATA).write_bytes(json.dumps(data).encode())
    with pytest.raises(UserError, match="gone"):
        classifiers.load(ChosenClassifier(workdir=str(run)), takes_images=True)
    assert load(run, weights=str(folder / "w.safetensors")).image_shape == (32, 32, 3)
    with pytest.raises(UserError, match="--image_size"):
        load(run, weights=f"{folder}/w.safetensors", image_size=48)


def test_a_run_that_does_not_know_its_network_is_told_it(folder, run, tmp_path, caplog):
    data = unsealed(run / run_files.DATA)
    del data["embedded_by"]
    (run / run_files.DATA).write_bytes(json.dumps(data).encode())
    weights = str(folder / "w.safetensors")
    with pytest.raises(UserError, match="--weights"):
        load(run)
    # It still takes features.
    alone = classifiers.load(ChosenClassifier(workdir=str(run)), takes_images=True)
    row_sets.read(str(folder / "a.npz")).check(alone)
    with pytest.raises(UserError, match="--features"):
        alone.check_takes("images")
    joined = load(run, weights=weights, image_size=32)
    assert "--weights is not checked" in caplog.text
    paths, features = photographs(folder, "val")
    pixels = joined.spec.image_reader.for_evaluation(paths[0].read_bytes(), "a")
    expected = alone.scores()(features[:1])
    np.testing.assert_allclose(joined.scores()(pixels[None]), expected, **CLOSE)
    wide = dataclasses.replace(alone.assembly.data.facts, image_shape=(99,))
    alone.assembly.data.facts = wide
    with pytest.raises(UserError, match=r"of a network with 64 features; the run in .* is on 99"):
        classifiers.joined.join(alone, ChosenClassifier(weights=weights))


def test_features_of_another_network_are_refused(folder, of_ours):
    rows = row_sets.read(str(folder / "a.npz"))
    rows.check(trained.load(folder / "run"))
    run = trained.load(of_ours)
    known = run.assembly.data.facts.embedded_by
    other = dataclasses.replace(run.assembly.data.facts, image_shape=(64,), embedded_by=known)
    run.assembly.data.facts = other
    with pytest.raises(UserError, match=r"of resnet50 with other weights than the small_cnn that"):
        rows.check(run)
