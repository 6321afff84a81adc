"""Synthetic data sets: images of latents, and the splits that are drawn in memory."""

import dataclasses
import json

import numpy as np
import pytest

from configs import synthetic_latents, synthetic_species
from tests.parts.program.data.specs import dataset_spec
from train import data
from train.configuration.parsing import parse
from train.data import splits
from train.data.synthetic import LAWS, Rendering
from train.data.synthetic_laws import LATENT_SIZE, Gaussian
from train.foundation.errors import UserError

SMALL = {"num_classes": 7, "num_genera": 3, "long_tail_exponent": 2.0}
SIZES = {"num_train": 300, "num_validation": 40, "num_test": 50}


def images_spec(**changes):
    return dataset_spec({**synthetic_species.get_config().dataset.to_dict(), **changes})


def latents_spec(**changes):
    return dataset_spec({**synthetic_latents.get_config().dataset.to_dict(), **changes})


def rows(split):
    return split.array[split.places]


def small_latents_spec(**changes):
    return latents_spec(**{**SMALL, **SIZES, "balanced_per_class": 4, **changes})


@pytest.mark.parametrize(
    ("parameters", "largest_error"),
    # Rounding errs by √(1/12) grey levels a coordinate, over some 220 a unit: 0.0013.
    [({}, 0.002), ({"ambiguity": 0.01}, 0.1), ({"ambiguity": 100.0, **SMALL}, 0.002)],
)
def test_the_latent_is_recovered_from_the_image(parameters, largest_error):
    law = Gaussian(**parameters)
    rendering = Rendering(law)
    latents = law.sample("test", 1000).latents
    images = rendering.images(latents)
    assert images.shape == (1000, 32, 32, 3)
    assert images.dtype == np.uint8
    errors = rendering.latents(images) - latents
    assert np.sqrt((errors**2).mean()) < largest_error
    # The patterns leave room: hardly a pixel is cut off.
    assert ((images == 0) | (images == 255)).mean() < 1e-4
    # And they fill the grey levels.
    assert images.min() < 40
    assert images.max() > 215


def test_a_rare_class_far_from_the_others_is_not_cut_off():
    """It adds little to the deviation that the grey levels are measured in."""
    law = Gaussian(num_classes=2, num_genera=1, ambiguity=0.01)
    labels = np.arange(400) % 2
    latents = law.means[labels] + np.random.default_rng(0).normal(size=(400, LATENT_SIZE))
    rendering = Rendering(law)
    recovered = law.posterior(rendering.latents(rendering.images(latents)))
    # Two hundred deviations apart: neither is ever mistaken for the other.
    np.testing.assert_array_equal(recovered.argmax(axis=1), labels)


def test_channel_statistics_are_those_of_the_images():
    spec = images_spec(num_train=100, num_validation=5000, num_test=10)
    images = rows(spec.load(None).validation) / 255
    # 16 latent numbers of 5,000 images: a few thousandths of the deviation.
    np.testing.assert_allclose(images.mean(axis=(0, 1, 2)), spec.mean, atol=2e-3)
    np.testing.assert_allclose(images.std(axis=(0, 1, 2)), spec.std, rtol=0.02)


def test_images_do_not_change_between_versions():
    law = Gaussian()
    images = Rendering(law).images(law.sample("test", 1).latents)
    np.testing.assert_array_equal(images[0, 0, :2], [[128, 92, 148], [113, 77, 168]])


