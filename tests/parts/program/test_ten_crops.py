"""The evaluation by ten crops: how they are cut, averaged, and used by runs and train.evaluate."""

import io
import json
import shutil

import jax
import numpy as np
import pytest
from PIL import Image
from scipy import special

from tests.parts.program.forked import start_each
from tests.parts.program.sealed import unsealed
from tests.parts.program.training.test_objectives import make_objective
from train import experiment
from train.data import photographs, ten_crops
from train.data.framing import PlainFraming
from train.data.image_reader import ImageReader
from train.data.images import UnreadableImageError
from train.data.own.image_changes import OwnFraming
from train.data.pipeline import Pipeline
from train.data.records import Records, Split
from train.models.heads import TwoLogits
from train.prediction import trained
from train.training import objectives
from train.training import ten_crops as in_steps
from train.training.losses import LOSSES

# An image whose pixels say where they are: red grows to the right, green downwards.
ACROSS, DOWN = 60, 44


def of_places(width=ACROSS, height=DOWN):
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(width), np.arange(height)[:, None]
    return pixels


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("decoding", ["exact", "fast"])
def test_photographs_have_the_crops_of_torchvision(decoding):
    """TenCrop(224) after Resize(256); a PNG file, so that both packages decode the same."""
    pixels = np.kron(of_places(64, 48), np.ones((6, 6, 1), np.uint8))
    reader = photographs.reader_of(decoding)
    image = Image.fromarray(pixels).resize((341, 256), Image.Resampling.BILINEAR)
    found = reader.corners_and_middle(encoded(pixels), "a")
    resized = np.asarray(image).astype(int)
    # The even one of the halves: round((341 - 224) / 2) of 58.5.
    places = [(0, 0), (0, 117), (32, 0), (32, 117), (16, 58)]
    assert found.shape == (5, 224, 224, 3)
    for crop, (top, left) in zip(found, places, strict=True):
        expected = resized[top : top + 224, left : left + 224]
        # `fast` may be a step of 255 apart.
        assert abs(crop - expected).max() <= (decoding == "fast")
    middle = reader.for_evaluation(encoded(pixels), "a").astype(int)
    assert abs(found[-1] - middle).max() <= (decoding == "fast")


def test_own_images_are_cut_as_for_training_and_the_last_is_the_middle():
    reader = ImageReader(OwnFraming((16, 16, 3)))
    found = reader.corners_and_middle(encoded(of_places()), "a").astype(int)
    # The shorter side at 8/7 of 16: a pixel of a crop is 44 * 7 / 128 = 2.4 of the image, and a
    # crop has 38.5 of its columns and rows.
    side = 44 * 7 / 8
    middle = ((ACROSS - side) / 2, (DOWN - side) / 2)
    starts = [(0, 0), (ACROSS - side, 0), (0, DOWN - side), (ACROSS - side, DOWN - side), middle]
    for crop, (left, top) in zip(found, starts, strict=True):
        # Means of a linear ramp: a step of rounding, and the filter at the edges of the image.
        assert crop[..., 0].mean() == pytest.approx(left + side / 2 - 0.5, abs=0.6)
        assert crop[..., 1].mean() == pytest.approx(top + side / 2 - 0.5, abs=0.6)
    np.testing.assert_array_equal(found[-1], reader.for_evaluation(encoded(of_places()), "a"))


@pytest.mark.parametrize("framing", [OwnFraming, PlainFraming])
def test_an_image_of_the_size_is_padded_with_zeros(framing):
    pixels = of_places(24, 16) + np.uint8(1)
    found = ImageReader(framing((16, 24, 3))).corners_and_middle(encoded(pixels), "a")
    # Two rows and three columns on each side.
    padded = np.pad(pixels, ((2, 2), (3, 3), (0, 0)))
    corners = [padded[top : top + 16, left : left + 24] for top in (0, 4) for left in (0, 6)]
    np.testing.assert_array_equal(found, [*corners, pixels])
    np.testing.assert_array_equal(ten_crops.of_padded(pixels[None]), found[None])


def test_a_batch_has_the_crops_and_leaves_out_unreadable_images():
    reader = ImageReader(OwnFraming((8, 8, 3)))
    files = [encoded(of_places()), b"no image", encoded(of_places(9, 9))]
    source = [{"image": one, "file_name": str(index)} for index, one in enumerate(files)]
    split = Split(Records(source, np.arange(3), "here", reader), np.arange(3, dtype=np.int32))
    skipped = []
    (batch,) = Pipeline(4, 0, on_skipped=skipped.append).evaluation(split, ten_crops=True)
    assert batch["images"].shape == (4, 5, 8, 8, 3)
    assert batch["mask"].tolist() == [True, False, True, False]
    np.testing.assert_array_equal(batch["images"][2], reader.corners_and_middle(files[2], "2"))
    assert [one.image for one in skipped] == ["1"]
    with pytest.raises(UnreadableImageError, match="1 of here"):
        list(Pipeline(4, 0).evaluation(split, ten_crops=True))


