"""The three laws of synthetic examples: their draws, and the figures of the best classifier."""

import dataclasses
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import multivariate_normal

from tests.parts.program.data import bayes_accuracies
from train.data.synthetic import LAWS
from train.data.synthetic_laws import LATENT_SIZE, Gaussian, Organs, PowerLaw

PARTS = ("train", "validation", "test", "balanced_test", "integration")
# The labels of these are drawn from the prior.
DRAWN = ("validation", "test", "integration")
SMALL = {"num_classes": 7, "num_genera": 3, "long_tail_exponent": 2.0}
phi = NormalDist().cdf


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


def gaussian_densities(law, latents):
    return np.stack([multivariate_normal(mean).pdf(latents) for mean in law.means], axis=1)


def organs_densities(law, latents):
    identity = np.eye(LATENT_SIZE)
    return np.stack(
        [
            sum(
                multivariate_normal(mean, scale**2 * identity).pdf(latents) / 2
                for mean, scale in zip(law.means[:, label], law.scales[:, label], strict=True)
            )
            for label in range(law.num_classes)
        ],
        axis=1,
    )


def power_law_densities(law, latents):
    return gaussian_densities(law, latents)[:, law.genera]


@pytest.mark.parametrize(
    ("law", "densities"),
    [
        (Gaussian(), gaussian_densities),
        (Organs(num_classes=7, num_genera=3), organs_densities),
        (PowerLaw(num_classes=7, num_genera=3), power_law_densities),
    ],
    ids=LAWS,
)
def test_the_posterior_is_bayes_rule_on_the_densities(law, densities):
    latents = law.sample("validation", 20).latents
    joint = densities(law, latents) * np.exp(law.log_prior)
    # Float64; the densities are computed from distances, the posterior from inner products.
    np.testing.assert_allclose(
        law.posterior(latents), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12
    )
    # Far from all means, densities are 0 in float64, but probabilities are not.
    np.testing.assert_allclose(law.posterior(1e4 * latents).sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("long_tail_exponent", [0.0, 1.5])
def test_two_classes_have_their_bayes_accuracies_in_closed_form(long_tail_exponent):
    law = Gaussian(
        num_classes=2, num_genera=1, ambiguity=1.3, long_tail_exponent=long_tail_exponent
    )
    distance, prior = float(np.linalg.norm(law.means[0] - law.means[1])), np.exp(law.log_prior)
    np.testing.assert_allclose(prior.max() / prior.min(), np.exp(long_tail_exponent))
    # Given class y, its log odds over the other are N(±log(π_0 / π_1) + d²/2, d²).
    centers = np.array([1, -1]) * (law.log_prior[0] - law.log_prior[1]) + distance**2 / 2

    def mean_below(border):
        return sum(p * phi((border - c) / distance) for p, c in zip(prior, centers, strict=True))

    def size(margin):
        # Both classes are kept if the log odds are within the margin, one otherwise.
        return 1 + mean_below(margin) - mean_below(-margin)

    top_1 = bayes_accuracies.top_k(law, 1)
    assert within(top_1.value, 1 - mean_below(0), top_1.standard_error)
    macro = bayes_accuracies.macro_top_k(law, 1)
    assert within(macro.value, phi(distance / 2), macro.standard_error)
    margin = brentq(lambda margin: size(margin) - 1.2, 0, 10)
    average = bayes_accuracies.average_k(law, 1.2)
    assert within(average.value, 1 - mean_below(-margin), average.standard_error)
    for best in (bayes_accuracies.top_k, bayes_accuracies.macro_top_k):
        # All classes: the sum of probabilities, which is 1 in float64.
        assert best(law, 2).value == pytest.approx(1, abs=1e-12)
    assert bayes_accuracies.average_k(law, 2).value == 1


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


def test_the_figures_of_the_gaussian_law_are_those_of_its_docstring(gaussian):
    figures = {
        "top_1": (bayes_accuracies.top_k(gaussian, 1), 0.785),
        "top_3": (bayes_accuracies.top_k(gaussian, 3), 0.957),
        "top_5": (bayes_accuracies.top_k(gaussian, 5), 0.984),
        "macro_top_1": (bayes_accuracies.macro_top_k(gaussian, 1), 0.633),
        "average_5": (bayes_accuracies.average_k(gaussian, 5), 0.995),
    }
    for name, (found, told) in figures.items():
        # Three decimals, and the computer's own rounding, which changes no decimal but a tie.
        assert found.value == pytest.approx(told, abs=6e-4), name
        assert found.standard_error < 7e-4, name


FIGURES = {
    "top-1": (bayes_accuracies.top_k, 1, 0.643),
    "top-5": (bayes_accuracies.top_k, 5, 0.907),
    "macro top-5": (bayes_accuracies.macro_top_k, 5, 0.906),
    "average-5": (bayes_accuracies.average_k, 5, 0.949),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_the_figures_of_organs_are_those_of_their_docstring(organs, figure):
    best, k, told = FIGURES[figure]
    found = best(organs, k, num_samples=10_000)
    # Rounded to three digits.
    assert abs(found.value - told) < 3 * found.standard_error + 5e-4


def root_mean_square_of_species(means):
    """The root mean square distance of the species of a genus, of means [..., genera, 4, 16]."""
    # Twice the unbiased variance is the mean squared distance of two.
    return np.sqrt(2 * means.var(axis=-2, ddof=1).sum(axis=-1).mean(axis=-1))


def test_distances_are_those_that_the_parameters_say():
    law = Gaussian(num_classes=800, num_genera=200, ambiguity=0.5)
    means = law.means.reshape(200, 4, LATENT_SIZE)
    # 600 · 16 squares of species, 199 · 16 of genera: deviations of 0.7 % and 1.3 % of the root.
    assert root_mean_square_of_species(means) == pytest.approx(2 / 0.5, rel=0.03)
    # The genera, without what is due to four species each.
    of_genera = root_mean_square_of_species(means.mean(axis=1)[np.newaxis])
    assert np.sqrt(of_genera**2 - 4) == pytest.approx(5.5, rel=0.06)


@pytest.mark.parametrize("part", DRAWN)
def test_labels_outside_the_training_part_are_drawn_from_the_prior(part):
    law = Gaussian(**SMALL)
    labels = law.sample(part, 20_000).labels
    prior = np.exp(law.log_prior)
    counts = np.bincount(labels, minlength=7)
    # Pearson's statistic of 6 degrees of freedom exceeds 22.5 once in a thousand times.
    assert ((counts - 20_000 * prior) ** 2 / (20_000 * prior)).sum() < 22.5
    # Independent: repeats of the label before are as frequent as they should be.
    repeats = (labels[1:] == labels[:-1]).mean()
    rate = (prior**2).sum()
    assert within(repeats, rate, np.sqrt(rate / 20_000) * 1.5)


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
    if num_examples == 20_000:
        assert abs(counts - 20_000 * prior).max() < 1
        assert (counts.min(), counts.max()) == (3, 1179)


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
    assert (law.widths >= 1).all()
    assert (law.widths <= 30).all()
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
    for other in PARTS:
        if other != part:
            assert (few.latents != law.sample(other, 50).latents).all()
    other_seed = dataclasses.replace(law, seed=1).sample(part, 50)
    assert (few.latents != other_seed.latents).all()


# The first number of each part.
FIRST = {
    Gaussian(): [0.419595540991, 1.12809554122, 3.85186676268, 0.458671311167, 0.585040987170],
    Organs(long_tail_exponent=0.0): [
        *(0.396429881293, -0.653450194912, 1.93022014555, 0.463423450850, 2.82922819992)
    ],
    PowerLaw(long_tail_exponent=3.0): [
        *(0.271945107898, 0.824549432446, 3.12319685459, 0.985290956765, 1.47534624724)
    ],
}


@pytest.mark.parametrize("law", FIRST, ids=LAWS)
def test_the_draws_do_not_change_between_versions(law):
    """Two runs of one configuration would no longer be of the same data."""
    drawn = [law.sample(part, 1).latents[0, 0] for part in PARTS]
    np.testing.assert_allclose(drawn, FIRST[law], rtol=1e-10)


def test_priors_labels_scales_and_organs_do_not_change_between_versions(gaussian, organs):
    np.testing.assert_allclose(gaussian.log_prior[0], -6.588750415681131, rtol=1e-12)
    np.testing.assert_array_equal(gaussian.sample("test", 5).labels, [16, 37, 87, 3, 13])
    np.testing.assert_allclose(
        organs.scales[:, 0], [1.7144529526928025, 1.1377782878450362], rtol=1e-12
    )
    np.testing.assert_array_equal(organs.organs("test", 8), [1, 1, 1, 1, 0, 1, 1, 0])
