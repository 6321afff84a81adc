"""Synthetic data sets: images of latents, and the splits that are drawn in memory."""

import numpy as np
import pytest

from configs import synthetic_latents, synthetic_species
from tests.parts.program.data.specs import dataset_spec
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
    errors = rendering.latents(images) - latents
    assert np.sqrt((errors**2).mean()) < largest_error
    if law == Gaussian():
        # Pinned, as the draws are; and the constants of the recipe, within four standard errors.
        np.testing.assert_array_equal(images[0, 0, :2], [[128, 92, 148], [113, 77, 168]])
        spec, values = images_spec(), images / 255
        np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), spec.mean, atol=8e-3)
        np.testing.assert_allclose(values.std(axis=(0, 1, 2)), spec.std, rtol=0.04)
    # The patterns leave room, so that hardly a pixel is cut off, and they fill the grey levels.
    assert ((images == 0) | (images == 255)).mean() < 1e-4
    assert np.ptp(images) > 175


def test_a_rare_class_far_from_the_others_is_not_cut_off():
    """It adds little to the deviation that the grey levels are measured in."""
    law = Gaussian(num_classes=2, num_genera=1, ambiguity=0.01)
    labels = np.arange(400) % 2
    latents = law.means[labels] + np.random.default_rng(0).normal(size=(400, LATENT_SIZE))
    rendering = Rendering(law)
    recovered = law.posterior(rendering.latents(rendering.images(latents)))
    # Two hundred deviations apart: neither is ever mistaken for the other.
    np.testing.assert_array_equal(recovered.argmax(axis=1), labels)


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
        np.testing.assert_array_equal(rows(split), rendering.images(latents[order]))
        np.testing.assert_array_equal(split.labels, labels[order])
    assert dataset.balanced_test is None
    assert dataset.class_names == tuple(law.class_names)
    assert dataset.tree.paths[0] == ("genus_00", dataset.class_names[0])
    found = spec.true_distribution.posterior(rows(dataset.test))
    expected = law.posterior(rendering.latents(rows(dataset.test)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("generator", LAWS)
def test_a_data_set_of_latents_has_the_examples_of_its_law(generator):
    fields = {**SMALL, **SIZES, "balanced_per_class": 4, "data_seed": 3}
    spec = latents_spec(generator=generator, **fields)
    law = LAWS[generator](**SMALL, seed=3)
    dataset = spec.load(None)
    splits = {"train": 300, "validation": 40, "test": 50, "balanced_test": 28}
    for part, size in splits.items():
        split = dataset.splits[part]
        latents, labels = law.sample(part, size)
        np.testing.assert_array_equal(rows(split), latents.astype(np.float32))
        np.testing.assert_array_equal(split.labels, labels)
    np.testing.assert_array_equal(np.bincount(dataset.balanced_test.labels), 4)
    assert dataset.class_names == tuple(law.class_names)
    assert dataset.tree.paths[0] == ("genus_00", dataset.class_names[0])
    train = law.sample("train", 300).latents
    # Latents are rounded to float32: by 1e-7 of some 5 deviations.
    np.testing.assert_allclose(dataset.mean, train.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(dataset.std, train.std(axis=0), rtol=1e-6)
    distribution = spec.true_distribution
    np.testing.assert_allclose(distribution.class_probabilities, np.exp(law.log_prior))
    np.testing.assert_array_equal(
        distribution.posterior(rows(dataset.test)), law.posterior(rows(dataset.test))
    )


def test_sizes_that_are_no_data_set_are_refused():
    least = r"config\.dataset\.num_train must be at least 100, .* 99$"
    for make, changes, message in (
        (latents_spec, {"num_train": 99}, least),
        (images_spec, {"num_train": 99}, least),
        (latents_spec, {"num_genera": 101}, "num_genera must be at most the 100 classes; got 101"),
    ):
        with pytest.raises(UserError, match=message):
            make(**changes).load(None)
    # A law of very many classes need not have examples of each.
    assert len(latents_spec(generator="power_law", num_train=99).load(None).train) == 99
