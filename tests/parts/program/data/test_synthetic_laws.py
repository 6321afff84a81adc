"""The three laws of synthetic examples: their draws, and the figures of the best classifier."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from tests.parts.program.data import bayes_accuracies
from train.data.synthetic import LAWS
from train.data.synthetic_laws import LATENT_SIZE, Gaussian, Organs, PowerLaw

PARTS = ("train", "validation", "test", "balanced_test", "integration")
SMALL = {"num_classes": 7, "num_genera": 3, "long_tail_exponent": 2.0}


@pytest.fixture(scope="module")
def gaussian():
    """The law of the recipe of images."""
    return Gaussian()


@pytest.fixture(scope="module")
def organs():
    """The law of the recipe of latents."""
    return Organs(long_tail_exponent=0.0)


def within(found, expected, standard_error):
    """Whether two figures agree within three standard errors: one honest test in 370 would not."""
    return abs(found - expected) <= 3 * standard_error


def hits(scores, labels, k):
    """Whether the label is among the k largest scores; these are all different."""
    of_labels = np.take_along_axis(scores, labels[:, np.newaxis], axis=1)
    return (scores > of_labels).sum(axis=1) < k


def densities(means, latents, scales=None):
    """Of Gaussians, [n, ...]; with standard deviations of 1 unless they are given."""
    scales = np.ones(means.shape[:-1]) if scales is None else scales
    found = [
        multivariate_normal(mean, scale**2 * np.eye(LATENT_SIZE)).pdf(latents)
        for mean, scale in zip(means.reshape(-1, LATENT_SIZE), scales.ravel(), strict=True)
    ]
    return np.stack(found, axis=1).reshape(len(latents), *scales.shape)


# Small laws, and the densities of their classes.
DENSITIES = {
    "gaussian": lambda law, latents: densities(law.means, latents),
    "organs": lambda law, latents: densities(law.means, latents, law.scales).mean(axis=1),
    "power_law": lambda law, latents: densities(law.means, latents)[:, law.genera],
}


@pytest.mark.parametrize("kind", LAWS)
def test_the_posterior_is_bayes_rule_on_the_densities(kind):
    law = LAWS[kind](**SMALL)
    latents = law.sample("validation", 20).latents
    joint = DENSITIES[kind](law, latents) * np.exp(law.log_prior)
    # Float64; the densities are computed from distances, the posterior from inner products.
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(law.posterior(latents), expected, rtol=1e-9, atol=1e-12)
    # Far from all means, densities are 0 in float64, but probabilities are not.
    np.testing.assert_allclose(law.posterior(1e4 * latents).sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_hits_of_the_largest_probabilities_agree_with_their_sums(law):
    law = LAWS[law]()
    latents, labels = law.sample("test", 10_000)
    posterior = law.posterior(latents)
    for k in (1, 5):
        expected = np.sort(posterior, axis=1)[:, -k:].sum(axis=1)
        found = hits(posterior, labels, k)
        # Given the latents, hits are independent with these probabilities.
        deviation = np.sqrt((expected * (1 - expected)).sum()) / 10_000
        assert within(found.mean(), expected.mean(), deviation)


OF_GAUSSIAN = {
    "top-1": (bayes_accuracies.top_k, 1, 0.785),
    "top-3": (bayes_accuracies.top_k, 3, 0.957),
    "top-5": (bayes_accuracies.top_k, 5, 0.984),
    "macro top-1": (bayes_accuracies.macro_top_k, 1, 0.633),
    "average-5": (bayes_accuracies.average_k, 5, 0.995),
}
# Of organs.
FIGURES = {
    "top-1": (bayes_accuracies.top_k, 1, 0.643),
    "top-5": (bayes_accuracies.top_k, 5, 0.907),
    "macro top-5": (bayes_accuracies.macro_top_k, 5, 0.906),
    "average-5": (bayes_accuracies.average_k, 5, 0.949),
}


def test_the_figures_of_laws_are_those_of_their_docstrings(gaussian, organs):
    for law, figures in ((gaussian, OF_GAUSSIAN), (organs, FIGURES)):
        for name, (best, k, told) in figures.items():
            found = best(law, k, num_samples=10_000)
            # Rounded to three digits.
            assert abs(found.value - told) < 3 * found.standard_error + 5e-4, name


def test_distances_are_those_that_the_parameters_say():
    law = Gaussian(num_classes=800, num_genera=200, ambiguity=0.5)
    means = law.means.reshape(200, 4, LATENT_SIZE)

    def distance(means):
        # Twice the unbiased variance is the mean squared distance of two.
        return np.sqrt(2 * means.var(axis=-2, ddof=1).sum(axis=-1).mean())

    # 600 · 16 squares of species, 199 · 16 of genera: deviations of 0.7 % and 1.3 % of the root.
    assert distance(means) == pytest.approx(2 / 0.5, rel=0.03)
    # The genera, without what is due to four species each.
    assert np.sqrt(distance(means.mean(axis=1)) ** 2 - 4) == pytest.approx(5.5, rel=0.06)


# All but the training part, and one with as many of each class.
@pytest.mark.parametrize("part", ["validation", "test", "integration"])
def test_labels_outside_the_training_part_are_drawn_from_the_prior(part):
    law = Gaussian(**SMALL)
    labels, prior = law.sample(part, 20_000).labels, np.exp(law.log_prior)
    # Pearson's statistic of 6 degrees of freedom exceeds 22.5 once in a thousand times.
    counts, expected = np.bincount(labels, minlength=7), 20_000 * prior
    assert ((counts - expected) ** 2 / expected).sum() < 22.5
    # Independent: repeats of the label before are as frequent as they should be.
    rate = (prior**2).sum()
    assert within((labels[1:] == labels[:-1]).mean(), rate, np.sqrt(rate / 20_000) * 1.5)


@pytest.mark.parametrize("num_examples", [100, 1000, 20_000])
def test_training_counts_follow_the_prior_as_closely_as_integers_can(gaussian, num_examples):
    counts = np.bincount(gaussian.train_labels(num_examples), minlength=100)
    assert counts.sum() == num_examples
    assert counts.min() >= 1
    # No example could go to another class that has less of what is its due: the rule's optimality.
    prior = np.exp(gaussian.log_prior)
    given = ((counts - 0.5) / prior)[counts > 1]
    refused = ((counts + 0.5) / prior).min()
    assert given.size == 0 or given.max() <= refused


def test_the_prior_falls_geometrically_over_the_classes():
    law = Gaussian(num_classes=11, num_genera=2, long_tail_exponent=4.0)
    log_prior = np.sort(law.log_prior)
    np.testing.assert_allclose(np.diff(log_prior), 0.4, rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_prior).sum(), 1, rtol=1e-12)
    # Ranks are mixed among the genera: neither the given order nor its reverse.
    assert len(np.unique(np.sign(np.diff(law.log_prior)))) == 2
    balanced = dataclasses.replace(law, long_tail_exponent=0)
    np.testing.assert_array_equal(np.bincount(balanced.train_labels(110)), 10)


def test_the_power_law_is_the_share_of_a_rank_in_its_genus():
    law = PowerLaw(num_classes=1000, num_genera=4, long_tail_exponent=3.0)
    assert (abs(law.widths - 15.5) <= 14.5).all()
    for genus in range(4):
        shares = np.sort(np.exp(law.log_prior[law.genera == genus]))[::-1]
        expected = (np.arange(250) + law.widths[genus]) ** -3.0
        np.testing.assert_allclose(shares, expected / expected.sum() / 4, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("part", PARTS)
def test_an_example_is_a_function_of_the_law_the_part_and_its_index(law, part):
    law = LAWS[law](**SMALL)
    few, many = law.sample(part, 50), law.sample(part, 1000)
    for of_few, of_many in zip(few, many, strict=True):
        np.testing.assert_array_equal(of_few, of_many[:50])
    others = [law.sample(other, 50) for other in PARTS if other != part]
    others.append(dataclasses.replace(law, seed=1).sample(part, 50))
    assert all((few.latents != other.latents).all() for other in others)


# The first number of the first parts.
FIRST = {
    Gaussian(): [0.419595540991, 1.12809554122, 3.85186676268],
    Organs(long_tail_exponent=0.0): [0.396429881293, -0.653450194912, 1.93022014555],
    PowerLaw(long_tail_exponent=3.0): [0.271945107898, 0.824549432446, 3.12319685459],
}


def test_the_draws_do_not_change_between_versions(gaussian, organs):
    """Two runs of one configuration would no longer be of the same data."""
    for law, first in FIRST.items():
        drawn = [law.sample(part, 1).latents[0, 0] for part in PARTS[:3]]
        np.testing.assert_allclose(drawn, first, rtol=1e-10)
    np.testing.assert_allclose(gaussian.log_prior[0], -6.588750415681131, rtol=1e-12)
    np.testing.assert_array_equal(gaussian.sample("test", 5).labels, [16, 37, 87, 3, 13])
    np.testing.assert_allclose(organs.scales[:, 0], [1.71445295269, 1.13777828785], rtol=1e-10)
    np.testing.assert_array_equal(organs.organs("test", 8), [1, 1, 1, 1, 0, 1, 1, 0])
