"""Learned positions of the patches of an image, interpolated for images of another size."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def resized(positions: jax.Array, old: int, new: tuple[int, int]) -> jax.Array:
    """Positions [1, old * old, d] of a square of patches to [1, rows * columns, d], as in timm.

    Args:
        positions: those of the rows of the square, one row after the other.
        old: the rows and columns of the square.
        new: the rows and columns that are wanted.
    """
    if new == (old, old):
        return positions
    d = positions.shape[-1]
    grid = positions.reshape(old, old, d)
    # Cubic, with wider kernels for fewer positions: PyTorch's bicubic with antialias.
    return jax.image.resize(grid, (*new, d), "cubic").reshape(1, -1, d)


def fit(positions: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The positions [1, t, d] of a file, of a square and maybe the class token, in this shape.

    Positions that are laid out in another way come back as they are.
    """
    if positions.shape == shape or positions.ndim != 3:
        return positions
    old, new = math.isqrt(positions.shape[1]), math.isqrt(shape[1])
    with_class = positions.shape[1] - old * old
    if with_class > 1 or with_class != shape[1] - new * new:
        return positions
    grid = jnp.asarray(positions[:, with_class:], jnp.float32)
    return np.concatenate([positions[:, :with_class], resized(grid, old, (new, new))], axis=1)
