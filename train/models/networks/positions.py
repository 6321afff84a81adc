"""Learned positions of the patches of an image, interpolated for images of another size."""

import jax


def resized(positions: jax.Array, old: int, new: tuple[int, int]) -> jax.Array:
    """Positions [1, old * old, d] of a square of patches to [1, rows * columns, d], as in timm.

    Args:
        positions: the positions of the rows of the square, one row after the other.
        old: the rows and columns of the square.
        new: the rows and columns that are wanted.
    """
    if new == (old, old):
        return positions
    d = positions.shape[-1]
    grid = positions.reshape(old, old, d)
    # Cubic, with wider kernels for fewer positions: PyTorch's bicubic with antialias.
    return jax.image.resize(grid, (*new, d), "cubic").reshape(1, -1, d)
