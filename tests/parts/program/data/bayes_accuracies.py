"""The largest accuracies of any classifier of the species, as means over a large sample."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

NUM_SAMPLES = 100_000


class Estimate(NamedTuple):
    """A mean over a sample, and its standard error."""

    value: float
    standard_error: float


def top_k(model, k, *, num_samples=NUM_SAMPLES):
    """The largest top-k accuracy of any classifier: E[sum of the k largest p(y | z)]."""
    latents, _ = model.sample("integration", num_samples)
    return _mean_of_largest(model.posterior(latents), k)


def macro_top_k(model, k, *, num_samples=NUM_SAMPLES):
    """The largest macro top-k accuracy of any classifier: sets have the k largest p(y | z) / π_y.

    Macro accuracy does not depend on the prior, so the best is the best top-k accuracy on the same
    species equally frequent: E[sum of the k largest of the posterior], both of those.
    """
    latents = model.draw("integration", np.arange(num_samples) % model.num_classes)
    balanced = dataclasses.replace(model, long_tail_exponent=0.0)
    return _mean_of_largest(balanced.posterior(latents), k)


def average_k(model, k, *, num_samples=NUM_SAMPLES):
    """The largest accuracy of any sets of k classes on average, k a real number from 1 to L.

    The best sets are those of p(y | z) ≥ λ. By duality their accuracy is
    min over λ of λ k + E[sum over y of (p(y | z) - λ)+], which is flat at its minimum: that λ is
    chosen on the same sample does not matter to first order.
    """
    latents, _ = model.sample("integration", num_samples)
    values = model.posterior(latents).astype(np.float32)
    smaller = values.size - math.floor(k * num_samples)
    if smaller == 0:
        return Estimate(1.0, 0.0)
    threshold = np.partition(values.ravel(), smaller)[smaller]
    gains = np.maximum(values - threshold, 0).sum(axis=1, dtype=np.float64)
    return _mean(float(threshold) * k + gains)


def _mean_of_largest(probabilities, k):
    """The mean over the rows of the sum of a row's k largest."""
    return _mean(np.partition(probabilities, -k, axis=1)[:, -k:].sum(axis=1))


def _mean(values):
    return Estimate(float(values.mean()), float(values.std() / math.sqrt(len(values))))
