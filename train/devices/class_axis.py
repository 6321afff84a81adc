"""Classes that are split along an axis of devices: what a step does differently there."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

# The parts of a network: its features, their norm, and the head, whose parameters have a number for
# each class.
FEATURES, _NORM, HEAD = "features", "norm", "head"


def is_of_classes(path: tuple[Any, ...], leaf: Any, num_classes: int) -> bool:
    """Whether the last axis of an array is the axis of the classes.

    That is so in the parameters of the head, in what the optimizer has for them, and in the
    parameters of losses. A layer below the head may happen to have the same number of units.

    Args:
        path: where the array is in the state, or in the hyperparameters.
        leaf: the array.
        num_classes: the size of the axis of the classes in an array that has one.
    """
    names = (key.key for key in path if isinstance(key, jax.tree_util.DictKey))
    part = next((name for name in names if name in (FEATURES, _NORM, HEAD)), None)
    return part not in (FEATURES, _NORM) and np.shape(leaf)[-1:] == (num_classes,)


@dataclass(frozen=True)
class ClassAxis:
    """The axis of devices that the classes are split along; by default there is none.

    The methods are for a step that runs on each device at once. Without an axis, they work for a
    device that has all classes.

    Attributes:
        name: the name of the axis; None if each device has all classes.
        size: the devices along it.
        own_classes: the number of classes that a device has.
    """

    name: str | None = None
    size: int = 1
    own_classes: int = 0

    def of_one_loss(self, gradients: Any) -> Any:
        """The gradients of a loss by the device's logits, from those that JAX computes.

        All devices along the axis have the same loss. JAX computes the gradient of their sum.
        """
        if self.name is None:
            return gradients
        return jax.tree.map(lambda gradient: gradient / self.size, gradients)

    def of_all_classes(self, gradients: Any) -> Any:
        """The gradients by parameters, from those by way of the device's own logits."""
        if self.name is None:
            return gradients

        def summed(path: tuple[Any, ...], gradient: jax.Array) -> jax.Array:
            if is_of_classes(path, gradient, self.own_classes):
                return gradient
            return self.sum(gradient)

        return jax.tree_util.tree_map_with_path(summed, gradients)

    def sum(self, value: jax.Array) -> jax.Array:
        """The sum of what the devices have."""
        return value if self.name is None else jax.lax.psum(value, self.name)

    def of_labels(self, values: jax.Array, labels: jax.Array) -> jax.Array:
        """The values of some classes.

        Args:
            values: one for each class of the device, [own classes].
            labels: the classes, the same on all devices along the axis, [n].
        """
        if self.name is None:
            return values[labels]
        own = labels - self.own_classes * jax.lax.axis_index(self.name)
        is_here = (own >= 0) & (own < self.own_classes)
        return self.sum(jnp.where(is_here, values[jnp.where(is_here, own, 0)], 0))

    def norm(self, parameters: Any) -> jax.Array:
        """The Euclidean norm of parameters, or of what has their structure."""
        if self.name is None:
            norm: jax.Array = optax.tree.norm(parameters)
            return norm
        shared, split = jnp.float32(0), jnp.float32(0)
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
            squares = jnp.square(leaf).sum()
            if is_of_classes(path, leaf, self.own_classes):
                split += squares
            else:
                shared += squares
        return jnp.sqrt(shared + self.sum(split))


# Each device has all classes.
ALL_CLASSES = ClassAxis()
