"""What the order of sums changes in a trained run beyond the last bits: rare, and rarer twice."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

# Scores of float32 that two programs compute, or two numbers of devices: some thirty roundings.
_NEAR = 1e-5


def check_with_some_seed(check: Callable[[int], None]) -> None:
    """Calls a check of equality with the seed 0, and with the seed 1 if that fails.

    Many losses have gradients that jump: when rounding swaps two almost equal scores, another class
    is the K-th, and the step of its example is another one. That is so in fewer than one of a
    hundred runs of a few steps. A fault is there with every seed.
    """
    try:
        check(0)
    except AssertionError as error:
        print(f"not equal with seed 0, which one rounding can do: {error}")
        check(1)


def check_same_metrics(
    found: Mapping[str, float | None],
    expected: Mapping[str, float | None],
    scores: np.ndarray,
    labels: np.ndarray,
    thresholds: Iterable[float],
) -> None:
    """Metrics of one split by two programs, whose scores differ by rounding.

    They are equal, unless a score is so near a threshold, or the label's score so near another
    class's, that rounding may turn an example. One example may then be another.

    Args:
        found: the metrics by their names; None for a metric without examples.
        expected: the same from the other program.
        scores: [n, L].
        labels: [n].
        thresholds: the thresholds of average-K.
    """
    assert found.keys() == expected.keys()
    of_label = scores[np.arange(len(labels)), labels][:, None]
    others = np.where(np.arange(scores.shape[1]) == labels[:, None], np.inf, scores)
    is_near = [np.isclose(others, of_label, rtol=_NEAR, atol=0).any()]
    is_near += [np.isclose(scores, one, rtol=_NEAR, atol=0).any() for one in thresholds]
    counts = np.bincount(labels)
    one_example = 1.01 / counts[counts > 0].min() if any(is_near) else 0
    for name, value in expected.items():
        bound = 0 if name == "loss" else one_example
        same = None if value is None else pytest.approx(value, rel=1e-5, abs=bound)
        assert found[name] == same, name