def test_a_data_set_of_images_has_the_examples_of_its_law(monkeypatch):
    # Several chunks a part, the last not full.
    monkeypatch.setattr("train.data.synthetic._CHUNK_SIZE", 16)
    spec = images_spec(**SMALL, **SIZES, data_seed=3)
    law = Gaussian(**SMALL, seed=3)
    dataset, rendering = spec.load(None), Rendering(law)
    for part, size in {"train": 300, "validation": 40, "test": 50}.items():
        split = dataset.splits[part]
        latents, labels = law.sample(part, size)
        order = splits.shuffled(part, np.arange(size))
        assert (rows(split).dtype, split.labels.dtype) == (np.uint8, np.int32)
        np.testing.assert_array_equal(rows(split), rendering.images(latents[order]))
        np.testing.assert_array_equal(split.labels, labels[order])
    assert dataset.balanced_test is None
    assert dataset.class_names == tuple(law.class_names)
    assert dataset.tree.paths[0] == ("genus_00", dataset.class_names[0])
    assert dataset.image_shape == spec.image_shape == (32, 32, 3)
    assert (spec.num_classes, spec.inputs, dataset.mean) == (7, "images", None)
    distribution = spec.true_distribution
    np.testing.assert_array_equal(
        distribution.posterior(rows(dataset.test)),
        law.posterior(rendering.latents(rows(dataset.test))),
    )


@pytest.mark.parametrize("generator", LAWS)
def test_a_data_set_of_latents_has_the_examples_of_its_law(generator):
    spec = small_latents_spec(generator=generator, data_seed=3)
    law = LAWS[generator](**SMALL, seed=3)
    dataset = spec.load(None)
    splits = {"train": 300, "validation": 40, "test": 50, "balanced_test": 28}
    for part, size in splits.items():
        split = dataset.splits[part]
        latents, labels = law.sample(part, size)
        assert (rows(split).dtype, split.labels.dtype) == (np.float32, np.int32)
        np.testing.assert_array_equal(rows(split), latents.astype(np.float32))
        np.testing.assert_array_equal(split.labels, labels)
    np.testing.assert_array_equal(np.bincount(dataset.balanced_test.labels), 4)
    assert dataset.class_names == tuple(law.class_names)
    assert dataset.image_shape == spec.image_shape == (LATENT_SIZE,)
    assert (spec.num_classes, spec.inputs, spec.example) == (7, "features", "row")
    train = law.sample("train", 300).latents
    # Latents are rounded to float32: by 1e-7 of some 5 deviations.
    np.testing.assert_allclose(dataset.mean, train.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(dataset.std, train.std(axis=0), rtol=1e-6)
    distribution = spec.true_distribution
    np.testing.assert_allclose(distribution.class_probabilities, np.exp(law.log_prior))
    np.testing.assert_array_equal(
        distribution.posterior(rows(dataset.test)), law.posterior(rows(dataset.test))
    )


@pytest.mark.parametrize("name", ["synthetic_species", "synthetic_latents"])
def test_training_labels_are_taken_for_others_of_their_genus(name):
    recipe = {"synthetic_species": synthetic_species, "synthetic_latents": synthetic_latents}[name]
    fields = parse(json.loads(recipe.get_config().to_json())).dataset
    fields = dataclasses.replace(fields, **SMALL, **SIZES, label_noise=0.5)
    spec = data.dataset_spec(fields)
    clean, noisy = spec.load(None).train, splits.load(spec, fields, seed=1).train
    assert (noisy.labels != clean.labels).any()
    genera = Gaussian(**SMALL).genera
    np.testing.assert_array_equal(genera[noisy.labels], genera[clean.labels])


def test_classes_need_a_training_example_each_unless_the_law_has_very_many():
    with pytest.raises(UserError, match=r"config\.dataset\.num_train must be at least 100, .* 99$"):
        latents_spec(num_train=99)
    with pytest.raises(UserError, match=r"config\.dataset\.num_train must be at least 100, .* 99$"):
        images_spec(num_train=99)
    assert len(latents_spec(generator="power_law", num_train=99).load(None).train) == 99


def test_more_genera_than_classes_are_refused():
    with pytest.raises(UserError, match=r"num_genera must be at most the 7 classes; got 8"):
        latents_spec(num_classes=7, num_genera=8)


@pytest.mark.parametrize("field", ["num_train", "balanced_per_class"])
def test_examples_for_which_no_machine_has_memory_are_refused(field):
    with pytest.raises(UserError, match=rf"^the examples \(.*config\.dataset\.{field}.* of memory"):
        latents_spec(**{field: 10**13}).load(None)
