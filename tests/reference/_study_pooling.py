"""The hierarchical model of the contrasts over studies, and the contrasts of the better heads.

The model is integrated here by the trapezoidal rule, and the studies of a data set are combined
before the data sets are. `docs/evidence/pooling.py` has other nodes and complete covariances.
"""

import functools
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from tests.reference import _studies as studies
from tests.reference import _study_answers as answers
from tests.reference import _study_statistics as statistics

SETS = ("countries", "regions", "gaussian", "organs", "tiny_imagenet")


@dataclass(frozen=True)
class Mixture:
    """Normal laws with weights that add up to 1."""

    weights: np.ndarray
    means: np.ndarray
    errors: np.ndarray

    def below(self, value: float) -> float:
        """The probability of smaller numbers."""
        return float((self.weights * special.ndtr((value - self.means) / self.errors)).sum())

    def quantile(self, share: float) -> float:
        """The number with this share of the law below it."""
        return float(optimize.brentq(lambda x: self.below(x) - share, -200, 200, xtol=1e-9))

    @property
    def mean(self) -> float:
        """Its mean."""
        return float((self.weights * self.means).sum())


def _mean_of_normals(values, variances):
    """The weighted mean, its variance, and the log likelihood without the mean's constant.

    The last axis has the values. The likelihood is integrated over a flat prior of the mean.
    """
    precisions = 1 / variances
    total = precisions.sum(axis=-1)
    mean = (precisions * values).sum(axis=-1) / total
    squares = (precisions * (values - mean[..., None]) ** 2).sum(axis=-1)
    log_likelihood = 0.5 * (np.log(precisions).sum(axis=-1) - np.log(total) - squares)
    return mean, 1 / total, log_likelihood


@functools.cache
def model(question: str, name: str, scale: float) -> tuple[Mixture, Mixture]:
    """The mean over kinds of data, and the difference in a study of another data set."""
    found = [one.difference for one in answers.answers_to(question, name)]
    values = np.array([one.points for one in found])
    degrees = np.array([one.num_seeds - 1 for one in found])
    variances = np.array([one.error**2 for one in found]) * degrees / (degrees - 2)
    sets = [next(name for name in SETS if name in one.contrast.study) for one in found]
    taus = np.linspace(0, 8 * scale, 601)
    prior = np.exp(-0.5 * (taus / scale) ** 2)
    prior[0] /= 2
    of_studies = taus[:, None] ** 2
    log_likelihood, set_means, set_variances = np.zeros(len(taus)), [], []
    for one in dict.fromkeys(sets):
        chosen = np.array([other == one for other in sets])
        mean, variance, fit = _mean_of_normals(values[chosen], variances[chosen] + of_studies)
        set_means.append(mean)
        set_variances.append(variance)
        # Given the effect of the set, the fit is that of its mean and of the rest.
        log_likelihood = log_likelihood + fit
    means = np.stack(set_means, axis=-1)[:, None]
    spread = np.stack(set_variances, axis=-1)[:, None] + taus[None, :, None] ** 2
    mean, variance, fit = _mean_of_normals(means, spread)
    log_weights = log_likelihood[:, None] + fit
    weights = np.exp(log_weights - log_weights.max()) * np.outer(prior, prior)
    kept = weights > 1e-13 * weights.max()
    weights = weights[kept] / weights[kept].sum()
    new = variance + taus[:, None] ** 2 + taus[None, :] ** 2
    return (
        Mixture(weights, mean[kept], np.sqrt(variance[kept])),
        Mixture(weights, mean[kept], np.sqrt(new[kept])),
    )


def verdict(mean: Mixture) -> str:
    """The answer on average."""
    if mean.quantile(0.025) > 0:
        return "better on average"
    return "worse on average" if mean.quantile(0.975) < 0 else "open"


@functools.cache
def better_heads() -> list[answers.Difference]:
    """The contrasts of losses with the heads of the higher validation accuracy."""
    asked = [
        (study, loss, "cross-entropy")
        for study in studies.QUESTIONS["tail"]
        for loss in ("imbalanced noised hinge", "imbalanced expected hinge")
    ]
    asked += [
        ("noise_organs_40", loss, "cross-entropy")
        for loss in ("noised hinge", "expected hinge", "smooth top-K hinge")
    ]
    asked += [
        (study, "average-K", "cross-entropy with temperature")
        for study in ("average_countries_5", "average_tiny_imagenet_5")
    ]
    return [_better(*one) for one in asked]


def _better(study: str, *losses: str) -> answers.Difference:
    first, second = (_head(study, loss) for loss in losses)
    metric = studies.results(study)["select_by"]
    contrast = studies.Contrast(study, f"{first} - {second}", first, second, metric, False, None)
    of_seeds = answers.accuracies(study, first, metric) - answers.accuracies(study, second, metric)
    error = 100 * statistics.bootstrap_standard_error(
        studies.differences(contrast), studies.labels(study), macro=studies.is_macro(metric)
    )
    # As the page: 0.075 points may not depend on the order of the sum.
    points = 100 * round(float(of_seeds.mean()) / 100, 12)
    return answers.Difference(contrast, len(of_seeds), points, error)


def _head(study: str, loss: str) -> str:
    means = {
        arm["name"]: np.mean([max(run["validation_by_epoch"]) for run in arm["runs"]])
        for arm in studies.results(study)["arms"]
        if arm["name"] == loss or arm["name"].startswith(f"{loss}, ")
    }
    return max(means, key=means.__getitem__)
