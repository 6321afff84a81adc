"""The statistics of paired contrasts over seeds and test examples.

`values` has one row for each seed and one column for each test example. An example has the weight
with which it enters the metric: the same for all in a plain mean, and one over the number of
classes times the size of its class in a macro mean.
"""

import functools
from collections.abc import Sequence

import numpy as np
from scipy import integrate, optimize, stats

LEVEL = 0.05
POWER = 0.8


def example_weights(labels: np.ndarray, *, macro: bool) -> np.ndarray:
    """The weight of each example in the metric; they add up to 1."""
    if not macro:
        return np.full(len(labels), 1 / len(labels))
    _, class_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return 1 / (len(sizes) * sizes[class_of])


def _class_means(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean over the class of each column, in the place of each column."""
    _, class_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(class_of, row) for row in values])
    return (sums / sizes)[:, class_of]


def bootstrap_standard_error(values: np.ndarray, labels: np.ndarray, *, macro: bool) -> float:
    """The standard error that the two-way bootstrap has in the mean of infinitely many resamples.

    Let `x[s, i]` be the value of seed s and example i times the weight of the example, divided by
    the number of seeds S. A resample is the sum of `w[s] v[i] x[s, i]`. Here w is how often each
    seed was drawn, and v how often each example was drawn. The weights w are multinomial with S
    draws. So are the weights v of a class with n examples, with n draws. Weights of seeds and of
    examples are independent, and so are the weights of two classes. The mean of each weight is 1.
    Hence

        E w[s] w[t] = 1 - 1 / S + [s = t],
        E v[i] v[j] = 1 + ([i = j] - 1 / n) [i and j are of one class].

    The mean of a resample is the sum of all x, the estimate. The mean of its square is

        sum over s, t of (1 - 1 / S + [s = t]) G[s, t],
        G[s, t] = sum over i, j of E v[i] v[j] x[s, i] x[t, j].

    The sum over j of the second factor of `E v[i] v[j]` takes from `x[t, i]` the mean of its
    class. So G is `r r' + c c'`, where r has the sums of the rows of x, and c has x minus the means
    of the classes. It does not matter that c is on both sides: the means of c are 0. The variance
    is the mean of the square minus the square of the estimate. The design multiplies the standard
    error by the root of S / (S - 1).
    """
    num_seeds = len(values)
    x = values * example_weights(labels, macro=macro) / num_seeds
    rows = x.sum(axis=1)
    centred = x - _class_means(x, labels)
    products = np.outer(rows, rows) + centred @ centred.T
    square = (1 - 1 / num_seeds) * products.sum() + np.trace(products)
    variance = square - rows.sum() ** 2
    return float(np.sqrt(variance * num_seeds / (num_seeds - 1)))


def analysis_of_variance_standard_error(
    values: np.ndarray, labels: np.ndarray, *, macro: bool
) -> float:
    """The standard error by the components of variance; components are not negative.

    A value is a constant, plus a random effect of its seed, one of its example within the class,
    and a rest. The variance of the estimate has three components. The component of the rest is
    found from what neither the seed nor the example explains within a class. The variance of the
    means of the seeds is the sum of the components of the seeds and of the rest. The variance of
    the means of the examples within their classes is the sum of the components of the examples and
    the rest.
    """
    num_seeds = len(values)
    weights = example_weights(labels, macro=macro)
    _, class_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    # A mean square of n examples has n - 1 degrees of freedom. A single example has a square of 0.
    squares = weights**2 * (sizes / np.maximum(sizes - 1, 1))[class_of]
    centred = values - _class_means(values, labels)
    of_examples = centred.mean(axis=0)
    residuals = centred - of_examples
    rest = (squares * (residuals**2).sum(axis=0)).sum() / (num_seeds - 1) / num_seeds
    seeds = (values @ weights).var(ddof=1) / num_seeds
    examples = (squares * of_examples**2).sum()
    return float(np.sqrt(max(seeds - rest, 0.0) + max(examples - rest, 0.0) + rest))


def half_width(error: float, num_seeds: float) -> float:
    """Half of the 95 % interval of Student's t."""
    return float(stats.t.ppf(1 - LEVEL / 2, num_seeds - 1)) * error


def p_value(estimate: float, error: float, num_seeds: float) -> float:
    """The two-sided p-value of Student's t."""
    return 2 * float(stats.t.sf(abs(estimate) / error, num_seeds - 1))


def equivalence_p_value(estimate: float, error: float, num_seeds: float, margin: float) -> float:
    """The larger p-value of two one-sided tests, that the difference is within the margin."""
    return float(stats.t.sf((margin - abs(estimate)) / error, num_seeds - 1))


@functools.cache
def detectable_errors(num_seeds: float, num_tests: int) -> float:
    """The smallest effect, in standard errors, that one of `num_tests` corrected tests would find.

    The correction is Bonferroni's. The statistic is noncentral t: a normal variable, whose mean is
    the effect, over a root mean square r of normal variables, one for each degree of freedom. The
    two-sided test rejects if the normal variable is beyond r times the critical value. The integral
    over the distribution of r does not fail for large effects.
    """
    degrees = num_seeds - 1
    critical = stats.t.ppf(1 - LEVEL / num_tests / 2, degrees)
    root = stats.chi(degrees, scale=degrees**-0.5)

    def power(effect: float) -> float:
        found, _ = integrate.quad(
            lambda r: (
                root.pdf(r)
                * (stats.norm.cdf(effect - r * critical) + stats.norm.cdf(-effect - r * critical))
            ),
            0.0,
            root.isf(1e-15),
            epsabs=1e-10,
        )
        return found

    return float(optimize.brentq(lambda effect: power(effect) - POWER, 0.0, 3 * critical))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, in the order given.

    The i-th smallest of n is multiplied by n - i + 1. None is below the one before, or above 1.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, (len(p_values) - place) * p_values[index])
        corrected[index] = min(largest, 1.0)
    return corrected
