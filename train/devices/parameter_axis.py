"""Parameters that are split along an axis of devices: what a step does differently there.

A device stores a part of each large array of parameters, of its gradient, and of what the optimizer
has for it: fully sharded data parallelism (FSDP, or ZeRO of stage 3; Rajbhandari et al. 2020). A
step gathers an array when it needs all of it, in the forward pass and again in the backward pass.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.devices.class_axis import ALL_CLASSES, FEATURES, HEAD, ClassAxis, is_of_classes


def axis_to_split(
    path: tuple[Any, ...], leaf: Any, *, devices: int, num_classes: int | None
) -> int | None:
    """The axis that devices split an array along: the largest one that they can share equally.

    The choice depends only on the shape, so that the optimizer's state is split like the
    parameters.

    Args:
        path: where the array is in the state.
        leaf: the array, with its complete shape.
        devices: the number of devices.
        num_classes: the number of classes if other devices split these, else None.

    Returns:
        None for arrays that each device has a copy of: biases and norms, which have one axis,
        statistics, and all that is not of the network.
    """
    shape = np.shape(leaf)
    names = {key.key for key in path if isinstance(key, jax.tree_util.DictKey)}
    names |= {key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)}
    if len(shape) < 2 or "batch_stats" in names or names.isdisjoint((FEATURES, HEAD)):
        return None
    is_split = num_classes is not None and is_of_classes(path, leaf, num_classes)
    sizes = shape[:-1] if is_split else shape
    shared = [axis for axis, size in enumerate(sizes) if size > 0 and size % devices == 0]
    return max(shared, key=lambda axis: sizes[axis], default=None)


@dataclass(frozen=True)
class ParameterAxis:
    """The axis of devices that the parameters are split along; by default there is none.

    The methods are for a step that runs on each device at once. Without split parameters, they work
    for a device that has all of them.

    Attributes:
        name: the name of the axis, along which the batch is split.
        split: the axes of the split parameters, by `keystr` of their paths.
        class_axis: the axis of devices that the classes are split along.
    """

    name: str
    split: Mapping[str, int] = field(default_factory=dict)
    class_axis: ClassAxis = ALL_CLASSES

    def gather(self, parameters: Any) -> Any:
        """The complete parameters, from the device's part of them."""
        return jax.tree_util.tree_map_with_path(self.gather_one, parameters)

    def gather_one(self, path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        """The complete array of parameters at a path, from the device's part of it."""
        axis = self._axis(path)
        # Its derivative adds the gradients of all devices, and leaves each its own part.
        return leaf if axis is None else jax.lax.all_gather(leaf, self.name, axis=axis, tiled=True)

    def mean(self, gradients: Any, metrics: Any) -> tuple[Any, Any]:
        """The means over devices; a device has its part of the means of split gradients.

        Args:
            gradients: by the parameters of the device. Those by split parameters are sums already.
            metrics: of the device.
        """
        leaves, structure = jax.tree_util.tree_flatten_with_path(gradients)
        is_split = [self._axis(path) is not None for path, _ in leaves]
        whole = [leaf for (_, leaf), split in zip(leaves, is_split, strict=True) if not split]
        averaged, metrics = jax.lax.pmean((whole, metrics), self.name)
        means, devices = iter(averaged), jax.lax.psum(1, self.name)
        found = [
            leaf / devices if split else next(means)
            for (_, leaf), split in zip(leaves, is_split, strict=True)
        ]
        return jax.tree.unflatten(structure, found), metrics

    def norm(self, parameters: Any) -> jax.Array:
        """The Euclidean norm of parameters, or of what has their structure."""
        if not self.split:
            return self.class_axis.norm(parameters)
        # The keys are the axes of devices that have different parts.
        squares: dict[tuple[str, ...], jax.Array] = defaultdict(lambda: jnp.float32(0))
        classes = self.class_axis
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
            over = () if self._axis(path) is None else (self.name,)
            if classes.name is not None and is_of_classes(path, leaf, classes.own_classes):
                over = (*over, classes.name)
            squares[over] += jnp.square(leaf).sum()
        total = sum(jax.lax.psum(part, over) if over else part for over, part in squares.items())
        return jnp.sqrt(jnp.asarray(total))

    def _axis(self, path: tuple[Any, ...]) -> int | None:
        return self.split.get(jax.tree_util.keystr(path))
