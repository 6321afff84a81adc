"""Random keys as functions of the seed, the step and the position of an example.

No key is stored, so a run that is resumed, or that uses another number of devices, draws the same
numbers, except for dropout. The seed and the step may be traced.
"""

import jax

# Each use of randomness has its own stream. A number is never reused for another purpose.
_INITIALIZATION, _AUGMENTATION, _LOSS, _DROPOUT, _MIXUP = range(5)


def initialization_key(seed: int | jax.Array) -> jax.Array:
    """The key of the initial parameters."""
    return jax.random.fold_in(jax.random.key(seed), _INITIALIZATION)


def augmentation_keys(seed: int | jax.Array, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key per example for the augmentation of a training step."""
    return _example_keys(seed, _AUGMENTATION, step, positions)


def loss_keys(seed: int | jax.Array, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key per example for the noise in the loss of a training step."""
    return _example_keys(seed, _LOSS, step, positions)


def mixup_keys(seed: int | jax.Array, step: jax.Array, positions: jax.Array) -> jax.Array:
    """One key per example for its share in its mixture in a training step."""
    return _example_keys(seed, _MIXUP, step, positions)


def dropout_key(seed: int | jax.Array, step: jax.Array, positions: jax.Array) -> jax.Array:
    """The key of dropout for the examples that are computed together.

    Linen draws the units of all of them with one key. So the units that are set to 0 depend on how
    the batch is divided among devices, unlike all other draws.
    """
    return _example_keys(seed, _DROPOUT, step, positions[:1])[0]


def _example_keys(
    seed: int | jax.Array, stream: int, step: jax.Array, positions: jax.Array
) -> jax.Array:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), step)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, positions)
