"""The two laws of the synthetic latents, the Bayes figures of the second, and the data set."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from configs import synthetic_latents as recipe
from tests.parts.program.data import bayes_accuracies
from tests.parts.program.data.specs import dataset_spec
from train.data import label_noise
from train.data.latent_species import LATENT_SIZE
from train.data.organs_model import OrgansModel
from train.data.species_model import SpeciesModel
from train.data.synthetic_latents import GENERATORS
from train.foundation.errors import UserError

PARTS = ("train", "validation", "test", "balanced_test", "integration")
SMALL = {"num_classes": 7, "num_genera": 3, "long_tail_exponent": 2.0}


@pytest.fixture(scope="module")
def law():
    """The law of the recipe."""
    return OrgansModel(long_tail_exponent=0.0)


def spec_of(**changes):
    return dataset_spec({**recipe.get_config().dataset.to_dict(), **changes})


def small_spec(**changes):
    sizes = {"num_train": 300, "num_validation": 40, "num_test": 50, "balanced_per_class": 4}
    return spec_of(**{**SMALL, **sizes, **changes})


def within(found, expected, standard_error):
    """Whether two figures agree within three standard errors: one honest test in 370 would not."""
    return abs(found - expected) <= 3 * standard_error


def hits(scores, labels, k):
    """Whether the label is among the k largest scores; these are all different."""
    of_labels = np.take_along_axis(scores, labels[:, np.newaxis], axis=1)
    return (scores > of_labels).sum(axis=1) < k


def test_the_posterior_of_organs_is_bayes_rule_on_mixtures_of_densities():
    law = OrgansModel(**SMALL)
    latents = law.sample("validation", 20).latents
    identity = np.eye(LATENT_SIZE)
    densities = [
        sum(
            multivariate_normal(mean, scale**2 * identity).pdf(latents) / 2
            for mean, scale in zip(law.means[:, label], law.scales[:, label], strict=True)
        )
        for label in range(7)
    ]
    joint = np.stack(densities, axis=1) * np.exp(law.log_prior)
    # Float64; the densities are computed from distances, the posterior from inner products.
    np.testing.assert_allclose(
        law.posterior(latents), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12
    )
    # Far from all means, densities are 0 in float64, but probabilities are not.
    np.testing.assert_allclose(law.posterior(1e4 * latents).sum(axis=1), 1, rtol=1e-12)


def test_an_example_shows_one_of_two_organs_with_the_scale_that_its_species_has_for_it():
    law = OrgansModel(**SMALL)
    latents, labels = law.sample("validation", 20_000)
    organs = law.organs("validation", 20_000)
    noise = (latents - law.means[organs, labels]) / law.scales[organs, labels, np.newaxis]
    # Bounds of 4.5 deviations on some 150 entries: one honest sample in a thousand exceeds them.
    bound = 4.5 / np.sqrt(20_000)
    assert abs(noise.mean(axis=0)).max() < bound
    assert abs(noise.T @ noise / 20_000 - np.eye(LATENT_SIZE)).max() < np.sqrt(2) * bound
    for other in (labels, organs):
        assert abs(noise.T @ (other - other.mean()) / 20_000 / other.std()).max() < bound
    assert abs(organs.mean() - 0.5) < bound / 2
    assert abs(np.corrcoef(organs, labels)[0, 1]) < bound
    assert abs(np.corrcoef(organs[1:], organs[:-1])[0, 1]) < bound


def test_leaves_of_a_genus_are_closer_than_its_flowers_and_scales_are_in_their_range():
    law = OrgansModel(num_classes=800, num_genera=200, ambiguity=0.5)
    means = law.means.reshape(2, 200, 4, LATENT_SIZE)

    def root_mean_square(points):
        # Twice the unbiased variance is the mean squared distance of two.
        return np.sqrt(2 * points.var(axis=2, ddof=1).sum(axis=2).mean(axis=1))

    # 600 · 16 squares of species, 199 · 16 of genera: deviations of 0.7 % and 1.3 % of the root.
    np.testing.assert_allclose(root_mean_square(means), [3.2 / 0.5, 0.8 / 0.5], rtol=0.03)
    of_genera = (
        root_mean_square(means.mean(axis=2)[:, np.newaxis]) ** 2 - np.array([6.4, 1.6]) ** 2 / 4
    )
    np.testing.assert_allclose(np.sqrt(of_genera), 5.5, rtol=0.06)
    # The genera of flowers and of leaves are independent: 3,200 products, four deviations.
    centers = means.mean(axis=2).reshape(2, -1)
    assert abs(np.corrcoef(centers)[0, 1]) < 4 / np.sqrt(3200)
    assert (law.scales.min() >= 0.5) & (law.scales.max() <= 2)
    # 1,600 uniform numbers on [-1, 1], whose variance is 1/3.
    assert abs(np.log2(law.scales).mean()) < 4 / np.sqrt(3 * 1600)
    assert np.log2(law.scales).var() == pytest.approx(1 / 3, rel=0.1)


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("part", PARTS)
def test_an_example_is_a_function_of_the_law_the_part_and_its_index(generator, part):
    law = GENERATORS[generator](**SMALL)
    few, many = law.sample(part, 50), law.sample(part, 1000)
    for of_few, of_many in zip(few, many, strict=True):
        np.testing.assert_array_equal(of_few, of_many[:50])
    for other in PARTS:
        if other != part:
            assert (few.latents != law.sample(other, 50).latents).all()
    other_seed = dataclasses.replace(law, seed=1).sample(part, 50)
    assert (few.latents != other_seed.latents).all()


def test_the_law_does_not_change_between_versions(law):
    """Two runs of one configuration would no longer be of the same data."""
    drawn = [law.sample(part, 1).latents[0, 0] for part in PARTS]
    # Known to the last bit but one: sums and products of float64, with a library's logarithms.
    np.testing.assert_allclose(
        drawn,
        [
            0.3964298812927929,
            -0.6534501949118922,
            1.930220145553319,
            0.4634234508495716,
            2.829228199918994,
        ],
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        law.scales[:, 0], [1.7144529526928025, 1.1377782878450362], rtol=1e-12
    )
    np.testing.assert_array_equal(law.organs("test", 8), [1, 1, 1, 1, 0, 1, 1, 0])


FIGURES = {
    "top-1": (bayes_accuracies.top_k, 1, 0.643),
    "top-5": (bayes_accuracies.top_k, 5, 0.907),
    "macro top-5": (bayes_accuracies.macro_top_k, 5, 0.906),
    "average-5": (bayes_accuracies.average_k, 5, 0.949),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_the_bayes_figures_of_organs_are_those_that_are_told(law, figure):
    best, k, told = FIGURES[figure]
    found = best(law, k, num_samples=10_000)
    # Rounded to three digits.
    assert abs(found.value - told) < 3 * found.standard_error + 5e-4


@pytest.mark.parametrize("generator", GENERATORS)
def test_hits_of_the_largest_probabilities_agree_with_their_sums(generator):
    law = GENERATORS[generator]()
    latents, labels = law.sample("test", 10_000)
    posterior = law.posterior(latents)
    for k in (1, 5):
        expected = np.sort(posterior, axis=1)[:, -k:].sum(axis=1)
        found = hits(posterior, labels, k)
        # Given the latents, hits are independent with these probabilities.
        deviation = np.sqrt((expected * (1 - expected)).sum()) / 10_000
        assert within(found.mean(), expected.mean(), deviation)


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_data_set_has_the_examples_of_its_law(generator):
    spec = small_spec(generator=generator, data_seed=3)
    law = GENERATORS[generator](**SMALL, seed=3)
    dataset = spec.load(None, seed=5)
    splits = {"train": 300, "validation": 40, "test": 50, "balanced_test": 28}
    for part, size in splits.items():
        split = getattr(dataset, part)
        latents, labels = law.sample(part, size)
        assert (split.images.dtype, split.labels.dtype) == (np.float32, np.int32)
        np.testing.assert_array_equal(split.images, latents.astype(np.float32))
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
        distribution.posterior(dataset.test.images), law.posterior(dataset.test.images)
    )


def test_only_training_labels_have_noise_which_is_of_the_run():
    clean = small_spec().load(None)
    noisy, again, other = (small_spec(label_noise=0.5).load(None, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(noisy.train.labels, again.train.labels)
    assert (noisy.train.labels != other.train.labels).any()
    for part in ("train", "validation", "test", "balanced_test"):
        split, before = getattr(noisy, part), getattr(clean, part)
        np.testing.assert_array_equal(split.images, before.images)
        assert (split.labels != before.labels).any() == (part == "train")
    genera = SpeciesModel(**SMALL).genera
    np.testing.assert_array_equal(genera[noisy.train.labels], genera[clean.train.labels])
    blocks = small_spec(label_noise=0.5, label_noise_kind="blocks").label_noise
    assert blocks.groups == label_noise.blocks(7)


def test_too_few_training_examples_are_refused():
    with pytest.raises(UserError, match=r"num_train of .* must be an integer at least 100, got 99"):
        spec_of(num_train=99)


@pytest.mark.parametrize("field", ["num_train", "balanced_per_class"])
def test_examples_for_which_no_machine_has_memory_are_refused(field):
    with pytest.raises(UserError, match=f"config.dataset.{field} need .* of memory"):
        spec_of(**{field: 10**13}).load(None)
