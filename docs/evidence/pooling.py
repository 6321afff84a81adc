"""A hierarchical model of the primary contrasts over their studies, as the design added it.

The true difference of a study is the mean over kinds of data, plus a normal deviation of its data
set, plus a normal deviation of the study. What was observed is normal around it. Given both
deviations, the mean is normal, too; over them the integral is numerical. All numbers are in points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from answers import QUESTIONS, of_contrast, of_question
from scipy import optimize, special

# The scale of the half-normal priors of both deviations, in points.
SCALE = 2.0
_DATA_SETS = ("countries", "regions", "gaussian", "organs", "tiny_imagenet")
# The largest deviation, in scales of its prior: a half-normal law has 1e-15 of its mass beyond it.
_LARGEST = 8.0
_NODES = 96


@dataclass(frozen=True)
class Law:
    """A mixture of normal laws.

    Attributes:
        weights: the weights, which add up to 1.
        means: the means.
        deviations: the standard deviations.
    """

    weights: np.ndarray
    means: np.ndarray
    deviations: np.ndarray

    @property
    def mean(self) -> float:
        """Its mean."""
        return float(self.weights @ self.means)

    def above(self, value: float) -> float:
        """The probability of numbers above the value."""
        return float(self.weights @ special.ndtr((self.means - value) / self.deviations))

    @property
    def interval(self) -> tuple[float, float]:
        """The interval with 95 % of it, and 2.5 % at each side."""
        reach = 40 * float(self.deviations.max())
        ends = float(self.means.min()) - reach, float(self.means.max()) + reach
        low, high = (
            optimize.brentq(lambda value, p=p: self.above(value) - p, *ends, xtol=1e-10)
            for p in (0.975, 0.025)
        )
        return low, high


@dataclass(frozen=True)
class Pooled:
    """What the model says of one contrast.

    Attributes:
        mean: the law of the mean over kinds of data.
        new: the law of the true difference in a study of another data set.
    """

    mean: Law
    new: Law

    @property
    def verdict(self) -> str:
        """The answer in words, by the rules of the design."""
        low, high = self.mean.interval
        if low <= 0 <= high:
            return "open"
        return "better on average" if low > 0 else "worse on average"


@dataclass(frozen=True)
class PooledContrast:
    """A primary contrast with more than one study.

    Attributes:
        question: the question of its studies.
        name: the name of the contrast.
        pooled: what the model says of it.
    """

    question: str
    name: str
    pooled: Pooled


def pool(
    differences: Sequence[float],
    variances: Sequence[float],
    data_sets: Sequence[str],
    *,
    scale: float = SCALE,
    nodes: int = _NODES,
) -> Pooled:
    """The laws of the mean and of a new study's difference.

    Args:
        differences: one for each study, in points.
        variances: of their errors, in squared points; positive.
        data_sets: the names of the data sets of the studies. Studies of one name share a deviation.
        scale: of the priors of both deviations, in points; positive.
        nodes: of the integral over each deviation.

    Source: Gelman, Hill and Yajima (2012), "Why we (usually) don't have to worry about multiple
    comparisons".
    """
    places, weights = np.polynomial.legendre.leggauss(nodes)
    deviations = _LARGEST / 2 * (places + 1) * scale
    prior = np.log(weights) - (deviations / scale) ** 2 / 2
    same = np.equal.outer(np.asarray(data_sets), np.asarray(data_sets)).astype(np.float64)
    of_set, of_study = np.meshgrid(deviations**2, deviations**2, indexing="ij")
    # [nodes, nodes, n, n]: the law of what is observed around the mean.
    covariance = (
        np.diag(np.asarray(variances, np.float64))
        + of_set[..., None, None] * same
        + of_study[..., None, None] * np.eye(len(differences))
    )
    observed = np.asarray(differences, np.float64)
    both = np.stack([np.ones_like(observed), observed], axis=1)
    solved = np.linalg.solve(covariance, np.broadcast_to(both, (nodes, nodes, *both.shape)))
    (ones, cross), (_, squares) = np.moveaxis(both.T @ solved, (-2, -1), (0, 1))
    means = cross / ones
    _, log_determinant = np.linalg.slogdet(covariance)
    # The mean has a flat prior, so that it leaves the factor ones ** -0.5.
    log_weights = (
        np.add.outer(prior, prior) - (log_determinant + np.log(ones) + squares - cross * means) / 2
    )
    shares = np.exp(log_weights - log_weights.max()).ravel()
    shares /= shares.sum()
    of_mean = (1 / ones).ravel()
    spread = (of_set + of_study).ravel()
    return Pooled(
        Law(shares, means.ravel(), np.sqrt(of_mean)),
        Law(shares, means.ravel(), np.sqrt(of_mean + spread)),
    )


def data_set(study: str) -> str:
    """The data set of a study.

    Raises:
        ValueError: its name has none.
    """
    for name in _DATA_SETS:
        if name in study:
            return name
    raise ValueError(f"no data set of {_DATA_SETS} is in {study!r}")


@cache
def pooled_contrasts(scale: float = SCALE) -> list[PooledContrast]:
    """The primary contrasts with more than one study, in the order of the questions."""
    found = []
    for question in QUESTIONS:
        for name in dict.fromkeys(answer.planned.name for answer in of_question(question)):
            answers = of_contrast(question, name)
            if len(answers) < 2:
                continue
            pooled = pool(
                [100 * one.found.estimate for one in answers],
                [
                    _variance(one.found.standard_error, one.planned.degrees_of_freedom)
                    for one in answers
                ],
                [data_set(one.study) for one in answers],
                scale=scale,
            )
            found.append(PooledContrast(question, name, pooled))
    return found


def _variance(standard_error: float, degrees_of_freedom: int) -> float:
    """The variance of an error whose size is itself estimated, in squared points."""
    return (100 * standard_error) ** 2 * degrees_of_freedom / (degrees_of_freedom - 2)
