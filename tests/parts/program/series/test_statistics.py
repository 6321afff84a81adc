"""Means, intervals and their comparison, against tables of Student's t and against simulation."""

import math

import numpy as np
import pytest

from train.series import statistics
from train.series.statistics import Summary


def test_the_interval_is_students():
    # t with 2 degrees of freedom at 97.5 %, from a table: 4.3027; the deviation is 1.
    summary = statistics.summarize([70.0, 71.0, 72.0])
    assert summary.mean == pytest.approx(71.0)
    # As many digits as the table has.
    assert summary.half_width == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert statistics.summarize([70.0]) == Summary(70.0, None)


def test_an_interval_covers_the_mean_as_often_as_it_says(rng):
    covered = [
        abs(summary.mean) <= summary.half_width
        for summary in map(statistics.summarize, rng.normal(size=(2000, 4)))
    ]
    # Four standard deviations of a frequency of 0.95 in 2,000 draws.
    assert np.mean(covered) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 2000))


@pytest.mark.parametrize(
    ("ours", "published", "where"),
    [
        (Summary(72.0, 0.5), Summary(71.0, 0.4), "above"),
        (Summary(70.0, 0.5), Summary(71.0, 0.4), "below"),
        (Summary(71.5, 0.5), Summary(71.0, 0.4), None),
        # Each interval by itself would be too short.
        (Summary(71.75, 0.5), Summary(71.0, 0.5), None),
        # As far apart as both together; all four numbers are exact.
        (Summary(71.5, 0.25), Summary(71.0, 0.25), None),
        (Summary(71.75, 0.5), Summary(71.0, None), "above"),
        (Summary(99.0, None), Summary(71.0, 0.4), None),
    ],
)
def test_what_differs_by_more_than_both_intervals(ours, published, where):
    assert statistics.compare(ours, published) == where
