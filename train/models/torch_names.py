"""The variables of a ResNet under torchvision's names and in PyTorch's layout, and back.

timm has the same names for the same networks, and further names for its variants, such as ResNet-D.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import traverse_util

from train.models.resnet import RESNETS, BasicBlock

# The path of a variable: the collection, the modules from the outside in, and its own name.
Path = tuple[str, ...]

# torchvision's name of its head, and the path of that head here.
HEAD = "fc."
_LINEAR_HEAD = ("head", "Dense_0")
_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


def flatten(params: Any, batch_stats: Any) -> dict[Path, Any]:
    """The variables of a model by their paths."""
    return traverse_util.flatten_dict({"params": params, "batch_stats": batch_stats})


def unflatten(variables: Mapping[Path, Any]) -> tuple[Any, Any]:
    """The inverse of `flatten`."""
    nested = traverse_util.unflatten_dict(variables)
    return nested["params"], nested["batch_stats"]


def torchvision_name(path: Path) -> str | None:
    """Torchvision's name of a variable of a ResNet; None for a head that is not linear."""
    _, *modules, leaf = path
    if modules[0] == "features":
        names = [_module_name(module) for module in modules[1:]]
    elif tuple(modules) == _LINEAR_HEAD:
        names = [HEAD.removesuffix(".")]
    else:
        return None
    return ".".join([*names, _LEAVES[leaf]])


def _module_name(module: str) -> str:
    if module.startswith("layer"):
        return module.replace("_", ".")
    return {"downsample_conv": "downsample.0", "downsample_bn": "downsample.1"}.get(module, module)


def to_torch(array: np.ndarray) -> np.ndarray:
    """Kernels [height, width, in, out] to [out, in, height, width] and [in, out] to [out, in]."""
    return array.transpose((3, 2, 0, 1) if array.ndim == 4 else None)


def from_torch(array: np.ndarray) -> np.ndarray:
    """The inverse of `to_torch`."""
    return array.transpose((2, 3, 1, 0) if array.ndim == 4 else None)


def resnet_of(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """The ResNet with layers of these names and shapes; None if there is none in `RESNETS`."""
    stage_sizes = tuple(
        len({name.split(".")[1] for name in shapes if name.startswith(f"layer{stage}.")})
        for stage in (1, 2, 3, 4)
    )
    is_deep = "layer1.0.conv3.weight" in shapes
    for name, resnet in RESNETS.items():
        channels = 128 if name.startswith("wide") else 64
        if (
            stage_sizes == resnet.keywords["stage_sizes"]
            and is_deep == (resnet.keywords["block"] is not BasicBlock)
            and shapes.get("layer1.0.conv2.weight") == (channels, channels, 3, 3)
        ):
            return name
    return None
