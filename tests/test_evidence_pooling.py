"""The hierarchical model of the evidence, on studies that are simulated from it."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy import special

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
NUM_SIMULATED = 200
# The data sets of the studies of wrong labels, and standard errors as they have, in points.
SETS = ("gaussian", "gaussian", "organs", "organs", "photographs", "photographs")
ERRORS = np.array([0.2, 0.2, 0.25, 0.25, 0.4, 0.4])


@pytest.fixture(scope="module")
def pooling():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EVIDENCE)
        yield importlib.import_module("pooling")


@pytest.fixture(scope="module")
def simulated(pooling):
    """Of simulated studies: the shares of both laws above the truth, [NUM_SIMULATED, 2]."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(NUM_SIMULATED):
        mean = rng.normal(0, 3)
        of_sets, of_studies = np.abs(rng.normal(0, pooling.SCALE, size=2))
        set_deviations = rng.normal(0, of_sets, size=3)
        true = mean + np.repeat(set_deviations, 2) + rng.normal(0, of_studies, size=6)
        observed = true + ERRORS * rng.normal(size=6)
        new = mean + rng.normal(0, of_sets) + rng.normal(0, of_studies)
        pooled = pooling.pool(observed, ERRORS**2, SETS, nodes=24)
        shares.append([pooled.mean.above(mean), pooled.new.above(new)])
    return np.array(shares)


# If the deviations are drawn from their priors, the share of a law above the truth is uniform on
# (0, 1), and the interval of 95 % has the truth in 95 % of the simulations. Bounds are four
# standard deviations of a mean of NUM_SIMULATED.
@pytest.mark.parametrize("law", [0, 1], ids=["mean", "new"])
def test_the_intervals_have_the_truth_as_often_as_they_say(simulated, law):
    shares = simulated[:, law]
    for level in (0.95, 0.5):
        inside = np.abs(shares - 0.5) < level / 2
        bound = 4 * (level * (1 - level) / NUM_SIMULATED) ** 0.5
        assert inside.mean() == pytest.approx(level, abs=bound)
    assert shares.mean() == pytest.approx(0.5, abs=4 * (1 / 12 / NUM_SIMULATED) ** 0.5)


def test_it_is_the_integral_over_both_deviations(pooling):
    values, variances = np.array([1.0, 2.5, -0.5, 3.0]), np.array([0.3, 0.5, 0.2, 0.8])
    sets = ("a", "a", "b", "c")
    scale, number = 2.0, 150
    # The middles of equal parts, up to six standard deviations of the priors.
    middles = (np.arange(number) + 0.5) / number * 6 * scale
    same = np.array([[one == other for other in sets] for one in sets])
    of_sets, of_studies = (grid[..., None, None] ** 2 for grid in np.meshgrid(middles, middles))
    covariances = of_sets * same + of_studies * np.eye(4) + np.diag(variances)
    precisions = np.linalg.inv(covariances)
    total = precisions.sum(axis=(-2, -1))
    means = precisions.sum(axis=-1) @ values / total
    away = values - means[..., None]
    logarithms = -0.5 * (
        np.linalg.slogdet(covariances)[1]
        + np.log(total)
        + np.einsum("...i,...ij,...j", away, precisions, away)
        + (of_sets + of_studies)[..., 0, 0] / scale**2
    )
    weights = np.exp(logarithms - logarithms.max())
    weights /= weights.sum()
    law = pooling.pool(values, variances, sets, scale=scale).mean
    # Parts of 0.08 units: their error is of the order of its square.
    assert law.mean == pytest.approx((weights * means).sum(), abs=2e-3)
    above = (weights * special.ndtr(means * np.sqrt(total))).sum()
    assert law.above(0) == pytest.approx(above, abs=2e-3)


def test_without_deviations_it_is_the_weighted_mean(pooling):
    pooled = pooling.pool([1.0, 2.0], [1.0, 4.0], ["a", "b"], scale=1e-6)
    # Precisions 1 and 1/4: (1 + 2/4) / (5/4), and a variance of 4/5. Squared deviations of 1e-12
    # add less than that to the variances.
    error = 0.8**0.5
    for law in (pooled.mean, pooled.new):
        assert law.mean == pytest.approx(1.2, abs=1e-9)
        # The 97.5 % quantile of a normal law.
        reach = 1.959963984540054 * error
        assert law.interval == pytest.approx((1.2 - reach, 1.2 + reach), abs=1e-8)


def test_studies_of_one_data_set_tell_less_than_studies_of_several(pooling):
    one, several = (
        pooling.pool([1.0, 1.2, 0.9, 1.1], [0.01] * 4, sets).mean.interval
        for sets in (["a"] * 4, ["a", "b", "c", "d"])
    )
    assert one[1] - one[0] > 2 * (several[1] - several[0])


def test_the_answer_on_average(pooling):
    sets = ["a", "b", "c", "d"]
    answers = [
        pooling.pool(differences, [0.01] * 4, sets).verdict
        for differences in (
            [9.0, 9.5, 10.0, 9.1],
            [-9.0, -9.5, -10.0, -9.1],
            [3.0, -3.0, 2.0, -2.0],
        )
    ]
    assert answers == ["better on average", "worse on average", "open"]


def test_a_study_of_an_unknown_data_set(pooling):
    with pytest.raises(ValueError, match="no data set of"):
        pooling.data_set("tail_of_birds")
