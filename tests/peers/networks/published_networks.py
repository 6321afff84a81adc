"""The networks of torchvision and timm, by the names that they have here."""

from typing import Any

import torch

# torchvision's package is built with CUDA. Without CUDA, the names of two operators of detection
# have to be registered before it can be imported.
_OPERATORS = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm  # noqa: E402
import torchvision  # noqa: E402

__all__ = ["make", "publisher_of", "timm", "torchvision", "without_randomness"]

# Networks that have another name here.
_OTHER_NAMES = {"shufflenet": "shufflenet_v2_x1_0", "squeezenet": "squeezenet1_0"}
# torchvision has networks of some of these names too, but not all of them.
_OF_TIMM = (
    *("convnext", "efficientnet", "inception_resnet_v2", "inception_v4"),
    *("tf_efficientnet", "vit"),
)
_OPTIONS = {
    "inception_v3": {"aux_logits": False, "init_weights": False},
    "vit": {"dynamic_img_size": True},
}


def publisher_of(name: str) -> str:
    """The package that publishes the network."""
    return "timm" if name.startswith(_OF_TIMM) else "torchvision"


def make(name: str, num_classes: int) -> Any:
    """The network of a name with random weights, without dropout and stochastic depth."""
    options = next((own for start, own in _OPTIONS.items() if name.startswith(start)), {})
    if publisher_of(name) == "timm":
        network = timm.create_model(name, num_classes=num_classes, **options)
    else:
        factory = getattr(torchvision.models, _OTHER_NAMES.get(name, name))
        network = factory(num_classes=num_classes, **options)
    return without_randomness(network)


def without_randomness(network: Any) -> Any:
    """The network, which leaves nothing out in training any more."""
    for module in network.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    return network