def test_the_step_mirrors_each_crop_of_an_image(rng):
    crops = rng.integers(256, size=(3, 5, 4, 6, 3), dtype=np.uint8)
    found = np.asarray(in_steps.mirrored_too(crops)).reshape(3, 10, 4, 6, 3)
    np.testing.assert_array_equal(found[:, :5], crops)
    np.testing.assert_array_equal(found[:, 5:], crops[..., ::-1, :])
    # What belongs to an image is averaged, for either kind of outputs.
    logits = rng.normal(size=(30, 7)).astype(np.float32)
    both = in_steps.averaged(TwoLogits(logits, -logits), 3, objectives.mean_of_logits)
    expected = logits.reshape(3, 10, 7).mean(axis=1)
    # Sums of ten numbers of 32 bits.
    np.testing.assert_allclose(both.logits, expected, atol=1e-6)
    np.testing.assert_allclose(both.proposal_logits, -expected, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_the_softmax_average_it_and_others_average_scores(name, rng):
    logits = rng.normal(size=(4, 10, 6)).astype(np.float32)
    objective = make_objective(name)
    found = objective.average(logits)
    if LOSSES[name].of_softmax:
        views = TwoLogits(logits, logits) if LOSSES[name].head == "two_heads" else logits
        expected = np.asarray(objective.scores(views)).mean(axis=1)
        # Two exponentials and a logarithm of 32 bits.
        np.testing.assert_allclose(objective.scores(found), expected, rtol=1e-5)
    else:
        np.testing.assert_allclose(found, logits.mean(axis=1), atol=1e-6)
    if "hinge" in name or name in ("noised_balanced", "average_k", "expected_imbalanced"):
        assert not LOSSES[name].of_softmax
    if "cross_entropy" in name and name not in (
        "relaxed_top_k_cross_entropy",
        "binary_cross_entropy",
    ):
        assert LOSSES[name].of_softmax


def test_the_mean_softmax_keeps_masked_classes_and_tiny_probabilities():
    logits = np.array([[[0, -150, -200, -np.inf]] * 2], np.float32)
    found = np.asarray(objectives.logits_of_mean_softmax(logits))
    # Both probabilities are 0 in 32 bits.
    assert found[0].tolist() == [0, -150, -200, -np.inf]


def test_devices_that_split_the_classes_average_the_same(rng):
    logits = rng.normal(scale=5, size=(3, 10, 8)).astype(np.float32)
    expected = special.logsumexp(special.log_softmax(logits, axis=-1), axis=1) - np.log(10)
    split = logits.reshape(3, 10, 4, 2).transpose(2, 0, 1, 3)
    found = jax.vmap(
        lambda own: objectives.logits_of_mean_softmax(own, class_axis_name="classes"),
        axis_name="classes",
    )(split)
    # A few roundings of numbers up to 30.
    np.testing.assert_allclose(
        found.transpose(1, 0, 2).reshape(3, 8), expected, rtol=1e-5, atol=1e-5
    )


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    """The finished run as it ends with ten crops; it is trained by the middle in any case."""
    copied = shutil.copytree(finished_run, tmp_path_factory.mktemp("ten_crops") / "run")
    config = unsealed(copied / "config.json")
    config["eval"]["crops"] = 10
    (copied / "config.json").write_text(json.dumps(config))
    (copied / "results.json").unlink()
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(config, copied)
    return copied


@pytest.mark.usefixtures("standard_promotion")
def test_a_run_and_its_evaluation_have_the_mean_over_ten_crops(workdir, finished_run):
    classifier = trained.load(workdir)
    images = classifier.load_dataset().test.images
    crops = ten_crops.of_padded(images)
    logits = jax.jit(classifier.logits())
    # A hinge: the mean of the scores.
    expected = np.mean(
        [
            logits(np.ascontiguousarray(one))
            for crop in crops.swapaxes(0, 1)
            for one in (crop, crop[:, :, ::-1])
        ],
        axis=0,
    )
    found = classifier.predict("test", with_logits=True, crops=10)
    # Networks in another batch round differently.
    np.testing.assert_allclose(found.scores, expected, rtol=1e-3, atol=1e-3)
    hits = (found.ranks == 0).mean()
    assert classifier.results["test"]["top_1_accuracy"] == pytest.approx(hits, abs=1e-6)
    # The middle alone, as train.predict looks at images.
    earlier = trained.load(finished_run)
    np.testing.assert_array_equal(classifier.predict("test").ranks, earlier.predict("test").ranks)
    assert (found.ranks != earlier.predict("test").ranks).any()

    one = workdir.with_name("one.json")
    ended = start_each(
        "train.evaluate",
        [
            [f"--workdir={workdir}", f"--scores={workdir}/test.npz"],
            [f"--workdir={workdir}", "--crops=1", f"--out={one}"],
        ],
        {},
    )
    for each in ended:
        assert (each.returncode, each.stderr) == (0, "")
    report = unsealed(workdir / "evaluation_test.json")
    assert report["crops"] == 10
    with np.load(workdir / "test.npz") as written:
        np.testing.assert_allclose(written["scores"], special.softmax(expected, -1), atol=1e-3)
    assert "crops" not in unsealed(one)
