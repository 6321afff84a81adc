"""Rows of the same name in tests/parts that take long."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.parts.program.data.test_synthetic_laws import FIGURES, hits, organs, within  # noqa: F401 (fixtures)


@pytest.mark.parametrize("figure", FIGURES)
def test_the_bayes_figures_of_organs_are_known_to_a_tenth_of_a_point(organs, figure):  # noqa: F811
    best, k, told = FIGURES[figure]
    found = best(organs, k)
    assert found.standard_error < 1e-3
    # Three digits, and the computer's own rounding, which changes no digit but a tie.
    assert found.value == pytest.approx(told, abs=6e-4)


def test_a_softmax_of_linear_scores_is_far_below_the_best_classifier_of_organs(organs):  # noqa: F811
    latents, labels = organs.sample("train", 100_000)
    classifier = LogisticRegression(C=np.inf, max_iter=1000, tol=1e-6)
    classifier.fit(latents, labels)
    assert classifier.n_iter_ < 1000
    latents, labels = organs.sample("test", 100_000)
    scores = classifier.predict_proba(latents)
    for k, told in ((1, 0.334), (3, 0.536), (5, 0.655), (10, 0.785)):
        found = hits(scores, labels, k)
        # The error of counting; the error of fitting 1,700 numbers to 100,000 examples is smaller.
        assert within(found.mean(), told, np.sqrt(found.var() / 100_000) + 5e-4)
    threshold = np.partition(scores.ravel(), -500_000)[-500_000]
    found = scores[np.arange(100_000), labels] >= threshold
    assert within(found.mean(), 0.663, np.sqrt(found.var() / 100_000) + 5e-4)
