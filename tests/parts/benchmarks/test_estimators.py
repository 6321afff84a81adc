"""The study of the gradient estimates: its arithmetic, and the whole command on a small problem."""

import json
import sys

import numpy as np
import pytest

from benchmarks import estimators, estimators_report
from tests import reference

SMALL = estimators.Case("small", 6, 12, 0.5)


def test_errors_of_two_calls():
    # Two gradients, bias ± spread: by hand, the squared bias is their product with the exact one
    # taken off, and the variance is the half of their difference squared.
    rng = np.random.default_rng(0)
    exact, bias, spread = rng.normal(size=(3, 4, 5))
    found = estimators.errors(np.stack([exact + bias + spread, exact + bias - spread]), exact)
    products = (bias**2 - spread**2).sum(axis=-1)
    expected = {
        "squared_bias": products.mean(),
        # One pair of calls: the spread of its product is estimated by the product itself.
        "squared_bias_standard_error": np.sqrt((products**2).sum()) / 4,
        "variance": 2 * (spread**2).sum(axis=-1).mean(),
        "relative_rmse": np.sqrt(((bias**2 + spread**2).sum()) / (exact**2).sum()),
    }
    # Rounding of float64.
    assert found == pytest.approx(expected, rel=1e-12)


def test_theory_of_two_calls():
    exact = np.array([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
    gradients = np.array([[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 0, 1]]])
    # Measured 1 and 0; in theory 1/2 and 5/8, at two samples half of it.
    found = estimators.against_theory(gradients, exact, num_samples=2)
    mean = (1 / 4 + 5 / 16) / 2
    deviation = abs((1 - 1 / 4) - (0 - 5 / 16)) / 2
    expected = {"ratio": 0.5 / mean, "standard_error": deviation / mean}
    # Rounding of float64.
    assert found == pytest.approx(expected, rel=1e-12)


def test_exact_gradient_is_the_reference():
    logits = estimators.draw_logits(SMALL)
    expected = [
        reference.expected_top_k_value_gradient(row, estimators.K, epsilon=SMALL.epsilon)
        for row in logits
    ]
    # Far below the errors that are measured; the reference integrates within 1e-8 or so.
    np.testing.assert_allclose(
        estimators.exact_gradient(logits, SMALL.epsilon), expected, atol=1e-7, rtol=0
    )


def test_logits_are_raised_in_ten_classes():
    case = estimators.Case("recipe", 4, 100, 1.0)
    plain = np.random.default_rng(0).normal(size=(4, 100))
    raised = estimators.draw_logits(case) - plain
    # Rounding of float32.
    np.testing.assert_allclose(np.sort(raised)[:, -10:], 3.0, atol=1e-6)
    np.testing.assert_allclose(np.sort(raised)[:, :-10], 0.0, atol=1e-6)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(estimators, "CASES", (SMALL,))
    monkeypatch.setattr(estimators, "SAMPLES", (2, 7))
    monkeypatch.setattr(estimators, "EPSILONS", (1.0,))
    output, plot = tmp_path / "results.json", tmp_path / "plot.svg"
    monkeypatch.setattr(
        sys, "argv", ["estimators", "--repetitions=300", f"--output={output}", f"--plot={plot}"]
    )
    estimators.main()
    results = json.loads(output.read_text())
    assert capsys.readouterr().out.strip() == estimators_report.tables(results).strip()
    assert plot.read_text().startswith("<?xml")

    rows = results["by_samples"] + results["by_epsilon"]
    assert [(row["M"], row["epsilon"]) for row in rows] == [(2, 0.5), (7, 0.5), (10, 1.0)]
    for row in rows:
        assert row["calls"] == 302
        # Seeds are fixed, and the largest of the nine is 1.6 standard errors; optax's default
        # noise, Gumbel's, would be 9 of them away.
        for errors in row["estimators"].values():
            assert abs(errors["squared_bias"]) < 4 * errors["squared_bias_standard_error"]
        check = row["argmax_variance_over_theory"]
        assert abs(check["ratio"] - 1) < 4 * check["standard_error"]
        # What the operator promises at its default number of nodes, a coordinate, and far more
        # than float32 makes of it.
        assert row["exact"]["relative_rmse"] < 1e-4
        # With the same noise; 3 to 5 times at this size.
        argmax, score = (row["estimators"][name]["variance"] for name in estimators.MONTE_CARLO)
        assert score > 2 * argmax

    figure = estimators_report.figure(results)
    by_samples, by_time = figure.axes
    for line, name in zip(by_samples.lines, estimators.MONTE_CARLO, strict=True):
        expected = [row["estimators"][name] for row in results["by_samples"]]
        np.testing.assert_array_equal(line.get_xdata(), [2, 7])
        np.testing.assert_array_equal(line.get_ydata(), [row["relative_rmse"] for row in expected])
    for line, name in zip(by_time.lines, estimators.MONTE_CARLO, strict=False):
        expected = [row["estimators"][name] for row in results["by_samples"]]
        np.testing.assert_array_equal(line.get_xdata(), [1e3 * row["seconds"] for row in expected])


def test_the_least_error_within_a_time():
    def row(num_samples, argmax, score):
        found = {
            name: {"seconds": seconds, "relative_rmse": error}
            for name, (seconds, error) in zip(estimators.MONTE_CARLO, (argmax, score), strict=True)
        }
        exact = {"seconds": 2e-3, "relative_rmse": 1e-7}
        return {"M": num_samples, "estimators": found, "exact": exact}

    rows = [row(1, (4e-4, 0.9), (9e-4, 824.0)), row(3, (2e-3, 0.5), (4e-3, 4.0))]
    lines = estimators_report.equal_time(rows).splitlines()
    assert lines[2:6] == [
        "| 0.3 | – | – | – |",
        "| 1 | 0.9 (1) | 820 (1) | – |",
        "| 3 | 0.5 (3) | 820 (1) | 1e-07 (in 2.0 ms) |",
        "| 10 | 0.5 (3) | 4 (3) | 1e-07 (in 2.0 ms) |",
    ]
