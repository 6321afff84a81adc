"""Thresholds from validation: found once, kept, and refused if they could promise nothing."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tests import reference
from tests.parts.program.sealed import unsealed
from train.evaluation import thresholds
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction import other_calibrations
from train.prediction.calibration import Calibration


class FakeClassifier:
    """Counts how often its validation images are looked at."""

    def __init__(self, workdir):
        self.workdir = workdir
        self.asked = []
        rng = np.random.default_rng(3)
        scores = rng.dirichlet(np.ones(6), size=99).astype(np.float32)
        self.validation = Predictions(
            np.zeros(99), scores, rng.integers(0, 6, size=99), np.zeros(99, int)
        )

    def predict(self, split):
        self.asked.append(split)
        return self.validation


def test_thresholds_are_those_of_the_references_and_found_once(tmp_path):
    classifier = FakeClassifier(tmp_path)
    scores, labels = classifier.validation.scores, classifier.validation.labels
    found = Calibration(classifier)
    # The midpoint is rounded to 32 bits.
    expected = np.float32(reference.average_k_threshold(scores, k=2.5))
    assert found.average_k(2.5) == expected
    conformal = reference.conformal_threshold(scores, labels, error=0.05)
    assert found.conformal(0.95) == conformal
    assert classifier.asked == ["validation"]
    again = Calibration(classifier)
    assert (again.average_k(2.5), again.conformal(0.95)) == (expected, conformal)
    assert len(classifier.asked) == 1
    assert again.average_k(3) != expected
    assert len(classifier.asked) == 2
    assert set(unsealed(tmp_path / "calibration.json")) == {
        "average_2.5",
        "average_3.0",
        "coverage_0.95",
        "calibrated_on",
    }


def test_a_coverage_needs_enough_examples(tmp_path):
    classifier = FakeClassifier(tmp_path)
    # 1 / 0.01 - 1 = 99 are enough, and one fewer is not; in binary, 1 - 0.99 is above 0.01.
    assert Calibration(classifier).conformal(0.99) == reference.conformal_threshold(
        classifier.validation.scores, classifier.validation.labels, error=0.01
    )
    fewer = classifier.validation.take(np.arange(98))
    with pytest.raises(UserError, match=r"0\.99 needs at least 1 / 0\.01 - 1 = 99 .* there are 98"):
        thresholds.conformal_threshold(fewer, 0.99)


@pytest.mark.parametrize(
    ("coverage", "fewest"), [(0.85, 6), (0.9, 9), (0.95, 19), (0.99, 99), (0.5, 1), (1e-20, 1)]
)
def test_the_fewest_examples_of_a_coverage(tmp_path, coverage, fewest):
    assert thresholds.fewest_examples(coverage) == fewest
    all_examples = FakeClassifier(tmp_path).validation
    enough = all_examples.take(np.arange(fewest))
    assert np.isfinite(thresholds.conformal_threshold(enough, coverage))


def test_a_threshold_that_every_score_reaches_is_read_back(tmp_path):
    """It is minus infinity, as of answers that are always right; JSON cannot have it."""
    classes = SimpleNamespace(names=("a", "b"))
    classifier = SimpleNamespace(params={"bias": np.zeros(6)}, workdir=None, classes=classes)
    made = SimpleNamespace(found={"max_error_0.5": -math.inf, "coverage_0.9": 0.25})
    path = tmp_path / "half.json"
    other_calibrations.write(path, classifier, [made], "half of the images of photos")
    given = other_calibrations.GivenCalibration(classifier, path)
    assert (given.selective(0.5), given.conformal(0.9)) == (-math.inf, 0.25)
