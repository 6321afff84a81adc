"""A run whose probabilities are made at a temperature that is fitted on validation."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from scipy import optimize, special

from tests import reference
from train.classifiers import trained
from train.data.classes import Classes
from train.reports.metric import Metric, from_json
from train.reports.outcomes import Outcomes
from train.run import experiment
from train.scores import scores, temperature
from train.scores.scores import Scores

pytestmark = pytest.mark.usefixtures("standard_promotion")


def logits_of(logits, labels):
    zeros, classes = np.zeros(len(logits)), Classes.of("abcde"[: logits.shape[1]])
    return Scores(values=logits, labels=labels, ranks=zeros, loss=zeros, classes=classes)


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


def test_the_temperature_of_more_logits_than_stay_in_memory_is_that_of_some(rng, monkeypatch):
    logits = rng.normal(scale=4, size=(30, 5)).astype(np.float32)
    labels = rng.integers(5, size=30)
    some = temperature.fit(logits_of(logits[::3], labels[::3]))
    monkeypatch.setattr(temperature, "MOST_IN_MEMORY", 4 * 5 * 10)
    assert temperature.fit(logits_of(logits, labels)) == some


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    """The finished run as it ends with a temperature; it is trained without one in any case."""
    copied = shutil.copytree(finished_run, tmp_path_factory.mktemp("temperature") / "run")
    config = json.loads((copied / "config.json").read_text())
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
    of_test, of_validation = (at(one.values, fitted) for one in (test, validation))
    outcomes = Outcomes.read(workdir / "outcomes_test.npz")
    written, before = (from_json(run.results["test"]) for run in (found, earlier))
    for k in (1, 3):
        sets = of_test >= reference.average_k_threshold(of_validation, k=k)
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
    assert "temperature" not in earlier.results


def test_the_finished_run_has_it_everywhere(workdir):
    classifier = trained.load(workdir)
    predicted = classifier.split("test")
    images = classifier.load_dataset().test.rows(np.arange(5))
    # The same program in another size of batches; float32 rounding.
    found = np.asarray(jax.jit(classifier.scores())(images))
    np.testing.assert_allclose(found, predicted.values[:5], rtol=1e-5)
    before = without_temperature(classifier).split("test").values[:5]
    np.testing.assert_allclose(found, at(before, classifier.results["temperature"]), rtol=1e-5)
