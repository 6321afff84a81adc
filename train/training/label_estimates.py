"""Estimated labels: one row of logits per training example, trained beside the network."""

import jax
import numpy as np

from train.data import streams

# Initial probabilities as in Cole et al. (2021): near 1/2 for unknown labels, near 1 for others.
_UNKNOWN = (0.4, 0.6)
_OBSERVED = 0.995


def initial(labels: np.ndarray, *, num_classes: int, seed: int) -> np.ndarray:
    """The logits before training, float32 [N, L], for labels [N]."""
    generator = streams.generator(seed, streams.LABEL_ESTIMATES)
    probabilities = generator.random((len(labels), num_classes), dtype=np.float32)
    low, high = _UNKNOWN
    probabilities *= high - low
    probabilities += low
    probabilities[np.arange(len(labels)), labels] = _OBSERVED
    return np.log(probabilities) - np.log1p(-probabilities)


def update(
    estimates: jax.Array,
    examples: jax.Array,
    gradients: jax.Array,
    learning_rate: jax.Array,
    *,
    axis_name: str | None,
) -> jax.Array:
    """A step of gradient descent on only the rows of a batch.

    Args:
        estimates: the logits of all examples, [N, L], the same on every device.
        examples: the rows of this device's share of the batch, [n]; one that is there twice takes
            both gradients.
        gradients: the gradients of the loss of the global batch with respect to these rows, times
            the number of devices, [n, L].
        learning_rate: the learning rate.
        axis_name: the axis over devices; None if the batch is global.
    """
    if axis_name is not None:
        gradients = gradients / jax.lax.psum(1, axis_name)
        examples, gradients = jax.lax.all_gather((examples, gradients), axis_name, tiled=True)
    return estimates.at[examples].add(-learning_rate * gradients)
