"""Pl@ntNet-300K with the 27 networks that the thesis compares: thesis 3.3.2, table 3.3.

    python -m train.prepare --dataset=plantnet300k --manual_dir=DIR
    python -m train.main --config=configs/plantnet300k_networks.py:resnet50

Published test top-1 accuracy in per cent of the ResNet-50, by the training images of the class
(table 3.1):

    0-10  10-50  50-500  500-2000  2000-
       9     35      59        79     93

The thesis has the accuracies of the other networks only in figures. Its networks start from
ImageNet weights. To do the same, pass a file of weights: --config.model.pretrained=FILE
(docs/fine_tuning.md). Without it the network starts from random weights and will not reach these
results.

The loss is the cross-entropy. For figure 3.9 the thesis also trains each network with the smooth
top-K hinge of Berrada et al., K = 5 and tau = 1:

    python -m train.main --config=configs/plantnet300k_networks.py:resnet50,smooth_top_k_hinge
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from configs.recipe import chosen, for_loss


class _Training(NamedTuple):
    """A row of table 3.3: the rate is divided by ten after each of the decay epochs."""

    learning_rate: float
    num_epochs: int
    decay_epochs: tuple[int, ...]


_USUAL = _Training(0.01, 30, (20, 25))
_CAREFUL = _Training(0.001, 30, (20, 25))
_EFFICIENTNET = _Training(0.01, 20, (10, 15))
_TRANSFORMER = _Training(5e-4, 20, (15,))

# In the order of their numbers in figure 3.8.
_NETWORKS = {
    "alexnet": _CAREFUL,
    "densenet121": _USUAL,
    "densenet161": _USUAL,
    "densenet169": _USUAL,
    "densenet201": _USUAL,
    "efficientnet_b0": _EFFICIENTNET,
    "efficientnet_b1": _EFFICIENTNET,
    "efficientnet_b2": _EFFICIENTNET,
    "efficientnet_b3": _EFFICIENTNET,
    "efficientnet_b4": _EFFICIENTNET,
    "inception_resnet_v2": _USUAL,
    "inception_v3": _USUAL,
    "inception_v4": _USUAL,
    "mobilenet_v2": _USUAL,
    "mobilenet_v3_large": _USUAL,
    "mobilenet_v3_small": _CAREFUL,
    "resnet101": _USUAL,
    "resnet152": _USUAL,
    "resnet18": _USUAL,
    "resnet34": _USUAL,
    "resnet50": _USUAL,
    "shufflenet": _USUAL,
    "squeezenet": _CAREFUL,
    "vgg11": _CAREFUL,
    "vit_base_patch16_224": _TRANSFORMER,
    "wide_resnet101_2": _USUAL,
    "wide_resnet50_2": _USUAL,
}

# The authors normalized images by ImageNet's mean and deviation for these networks of timm too,
# whose weights are of images from -1 to 1.
_NORMALIZED_BY_IMAGENET = ("inception_resnet_v2", "inception_v4", "vit_base_patch16_224")


# The losses that may follow the network after a comma: thesis 3.8.3.
_TRAINED_WITH = {"cross_entropy": {}, "smooth_top_k_hinge": {"k": 5, "tau": 1.0}}


def get_config(network: str = "resnet50") -> ConfigDict:
    name, _, loss = network.partition(",")
    training = chosen(_NETWORKS, name, "network")
    model = {"name": name}
    if name in _NORMALIZED_BY_IMAGENET:
        model["normalization"] = "imagenet"
    return for_loss(
        {
            "seed": 0,
            "num_epochs": training.num_epochs,
            "dataset": {
                "name": "plantnet300k",
                "batch_size": 32,
                "num_workers": 8,
            },
            "model": model,
            "optimizer": {
                "learning_rate": training.learning_rate,
                "weight_decay": 1e-4,
                "decay_epochs": training.decay_epochs,
            },
            # As in the authors' program; the thesis does not state it.
            "select_by": "top_1_accuracy",
            "eval": {"ks": (1, 3, 5, 10)},
        },
        _TRAINED_WITH,
        loss or "cross_entropy",
    )
