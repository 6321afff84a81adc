"""A finished run with a tau-normalized head is a finished run of its own."""

import re

import jax
import numpy as np
import pytest

from tests.parts.program.forked import start_each
from tests.parts.program.roundings import check_same_metrics
from train import experiment
from train.evaluation import summaries
from train.evaluation.metric import LOSS, Metric
from train.evaluation.outcomes import Outcomes
from train.evaluation.thresholds import average_k_thresholds
from train.foundation.errors import UserError
from train.prediction import tau_normalized, trained
from train.workdir.runs import Run, identity


@pytest.fixture(scope="module")
def normalized(finished_run, tmp_path_factory):
    """The workdir that the command writes, and what it prints."""
    out = tmp_path_factory.mktemp("normalized") / "run"
    # The user's own.
    out.with_name("run.partial").mkdir()
    choice = ("--format=tau_normalized", "--select_by=top_1_accuracy", f"--out={out}")
    (done,) = start_each("train.export", [(f"--workdir={finished_run}", *choice)], {})
    assert (done.returncode, done.stderr) == (0, "")
    return out, done.stdout


def kernel_and_bias(classifier):
    head = classifier.params["head"]["Dense_0"]
    return np.asarray(head["kernel"], np.float64), np.asarray(head["bias"])


def test_the_run_is_that_with_the_best_tau(finished_run, normalized):
    out, printed = normalized
    assert {path.name for path in out.parent.iterdir()} == {"run", "run.partial"}
    (tau,) = re.findall("^tau +(.+), by the top-1 accuracy of validation$", printed, re.MULTILINE)
    tau = float(tau)
    earlier, found = trained.load(finished_run), trained.load(out)
    # Through the network for each tau; the command divides logits instead.
    predicted = {
        one: tau_normalized.with_tau(earlier, one).predict("validation")
        for one in tau_normalized.TAUS
    }
    accuracies = {one: np.mean(predicted[one].ranks == 0) for one in tau_normalized.TAUS}
    losses = {one: predicted[one].mean_loss() for one in tau_normalized.TAUS}
    assert tau == max(accuracies, key=accuracies.get)
    assert len(set(losses.values())) == len(losses)
    assert tau_normalized.choose(earlier, LOSS) == min(losses, key=losses.get)
    counts, ks = earlier.class_counts, earlier.config.eval.ks
    thresholds = {one: average_k_thresholds(predicted[one], ks) for one in predicted}
    average = Metric.accuracy("average", 1)
    accuracies_of_sets = {
        one: summaries.summarize(predicted[one], thresholds[one], counts).metrics[average]
        for one in predicted
    }
    assert tau_normalized.choose(earlier, average) == max(
        accuracies_of_sets, key=accuracies_of_sets.get
    )
    # Sets of the test split have the thresholds of validation.
    test = found.predict("test")
    expected = summaries.summarize(test, thresholds[tau], counts).metrics
    named = {one.name: None if np.isnan(value) else value for one, value in expected.items()}
    check_same_metrics(
        found.results["test"], named, test.scores, test.labels, thresholds[tau].values()
    )
    outcomes = Outcomes.read(out / "outcomes_test.npz")
    for metric in (Metric.accuracy("top", 3), Metric.accuracy("average", 3)):
        written = found.results["test"][metric.name]
        assert outcomes.hits(metric).mean() == pytest.approx(written, rel=1e-6)
    # On one device and on eight: float32 rounding.
    validation = found.results["validation"]
    np.testing.assert_allclose(validation["loss"], losses[tau], rtol=1e-5)
    np.testing.assert_allclose(validation["top_1_accuracy"], accuracies[tau], rtol=1e-6)
    jax.tree.map(
        np.testing.assert_array_equal,
        (found.params, found.batch_stats),
        (tau_normalized.with_tau(earlier, tau).params, earlier.batch_stats),
    )


def test_the_lengths_of_the_weights_are_divided(finished_run):
    earlier = trained.load(finished_run)
    weights, bias = kernel_and_bias(earlier)
    assert bias.any()
    found = tau_normalized.with_tau(earlier, 0.5)
    kernel, bias = kernel_and_bias(found)
    # Float32 rounding of a factor and a product.
    expected = weights / np.sqrt(np.linalg.norm(weights, axis=0))
    np.testing.assert_allclose(kernel, expected, rtol=1e-6)
    assert not bias.any()
    jax.tree.map(
        np.testing.assert_array_equal, found.params["features"], earlier.params["features"]
    )


def test_its_configuration_says_so(finished_run, normalized, tmp_path):
    out, printed = normalized
    earlier, found = (Run.read(workdir) for workdir in (finished_run, out))
    differing = {
        name: value
        for name, value in identity(found.config).items()
        if identity(earlier.config).get(name) != value
    }
    assert list(differing) == ["model.tau_normalized"]
    assert f"tau          {differing['model.tau_normalized']:g}, by" in printed
    assert found.results["config"] == found.config
    with pytest.raises(
        UserError, match=r"model\.tau_normalized is for runs that train\.export wrote"
    ):
        experiment.run(found.config, tmp_path / "run")
    with pytest.raises(UserError, match="is tau-normalized already"):
        tau_normalized.check(trained.load(out))


def test_a_class_without_weights_keeps_them(finished_run):
    classifier = trained.load(finished_run)
    head = dict(classifier.params["head"]["Dense_0"])
    head["kernel"] = np.asarray(head["kernel"]).copy()
    head["kernel"][:, 3] = 0
    classifier.params["head"] = {"Dense_0": head}
    kernel, _ = kernel_and_bias(tau_normalized.with_tau(classifier, 1.0))
    # Float32 rounding.
    lengths = np.linalg.norm(kernel, axis=0)
    np.testing.assert_allclose(lengths, np.arange(10) != 3, rtol=1e-6)


def test_a_tau_that_leaves_the_precision_of_float32_is_refused(finished_run):
    classifier = trained.load(finished_run)
    head = dict(classifier.params["head"]["Dense_0"])
    classifier.params["head"] = {"Dense_0": head}
    weights = np.array(head["kernel"]) / np.linalg.norm(head["kernel"], axis=0)
    # Lengths from 2^-23 to 2^23, the precision of float32: 1 + 23 log(2) / |log(length)|.
    for length, largest in ((1e-3, 3), (1e3, 3), (1e-10, 1), (1.5, 40)):
        head["kernel"] = weights.copy()
        head["kernel"][:, 3] *= length
        for tau in (0.0, 1.0, float(largest)):
            tau_normalized.check_tau(classifier, tau)
            kernel, _ = kernel_and_bias(tau_normalized.with_tau(classifier, tau))
            # The weights that are divided have lengths of their own: 1 or `length`, rounded.
            exact = np.linalg.norm(np.asarray(head["kernel"], np.float64), axis=0) ** (1 - tau)
            # The factor of a class is rounded to float32, and so is its product with each weight,
            # by half of eps each.
            rounding = 1.001 * np.finfo(np.float32).eps
            np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), exact, rtol=rounding)
        for tau in (largest + 1.0, np.inf, np.nan, -1.0):
            with pytest.raises(UserError, match="--tau"):
                tau_normalized.check_tau(classifier, tau)
