"""The law of very many species: its shares, its posterior, and its examples."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from configs import million_classes as recipe
from tests.parts.program.data.specs import dataset_spec
from train.configuration.parsing import parse
from train.data.latent_species import LATENT_SIZE
from train.data.power_law_model import MOST_WIDTH, PowerLawModel
from train.foundation.errors import UserError


def law_of(**changes):
    return PowerLawModel(
        **{"num_classes": 1003, "num_genera": 4, "long_tail_exponent": 3.0, "seed": 5, **changes}
    )


def spec_of(**changes):
    return dataset_spec({**recipe.get_config().dataset.to_dict(), "num_classes": 1003, **changes})


def test_the_shares_of_a_genus_fall_by_a_power_law():
    law = law_of()
    for genus, width in enumerate(law.widths):
        assert 1 <= width <= MOST_WIDTH
        species = np.flatnonzero(law.genera == genus)
        # In some order.
        assert sorted(law.ranks[species]) == list(range(len(species)))
        assert list(law.ranks[species]) != sorted(law.ranks[species])
        expected = (law.ranks[species] + width) ** -3.0
        shares = np.exp(law.log_prior[species])
        # Float64: sums of a thousand numbers.
        np.testing.assert_allclose(shares, expected / expected.sum() / 4, rtol=1e-12)
    assert np.exp(law_of(long_tail_exponent=0).log_prior) == pytest.approx(
        1 / (4 * 250.75), rel=4e-3
    )


def test_the_posterior_is_bayes_rule():
    law = law_of()
    latents = law.sample("validation", 20).latents
    densities = [multivariate_normal(mean, np.eye(LATENT_SIZE)).pdf(latents) for mean in law.means]
    joint = np.stack(densities, axis=1)[:, law.genera] * np.exp(law.log_prior)
    # Float64; the densities are computed from distances, the posterior from inner products.
    np.testing.assert_allclose(
        law.posterior(latents), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12
    )


def test_examples_have_the_frequencies_of_the_species_and_the_mean_of_their_genus():
    law = law_of()
    num_examples = 20_000
    for part in ("train", "test"):
        latents, labels = law.sample(part, num_examples)
        # Six classes at a time so that each bin has many examples: bounds of 4.5 deviations.
        order = np.argsort(law.log_prior)[::-1]
        for chosen in (order[:6], order[6:60], order[60:]):
            probability = np.exp(law.log_prior[chosen]).sum()
            deviation = np.sqrt(probability * (1 - probability) / num_examples)
            assert abs(np.isin(labels, chosen).mean() - probability) < 4.5 * deviation
        noise = latents - law.means[law.genera[labels]]
        bound = 4.5 / np.sqrt(num_examples)
        assert abs(noise.mean(axis=0)).max() < bound
        assert abs(noise.T @ noise / num_examples - np.eye(16)).max() < np.sqrt(2) * bound
    # A larger part starts with the smaller one.
    np.testing.assert_array_equal(law.sample("test", 50).latents, latents[:50])


def test_most_species_may_have_no_training_example_and_there_need_be_no_balanced_test():
    dataset = spec_of(num_train=10, num_validation=5, num_test=6).load(None)
    assert [len(split) for split in (dataset.train, dataset.validation, dataset.test)] == [10, 5, 6]
    assert dataset.num_classes == 1003
    assert dataset.balanced_test is None
    with pytest.raises(
        UserError, match=r"num_train of .* must be an integer at least 1003, got 10"
    ):
        spec_of(num_train=10, generator="organs")


def test_more_classes_than_a_host_has_memory_for_are_refused():
    config = recipe.get_config().to_dict()
    config["dataset"]["num_classes"] = 10**13
    with pytest.raises(UserError, match=r"num_classes must be .* 2 to 100000000; got 1000"):
        parse(config)


def test_a_tail_that_float64_cannot_hold_is_refused():
    with pytest.raises(UserError, match=r"long_tail_exponent .* a number from 0 to 10, got 11"):
        law_of(long_tail_exponent=11)
