"""Random keys as functions of the seed, the step and the position of an example.

No key is stored, so a run that is resumed, or that uses another number of devices, draws the same
numbers. The seed and the step may be traced.
"""

import jax

# Each use of randomness has its own stream. A number is never reused for another purpose.
_INITIALIZATION, _AUGMENTATION, _LOSS = range(3)


def initialization_key(seed: int | jax.Array) -> jax.Array:
    """The key of the initial parameters."""
    return jax.random.fold_in(jax.random.key(seed), _INITIALIZATION)


def augmentation_keys(seed: int | jax.Array, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key per example for the augmentation of a training step."""
    return _example_keys(seed, _AUGMENTATION, step, positions)


def loss_keys(seed: int | jax.Array, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key per example for the noise in the loss of a training step."""
    return _example_keys(seed, _LOSS, step, positions)


def _example_keys(
    seed: int | jax.Array, stream: int, step: jax.Array, positions: jax.Array
) -> jax.Array:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), step)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, positions)
