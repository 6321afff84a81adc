"""Networks by name: a Linen module that computes features, then a head that computes logits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from train.foundation import fields, import_paths
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.models import pretrained
from train.models.classifier import Classifier
from train.models.densenet import DenseNet
from train.models.heads import CosineHead, LinearHead, TwoHeads
from train.models.linear import Linear
from train.models.mlp import MLP
from train.models.ngram_bag import NgramBag
from train.models.pretrained import Pretrained
from train.models.resnet import RESNETS
from train.models.small_cnn import SmallCNN


@dataclass(frozen=True)
class ModelSpec:
    """An entry of the registry: a network without its head.

    Attributes:
        build: makes the module of float32 features; called with `axis_name` and `dtype`.
        load_pretrained: reads a file of pretrained weights, as `pretrained.load_resnet` does;
            `None` where the program reads none.
        inputs: what it takes: "images", "features" or "names"; see `DatasetSpec`.
        options: the fields of `config.model` that `build` takes too, of `MODEL_OPTIONS`.
    """

    build: Callable[..., nn.Module]
    load_pretrained: Callable[..., Pretrained] | None = None
    inputs: tuple[str, ...] = ("images",)
    options: tuple[str, ...] = ()


# Fields of `config.model` that only some networks have. None is the default of the network.
MODEL_OPTIONS: Mapping[str, Field] = {
    # The units of each hidden layer, or the features that n-grams are embedded to.
    "width": fields.optional(fields.integer(1)),
    # The number of hidden layers.
    "depth": fields.optional(fields.integer(1)),
    # The probability that a unit is set to 0 in training.
    "dropout": fields.optional(fields.Number(at_least=0, below=1)),
}

MODELS = {
    "small_cnn": ModelSpec(SmallCNN),
    "linear": ModelSpec(Linear, inputs=("images", "features")),
    "mlp": ModelSpec(MLP, inputs=("images", "features"), options=tuple(MODEL_OPTIONS)),
    "ngram_bag": ModelSpec(NgramBag, inputs=("names",), options=("width", "dropout")),
    "densenet_40_40": ModelSpec(DenseNet),
    **{name: ModelSpec(resnet, pretrained.load_resnet) for name, resnet in RESNETS.items()},
}

# The values of `config.model.name`: a name of `MODELS`, or the import path of a `ModelSpec`.
MODEL_NAME = import_paths.one_of_or_path(MODELS, ModelSpec)

# Each makes a head from the number of classes. Its output is logits [n, L], or a `TwoLogits`.
HEADS: dict[str, Callable[[int], nn.Module]] = {
    "linear": LinearHead,
    "cosine": CosineHead,
    "two_heads": TwoHeads,
}


def find(name: str) -> ModelSpec:
    """The network of a name that `MODEL_NAME` allows."""
    if name in MODELS:
        return MODELS[name]
    spec: ModelSpec = import_paths.load(name)
    return spec


def build_model(
    name: str,
    *,
    num_classes: int,
    head: str,
    axis_name: str | None,
    half_precision: bool,
    freeze: bool = False,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Classifier:
    """The network of a name, with the head of a name.

    Args:
        name: the name of the network, as `find` takes it.
        num_classes: the number of classes.
        head: one of `HEADS`.
        axis_name: the axis over devices over which batch norm averages; with None each device
            normalises by its own share of the batch.
        half_precision: whether the layers below the head compute in bfloat16. Parameters, batch
            norm's statistics, features and logits are float32 in any case.
        freeze: whether the layers below the head evaluate in training too.
        options: the fields of `MODEL_OPTIONS` that are not the default of the network.
    """
    dtype = jnp.bfloat16 if half_precision else jnp.float32
    return Classifier(
        features=find(name).build(axis_name=axis_name, dtype=dtype, **options),
        head=HEADS[head](num_classes),
        freeze=freeze,
    )


def pretrained_loader(name: str) -> Callable[..., Pretrained]:
    """The reader of pretrained weights of a network: called as `pretrained.load_resnet` is.

    Args:
        name: the name of the network, as `find` takes it.

    Raises:
        UserError: the program reads no weights of the network.
    """
    load = find(name).load_pretrained
    if load is None:
        names = ", ".join(name for name, spec in MODELS.items() if spec.load_pretrained)
        raise UserError(f"config.model.pretrained is for {names}; config.model.name is {name!r}")
    return load


__all__ = [
    "HEADS",
    "MODELS",
    "MODEL_NAME",
    "MODEL_OPTIONS",
    "ModelSpec",
    "Pretrained",
    "build_model",
    "find",
    "pretrained_loader",
]
