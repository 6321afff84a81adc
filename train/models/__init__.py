"""Models by name: a Linen module that gives features, then a head that gives logits."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn

from train.models.classifier import Classifier
from train.models.densenet import DenseNet
from train.models.heads import CosineHead, LinearHead, TwoHeads
from train.models.mlp import MLP
from train.models.resnet import RESNETS
from train.models.small_cnn import SmallCNN

# Each makes the module of float32 features from `axis_name` and `dtype`.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "small_cnn": SmallCNN,
    "mlp": MLP,
    "densenet_40_40": DenseNet,
    **RESNETS,
}

# Each makes the head from the number of classes. One head gives logits [n, L], two a `TwoLogits`.
HEADS: dict[str, Callable[[int], nn.Module]] = {
    "linear": LinearHead,
    "cosine": CosineHead,
    "two_heads": TwoHeads,
}


def build_model(
    name: str, *, num_classes: int, head: str, axis_name: str | None, half_precision: bool
) -> Classifier:
    """The classifier of that name, with the head of that name.

    Args:
        name: one of `MODELS`.
        num_classes: the number of classes.
        head: one of `HEADS`.
        axis_name: the axis over devices over which batch norm averages; with None each device
            normalises by its own share of the batch.
        half_precision: whether the layers below the head compute in bfloat16. Parameters, batch
            norm's statistics, features and logits are float32 in any case.
    """
    dtype = jnp.bfloat16 if half_precision else jnp.float32
    return Classifier(
        features=MODELS[name](axis_name=axis_name, dtype=dtype), head=HEADS[head](num_classes)
    )
