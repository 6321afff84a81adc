"""A run whose probabilities are made at a temperature that is fitted on validation."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from scipy import optimize, special

from tests.parts.program.sealed import unsealed
from train import experiment
from train.classifiers import trained
from train.data.classes import Classes
from train.reports.metric import Metric, from_json
from train.reports.outcomes import Outcomes
from train.scores import scores, temperature
from train.scores.scores import Scores

pytestmark = pytest.mark.usefixtures("standard_promotion")


def logits_of(logits, labels):
    zeros, classes = np.zeros(len(logits)), Classes.of("abcde"[: logits.shape[1]])
    return Scores(values=logits, labels=labels, ranks=zeros, loss=zeros, classes=classes)


def in_a_file(monkeypatch, logits, labels):
    monkeypatch.setattr(scores, "MOST_IN_MEMORY", 1)
    return logits_of(scores.collect([logits], len(logits)), labels)


def test_logits_of_any_number_get_probabilities(rng, monkeypatch):
    monkeypatch.setattr(scores, "CHUNK", 100)
    logits = rng.normal(scale=30, size=(103, 4)).astype(np.float32)
    given = logits_of(logits, rng.integers(4, size=103))
    found = temperature.with_probabilities(given, 2.5)
    # A few roundings of exponents up to 60: 60 * 2^-23.
    expected = special.softmax(logits.astype(np.float64) / 2.5, axis=-1)
    np.testing.assert_allclose(found.values, expected, rtol=2e-5, atol=1e-30)
    assert found.values.dtype == np.float32
    assert (found.loss, found.labels, found.ranks) == (given.loss, given.labels, given.ranks)


def test_the_temperature_of_logits_in_a_file_is_fitted_a_few_rows_at_a_time(rng, monkeypatch):
    logits = rng.normal(scale=4, size=(30, 5)).astype(np.float32)
    labels = rng.integers(5, size=30)
    # A class that is masked, and not the label.
    logits[labels != 4, 4] = -np.inf
    expected = temperature.fit(logits_of(logits, labels))
    found = in_a_file(monkeypatch, logits, labels)
    monkeypatch.setattr(scores, "CHUNK", 40)
    most = []
    slopes = temperature._slopes
    monkeypatch.setattr(
        temperature, "_slopes", lambda part, *rest: most.append(len(part)) or slopes(part, *rest)
    )
    # The slope is 0 up to the rounding of sums in 32 bits.
    assert temperature.fit(found) == pytest.approx(expected, rel=1e-5)
    assert max(most) == 8


@pytest.mark.parametrize(("labels", "expected"), [((0, 0), 2.0**-20), ((1, 1), 2.0**20)])
def test_the_temperature_of_logits_in_a_file_has_the_bounds_of_the_library(
    monkeypatch, labels, expected
):
    """Labels of the largest logits, and of the smallest."""
    logits = np.array([[2, -1], [3, 0]], np.float32)
    found = in_a_file(monkeypatch, logits, np.array(labels))
    assert temperature.fit(found) == pytest.approx(expected, rel=1e-12)
    logits[1, 0] = np.nan
    assert np.isnan(temperature.fit(in_a_file(monkeypatch, logits, np.array(labels))))


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    """The finished run as it ends with a temperature; it is trained without one in any case."""
    copied = shutil.copytree(finished_run, tmp_path_factory.mktemp("temperature") / "run")
    config = unsealed(copied / "config.json")
    config["eval"]["temperature"] = True
    (copied / "config.json").write_text(json.dumps(config))
    (copied / "results.json").unlink()
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(config, copied)
    return copied


def without_temperature(classifier):
    return dataclasses.replace(classifier, results={**classifier.results, "temperature": None})


def at(probabilities, temperature):
    return special.softmax(np.log(probabilities) / temperature, axis=-1)


def average_k_sets(scores, calibrated_on, k):
    """The sets above the K n-th score of those that are calibrated on; their scores differ."""
    threshold = np.sort(calibrated_on, axis=None)[-k * len(calibrated_on)]
    return scores >= threshold


def test_a_run_ends_with_the_temperature_of_validation(finished_run, workdir):
    found, earlier = trained.load(workdir), trained.load(finished_run)
    validation, test = (without_temperature(found).split(one) for one in ("validation", "test"))
    logits, labels = np.log(validation.values.astype(np.float64)), validation.labels

    def cross_entropy(log):
        chances = special.log_softmax(logits / np.exp(log), axis=-1)
        return -chances[np.arange(len(labels)), labels].mean()

    fitted = found.results["temperature"]
    # A minimum is flat: its place has half of the digits of its value.
    best = optimize.minimize_scalar(cross_entropy, bounds=(-5, 5), options={"xatol": 1e-7})
    assert fitted == pytest.approx(np.exp(best.x), rel=1e-4)
    assert abs(np.log(fitted)) > 0.1
    at_temperature = [at(one.values, fitted) for one in (test, validation)]
    outcomes = Outcomes.read(workdir / "outcomes_test.npz")
    written, before = (from_json(run.results["test"]) for run in (found, earlier))
    for k in (1, 3):
        sets = average_k_sets(*at_temperature, k)
        hits = sets[np.arange(len(sets)), test.labels]
        # At the threshold, the rounding of another program may turn one example. For K = 1 the
        # temperature turns five to eleven, with five seeds.
        metric = Metric.accuracy("average", k)
        assert np.count_nonzero(hits != outcomes.hits(metric)) <= 1
        assert written[metric] == pytest.approx(hits.mean(), abs=1.01 / len(sets))
        # What the network ranks, it ranks as before.
        metric = Metric.accuracy("top", k)
        assert written[metric] == before[metric]
    assert written[Metric.parse("loss")] == before[Metric.parse("loss")]
    assert earlier.temperature is None


def test_the_finished_run_has_it_everywhere(workdir):
    classifier = trained.load(workdir)
    predicted = classifier.split("test")
    images = classifier.load_dataset().test.rows(np.arange(5))
    # The same program in another size of batches; float32 rounding.
    found = np.asarray(jax.jit(classifier.scores())(images))
    np.testing.assert_allclose(found, predicted.values[:5], rtol=1e-5)
    before = without_temperature(classifier).split("test").values[:5]
    np.testing.assert_allclose(found, at(before, classifier.temperature), rtol=1e-5)
