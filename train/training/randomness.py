"""Random keys as functions of the seed, the step and an example's position: no key is ever stored.

A run that is resumed, or split over another number of devices, draws the same numbers.
"""

import jax

# Every use of randomness has a stream of its own; a number is never given to another use.
_INITIALIZATION, _AUGMENTATION, _LOSS = range(3)


def initialization_key(seed: int) -> jax.Array:
    """The key of the initial parameters."""
    return jax.random.fold_in(jax.random.key(seed), _INITIALIZATION)


def augmentation_keys(seed: int, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key an example for the augmentation of a training step."""
    return _example_keys(seed, _AUGMENTATION, step, positions)


def loss_keys(seed: int, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key an example for the noise in the loss of a training step."""
    return _example_keys(seed, _LOSS, step, positions)


def _example_keys(seed: int, stream: int, step: jax.Array, positions: jax.Array) -> jax.Array:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), step)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, positions)
