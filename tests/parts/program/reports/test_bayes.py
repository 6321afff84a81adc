"""The best classifier's metrics, from the distribution in closed form, or by Monte Carlo."""

import numpy as np
import pytest

from tests.parts.program.data import bayes_accuracies
from train.data import Examples, TrueDistribution
from train.data.classes import Classes
from train.data.synthetic_laws import Gaussian, Organs
from train.reports import bayes, metric

NUM_CLASSES = 12


@pytest.fixture(scope="module")
def model():
    return Gaussian(
        num_classes=NUM_CLASSES, num_genera=3, ambiguity=0.8, long_tail_exponent=4.0, seed=1
    )


@pytest.fixture(scope="module")
def summary(model):
    def split(part, size):
        return Examples.of_source(*model.sample(part, size), model.class_names, "")

    distribution = TrueDistribution(model.posterior, np.exp(model.log_prior))
    test = split("test", 6000)
    counts = np.bincount(test.labels, minlength=NUM_CLASSES)
    assert counts.min() >= 10
    classes = Classes(tuple(model.class_names), tuple(counts.tolist()))
    found = bayes.summarize(distribution, test, split("validation", 6000), (1, 2), classes)
    return metric.to_json(found), counts


def test_on_examples_with_as_many_of_each_class_the_best_over_classes_are_the_best():
    law = Organs(num_classes=12, num_genera=3, long_tail_exponent=6.0)
    distribution = TrueDistribution(law.posterior, np.exp(law.log_prior))

    def split(part):
        return Examples.of_source(*law.sample(part, 3000), law.class_names, "")

    classes = Classes(tuple(law.class_names), (30,) * 12)
    parts = split("balanced_test"), split("validation"), (1, 5), classes
    found, other = (
        metric.to_json(bayes.summarize(distribution, *parts, balanced=balanced))
        for balanced in (True, False)
    )
    for name in ("top_1", "average_5"):
        # The same hits, added in another order in float32.
        macro = pytest.approx(found[f"macro_{name}_accuracy"], rel=1e-6)
        assert found[f"{name}_accuracy"] == macro
        assert other[f"macro_{name}_accuracy"] == found[f"macro_{name}_accuracy"]
    # Both are closed forms of the law: no chance is in how much the long tail's best loses.
    assert other["top_1_accuracy"] < found["top_1_accuracy"] - 0.02
    best = bayes_accuracies.macro_top_k(law, 1, num_samples=10_000)
    deviation = np.hypot(0.5 / np.sqrt(3000), best.standard_error)
    # Three deviations: one honest sample in 370.
    assert abs(found["top_1_accuracy"] - best.value) < 3 * deviation


def test_each_way_of_counting_has_its_own_best_classifier(model, summary):
    found, counts = summary
    for k in (1, 2):
        for rule in ("top", "average"):
            share = getattr(bayes_accuracies, f"{rule}_k")(model, k).value
            # Four deviations of the test examples: one case in 16,000.
            near = 4 * np.sqrt(share * (1 - share) / counts.sum())
            assert found[f"{rule}_{k}_accuracy"] == pytest.approx(share, abs=near)
        best = bayes_accuracies.macro_top_k(model, k).value
        # A class's own accuracy has a variance of at most a quarter over its images.
        deviation = np.sqrt((0.25 / counts).sum()) / NUM_CLASSES
        assert found[f"macro_top_{k}_accuracy"] == pytest.approx(best, abs=4 * deviation)
        assert found[f"average_{k}_set_size"] == pytest.approx(k, rel=0.05)
