"""The difference of two accuracies over seeds and test examples, with its uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from train.series import statistics

# The power of the minimal detectable difference.
_POWER = 0.8
# The number of weights of examples in memory at once, in several arrays of 8 bytes each.
_CHUNK = 1_000_000


@dataclass(frozen=True)
class Contrast:
    """A difference of two accuracies, as a share: 0.01 is a point.

    Attributes:
        estimate: the mean difference, the first minus the second.
        standard_error: the standard error of the estimate.
        half_width: half the width of its 95 % interval.
        p_value: the two-sided p-value of the hypothesis that there is no difference.
        minimal_detectable: the smallest true difference whose interval leaves 0 out with a
            probability of 80 %.
    """

    estimate: float
    standard_error: float
    half_width: float
    p_value: float
    minimal_detectable: float


def contrast(
    first: np.ndarray,
    second: np.ndarray,
    labels: np.ndarray,
    *,
    macro: bool,
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Contrast:
    """The difference of two accuracies, by a bootstrap over seeds and over test examples.

    The two are paired: runs of one seed, on the same test examples. Each resample draws seeds and,
    within each class, examples, with replacement. It draws the same numbers as the data have, so
    the numbers of examples by class stay the same. It takes every drawn example with every drawn
    seed. The deviation of the differences, times sqrt(S / (S - 1)) for S seeds, is the
    standard error; interval and p-value are by Student's t with S - 1 degrees of freedom.

    The bootstrap counts noise that neither the seed nor the example explains three times, so that
    intervals are a little too wide if it prevails. The factor makes up for the share (S - 1) / S of
    the variance between seeds that resamples of them have.

    Args:
        first: whether the sets have the label, bool [S, n]: a row for each of two seeds or more.
        second: the same for the other classifier.
        labels: the classes of the examples, [n].
        macro: whether the accuracies are means over the classes that occur; otherwise over
            examples.
        num_resamples: the resamples. The standard error is then right to 1 part in
            sqrt(2 * num_resamples).
        seed: the seed of the resamples.

    Raises:
        ValueError: the shapes do not match, or there are fewer than two seeds.

    Source: Owen (2007), "The pigeonhole bootstrap".
    """
    if first.shape != second.shape or first.ndim != 2 or labels.shape != first.shape[1:]:
        raise ValueError(
            "first and second must be [seeds, n], and labels [n]; got "
            f"{list(first.shape)}, {list(second.shape)} and {list(labels.shape)}"
        )
    num_seeds = len(first)
    if num_seeds < 2:
        raise ValueError(f"first must have two seeds or more; got {num_seeds}")
    order = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    per_example = 1 / (len(sizes) * np.repeat(sizes, sizes)) if macro else 1 / len(labels)
    differences = first[:, order].astype(np.float64) - second[:, order]
    # [n, S]: their sums over examples are the differences of the seeds.
    shares = (differences * per_example).T
    resampled = _resample(shares, sizes, num_resamples, np.random.default_rng(seed))
    estimate = float(shares.sum(axis=0).mean())
    standard_error = float(resampled.std(ddof=1)) * math.sqrt(num_seeds / (num_seeds - 1))
    return with_error(estimate, standard_error, num_seeds - 1)


def with_error(estimate: float, standard_error: float, degrees_of_freedom: float) -> Contrast:
    """The contrast of an estimate with this standard error, by Student's t.

    Args:
        estimate: the mean difference, a share.
        standard_error: the standard error of the estimate.
        degrees_of_freedom: the degrees of freedom of Student's t: the seeds minus 1.
    """
    return Contrast(
        estimate,
        standard_error,
        statistics.half_width(standard_error, degrees_of_freedom),
        min(1.0, 2 * _tail(abs(estimate), standard_error, degrees_of_freedom)),
        minimal_detectable(standard_error, degrees_of_freedom, level=0.05),
    )


def minimal_detectable(standard_error: float, degrees_of_freedom: float, *, level: float) -> float:
    """The smallest true difference that a two-sided t-test finds with a probability of 80 %.

    Args:
        standard_error: the standard error of the estimate.
        degrees_of_freedom: the degrees of freedom of Student's t: the seeds minus 1.
        level: the level of the test, 0.05 for a 95 % interval.
    """
    critical = special.stdtrit(degrees_of_freedom, 1 - level / 2)
    # A noncentral t-distribution, because the standard error is estimated, too. It is too
    # improbable to count that the test finds a difference of the other sign.
    noncentrality = special.nctdtrinc(degrees_of_freedom, 1 - _POWER, critical)
    return float(noncentrality) * standard_error


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number, in the same order.

    Hypotheses with an adjusted value of at most alpha are rejected. The probability that a true one
    is among them is then at most alpha, even if they depend on each other.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def equivalence(found: Contrast, margin: float, degrees_of_freedom: float) -> float:
    """The p-value of the hypothesis that the true difference is not within ± margin.

    It is the larger one of two one-sided tests, against each end.

    Args:
        found: the difference.
        margin: positive, a share as the difference is.
        degrees_of_freedom: of Student's t: the seeds minus one.

    Source: Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power
    approach for assessing the equivalence of average bioavailability".
    """
    return _tail(margin - abs(found.estimate), found.standard_error, degrees_of_freedom)


def _resample(
    shares: np.ndarray, sizes: np.ndarray, num_resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """The differences of resamples, [num_resamples].

    How often each example was drawn, for many resamples, times the shares of the examples is a
    product of matrices. Few rows of it are made at once, because one row has all examples.

    Args:
        shares: [n, S], sorted by the class of the examples.
        sizes: the examples of each class.
        num_resamples: the resamples.
        rng: draws seeds and examples.
    """
    num_examples, num_seeds = shares.shape
    of_seeds = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=num_resamples)
    class_sizes = np.repeat(sizes, sizes).astype(np.float64)
    class_starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = max(1, _CHUNK // num_examples)
    found = []
    for start in range(0, num_resamples, rows):
        weights = of_seeds[start : start + rows] / num_seeds
        # A uniform number below 1 times the size of the class is below that size in binary, too.
        drawn = (rng.random((len(weights), num_examples)) * class_sizes).astype(np.intp)
        drawn += class_starts + np.arange(len(weights))[:, None] * num_examples
        counts = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        found.append(((counts.astype(np.float64) @ shares) * weights).sum(axis=1))
    return np.concatenate(found)


def _tail(value: float, standard_error: float, degrees_of_freedom: float) -> float:
    """The probability that Student's t is at least value / standard_error."""
    if standard_error == 0:
        # The value is exact, so its sign is certain.
        return 0.0 if value > 0 else 1.0
    return float(special.stdtr(degrees_of_freedom, -value / standard_error))
