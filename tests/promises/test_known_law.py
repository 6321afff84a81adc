"""On synthetic data the best classifier is known, and stands beside the trained one."""

import json
from statistics import NormalDist

import numpy as np
import pytest

from configs import synthetic_latents, synthetic_species
from tests.promises import commands
from train import data

FEW = {"num_classes": 8, "num_genera": 3, "num_train": 200, "num_validation": 200, "num_test": 500}
RECIPES = {"synthetic_latents": synthetic_latents, "synthetic_species": synthetic_species}


def spec_of(name, **changes):
    return data.read({**RECIPES[name].get_config().dataset, **changes})


@pytest.mark.parametrize("name", RECIPES)
def test_the_known_probabilities_are_of_bayes_rule(name):
    """With the log odds N(±d²/2, d²) of two Gaussians, the best accuracy is Φ(d / 2)."""
    two = {"num_classes": 2, "num_genera": 1, "long_tail_exponent": 0.0, "num_test": 4000}
    kind = {"generator": "gaussian"} if name == "synthetic_latents" else {}
    spec = spec_of(name, **two, **kind, num_train=2, num_validation=1)
    test = spec.load(None).test
    odds = np.log(spec.true_distribution.posterior(test.rows(...))) @ [1, -1]
    own = np.where(test.labels == 0, odds, -odds)
    # Four standard errors, of a mean and of a variance.
    assert own.mean() == pytest.approx(own.var() / 2, abs=4 * own.std() * (1 + own.std()) / 63)
    rate = NormalDist().cdf(own.std() / 2)
    assert (own > 0).mean() == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / 4000))


@pytest.mark.parametrize("name", RECIPES)
def test_examples_are_a_function_of_the_seed_of_the_data(name):
    first, again, other = (spec_of(name, **FEW, data_seed=seed).load(None) for seed in (1, 1, 2))
    for split, examples in first.splits.items():
        rows = examples.rows(...)
        np.testing.assert_array_equal(rows, again.splits[split].rows(...))
        np.testing.assert_array_equal(examples.labels, again.splits[split].labels)
        assert (rows != other.splits[split].rows(...)).mean() > 0.9


def test_the_results_have_the_best_accuracies(tmp_path, run_seed):
    fields = {f"dataset.{field}": number for field, number in FEW.items()}
    run = {"num_epochs": 1, "dataset.batch_size": 96, "model.name": "linear", "seed": run_seed}
    flags = {"config": "synthetic_latents", "workdir": tmp_path, "fields": fields | run}
    commands.ok(commands.line("main", **flags))
    spec = spec_of("synthetic_latents", **FEW)
    test = spec.load(None).test
    likeliest = np.argsort(-spec.true_distribution.posterior(test.rows(...)), axis=1)
    found = json.loads((tmp_path / "results.json").read_text())["bayes"]
    for k in (1, 3, 5):
        hits = (likeliest[:, :k] == test.labels[:, np.newaxis]).any(axis=1)
        # Counted in float32.
        assert found[f"top_{k}_accuracy"] == pytest.approx(hits.mean(), abs=1e-6)
