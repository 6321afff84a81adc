"""The parameter that controls a risk equals MAPIE's."""

import numpy as np
import pytest
from mapie.risk_control.methods import find_best_predict_param, get_r_hat_plus

from topk_jax import sets


@pytest.mark.parametrize("error", [0.1, 0.2, 0.4])
def test_the_threshold_for_a_rate_of_missed_labels(rng, error):
    probabilities = rng.random((60, 7)).astype(np.float32)
    present = rng.random(probabilities.shape) < probabilities
    present[~present.any(axis=1), 0] = True
    thresholds = np.linspace(1, 0, 41, dtype=np.float32)
    rates = np.asarray(sets.false_negative_rates(probabilities, present, thresholds=thresholds))
    kept = probabilities[..., None] >= thresholds
    missed = 1 - (present[..., None] & kept).sum(axis=1) / present.sum(axis=1, keepdims=True)
    # Quotients of small numbers in float32.
    np.testing.assert_allclose(rates, missed, atol=1e-6)
    # Theirs looks for the last of the parameters, whose risk then grows.
    _, bounds = get_r_hat_plus(missed[:, ::-1], thresholds[::-1], "crc", None, None, None)
    theirs = find_best_predict_param(thresholds[::-1], bounds, np.array([error]))
    index = int(sets.risk_controlled_index(rates, error=error))
    assert 0 < index < len(thresholds)
    assert thresholds[index] == theirs
