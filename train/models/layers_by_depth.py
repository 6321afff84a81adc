"""The layers of a network, counted from its head, for learning rates that fall with the depth."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from train.models.classifier import Classifier


def distances_from_head(model: Classifier, image_shape: tuple[int, ...]) -> Any:
    """How many layers below the head each parameter is: 0 in the head, 1 in the layer before it.

    The rule is the same for every network. The modules directly inside the network are taken in
    the order in which it calls them. Each one with a parameter of two or more axes starts a layer.
    All others, such as norms, belong to the layer before them. A block of a ResNet is one module,
    and so one layer. If a network only wraps another one, the modules of the inner one are taken.

    Args:
        model: the network with its head.
        image_shape: height, width and channels of its images.

    Returns:
        A pytree like the parameters, with an integer for each.
    """
    images = np.zeros((1, *image_shape), np.float32)
    distances = {}

    def init(key: jax.Array) -> Any:
        params = model.init(key, images, train=True)["params"]
        # Here the modules are in the order of their calls. JAX sorts what it returns by name.
        for name, part in params.items():
            distances[name] = _all(part, 0) if name == "head" else _distances(part)
        return params

    jax.eval_shape(init, jax.random.key(0))
    return distances


def _distances(network: Mapping[str, Any]) -> Any:
    inner = next(iter(network.values()))
    if len(network) == 1 and _has_modules(inner):
        return {name: _distances(module) for name, module in network.items()}
    layers, layer = {}, 1
    has_begun = False
    for name, module in network.items():
        if _begins_a_layer(module):
            layer += has_begun
            has_begun = True
        layers[name] = layer
    return {name: _all(module, layer + 1 - layers[name]) for name, module in network.items()}


def _has_modules(module: Any) -> bool:
    return isinstance(module, Mapping) and any(
        isinstance(inner, Mapping) for inner in module.values()
    )


def _begins_a_layer(module: Any) -> bool:
    """Whether a module, not a parameter of the network itself, has a kernel."""
    return isinstance(module, Mapping) and any(leaf.ndim > 1 for leaf in jax.tree.leaves(module))


def _all(module: Any, distance: int) -> Any:
    return jax.tree.map(lambda _parameter: distance, module)
