"""The values of a graph that is made: their shapes in JAX, and how the graph holds them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

# An int, or a dimension of `jax.export` for any number of examples.
Dim = Any
Shape = tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of a graph. Either `name` or `array` is not None.

    Hazard: JAX has the channels of images last, ONNX before the rows; and JAX stretches arrays
    before it combines them. Choice: the graph holds a value in any order of its axes, and an axis
    of equal numbers with one of these. Cost: none, because almost all operations keep both.

    Attributes:
        shape: the shape in JAX.
        dtype: the type in JAX. Unsigned integers of 32 bits are integers of 64 bits in the graph,
            because ONNX Runtime does not multiply them.
        held: for each axis of JAX, the size that is held: the size in `shape`, or 1 for equal
            numbers.
        order: of each axis that is held, the axis of JAX.
        name: its name in the graph; None for a constant.
        array: the numbers of a constant, in `order`.
    """

    shape: Shape
    dtype: np.dtype[Any]
    held: Shape
    order: tuple[int, ...]
    name: str | None = None
    array: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_constant(self) -> bool:
        """Whether the numbers are known."""
        return self.array is not None

    def place(self, axis: int) -> int:
        """The position at which an axis of JAX is held."""
        return self.order.index(axis)

    def numbers(self) -> np.ndarray:
        """The numbers of a constant, as JAX has them."""
        assert self.array is not None
        if not is_static(self.shape):
            raise NotImplementedError("a constant of any number of examples")
        held = self.array.transpose(np.argsort(self.order)) if self.rank else self.array
        return np.broadcast_to(held, self.shape)


@dataclass(frozen=True)
class Like:
    """A shape and a type in JAX."""

    shape: Shape
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, like: Any, dtype: Any) -> "Like":
        """The shape of something, with another type."""
        return cls(tuple(like.shape), np.dtype(dtype))


def constant(
    array: Any, shape: Shape | None = None, order: tuple[int, ...] | None = None
) -> Tensor:
    """A constant.

    Args:
        array: the numbers that are held.
        shape: the shape in JAX; by default the shape of the array.
        order: of each axis of the array, the axis of JAX.
    """
    held = np.asarray(array)
    order = tuple(range(held.ndim)) if order is None else order
    sizes = tuple(held.shape[order.index(axis)] for axis in range(held.ndim))
    shape = sizes if shape is None else shape
    return Tensor(tuple(shape), held.dtype, sizes, order, array=held)


def is_one(dim: Dim) -> bool:
    """Whether a dimension is 1."""
    return isinstance(dim, int) and dim == 1


def is_static(shape: Shape) -> bool:
    """Whether a shape does not depend on the number of examples."""
    return all(isinstance(dim, int) for dim in shape)
