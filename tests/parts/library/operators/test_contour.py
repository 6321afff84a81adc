"""Counts of events by a sum over a circle, against products of all events in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from topk_jax.operators import _contour

EPS = float(np.finfo(np.float32).eps)
SIZE, RANK = 48, 20


def settings(rng):
    """Logits of the single events, and of the repeated ones with their counts."""
    none = np.full(16, -60.0), np.zeros(16)
    # As many repeated events as need most points: unlikely ones, with a variance of 6 to 12.
    unlikely = np.full(16, -4.0), np.repeat([40, 0], 8)
    spread = rng.normal(size=16) - 2, rng.integers(1, 9, 16)
    certain = np.where(np.arange(SIZE) < RANK - 1, 30.0, -30.0)
    return [
        (3 * rng.normal(size=SIZE), *none),
        (np.zeros(SIZE), *none),
        (np.zeros(SIZE), *spread),
        (rng.normal(size=SIZE), *spread),
        # All but one or none are certain.
        (np.where(np.arange(SIZE) == RANK - 1, 0.3, certain), *none),
        (certain, *none),
        # The k-th is decided by many unlikely ones.
        (certain, *unlikely),
        (np.where(np.arange(SIZE) < RANK - 8, 30.0, -30.0), *unlikely),
        # Far from rank k: the probability is small, but not its error.
        (np.full(SIZE, 2.0), *none),
        (np.full(SIZE, -2.0), *none),
    ]


def without_each(chances):
    """P(N = k - 1) without each event, in float64."""
    left = [np.eye(1, RANK)[0]]
    right = [np.eye(1, RANK)[0]]
    for before, after in zip(chances, chances[::-1], strict=True):
        left.append((1 - before) * left[-1] + before * np.append(0, left[-1][:-1]))
        right.append((1 - after) * right[-1] + after * np.append(0, right[-1][:-1]))
    return np.array([left[i] @ right[len(chances) - 1 - i][::-1] for i in range(len(chances))])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_each_event(rng, dtype):
    rows = [(-np.sort(-single), *others) for single, *others in settings(rng)]
    single, repeated, counts = (np.array(part).T[:, None] for part in zip(*rows, strict=True))
    with jax.enable_x64(dtype == "float64"):

        def events(logits):
            return _contour.Events(*(jnp.asarray(expit(sign * logits), dtype) for sign in (1, -1)))

        of_single, of_repeated = jax.jit(lambda *parts: _contour.leave_one_out(RANK, *parts))(
            events(single), _contour.Repeated(events(repeated), jnp.asarray(counts, dtype))
        )
    eps = float(np.finfo(dtype).eps)
    for row in range(len(rows)):
        times = counts[:, 0, row].astype(int)
        chances = np.concatenate([single[:, 0, row], np.repeat(repeated[:, 0, row], times)])
        expected = without_each(expit(chances))
        # The logarithms of 48 factors add up to at most some 100.
        tolerance = 150 * eps * expected[:SIZE].max() + 1e-30
        np.testing.assert_allclose(of_single[:, 0, row], expected[:SIZE], rtol=0, atol=tolerance)
        kept = times > 0
        places = SIZE + np.cumsum(times)[kept] - 1
        np.testing.assert_allclose(
            of_repeated[kept, 0, row], expected[places], rtol=0, atol=tolerance
        )


def test_the_number_of_points():
    # The error on the complete circle is the upper tail of a Poisson variable.
    assert _contour._num_points(-np.log(EPS)) == 11
    assert _contour._num_points(36.0) == 24
