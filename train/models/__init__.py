"""Networks by name: a Linen module that computes features, then a head that computes logits."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from train.foundation import import_paths
from train.foundation.errors import UserError
from train.models import pretrained
from train.models.classifier import Classifier
from train.models.feature_norm import FeatureNorm
from train.models.heads import CosineHead, LinearHead, TwoHeads
from train.models.model_spec import ModelSpec
from train.models.networks import (
    alexnet,
    convnext,
    densenet,
    efficientnet,
    inception_v3,
    inception_v4,
    mobilenet,
    resnet,
    shufflenet,
    squeezenet,
    vit,
)
from train.models.networks.small import MLP, Linear, SmallCNN, StridedCNN
from train.models.pretrained import Pretrained
from train.models.weights import files

# Files of networks that are published with weights.
FAMILIES = (
    alexnet,
    convnext,
    densenet,
    efficientnet,
    inception_v3,
    inception_v4,
    mobilenet,
    resnet,
    shufflenet,
    squeezenet,
    vit,
)

MODELS = {
    "small_cnn": ModelSpec(SmallCNN),
    "strided_cnn": ModelSpec(StridedCNN),
    "linear": ModelSpec(Linear, inputs=("images", "features")),
    "mlp": ModelSpec(MLP, inputs=("images", "features"), options=("width", "depth", "dropout")),
    **{name: spec for family in FAMILIES for name, spec in family.NETWORKS.items()},
}

# Each makes a head from the number of classes. Its output is logits [n, L], or a `TwoLogits`.
HEADS: dict[str, Callable[..., nn.Module]] = {
    "linear": LinearHead,
    "cosine": CosineHead,
    "two_heads": TwoHeads,
}


def find(name: str) -> ModelSpec:
    """The network of `config.model.name`: an entry of `MODELS`, or a `ModelSpec` by its path.

    Raises:
        UserError: there is none.
    """
    return import_paths.find("config.model.name", name, MODELS, ModelSpec)


def check_image_shape(name: str, image_shape: tuple[int, ...]) -> str | None:
    """What images must be instead, if a network does not take them; None if it does.

    Args:
        name: the name of the network, as `find` takes it.
        image_shape: height, width and channels of the images.
    """
    spec = find(name)
    height, width, _ = image_shape
    if all(size >= spec.smallest and size % spec.multiple_of == 0 for size in (height, width)):
        return None
    divisible = "" if spec.multiple_of == 1 else f" and divisible by {spec.multiple_of}"
    least = -(-spec.smallest // spec.multiple_of) * spec.multiple_of
    return f"images whose height and width are at least {least}{divisible}"


def build_model(
    name: str,
    *,
    num_classes: int,
    head: str,
    axis_name: str | None,
    half_precision: bool,
    scale: float | None = None,
    learn_scale: bool = False,
    freeze: bool = False,
    normalize_features: bool = False,
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
        scale: the factor of the logits of a cosine head; None for other heads, and for cosines.
        learn_scale: whether that factor is trained.
        freeze: whether the layers below the head evaluate in training too.
        normalize_features: whether the head gets normalized features; see `feature_norm`.
        options: see `ModelFields.options`.
    """
    dtype = jnp.bfloat16 if half_precision else jnp.float32
    scaling = {} if scale is None else {"scale": scale, "learn_scale": learn_scale}
    return Classifier(
        features=find(name).build(axis_name=axis_name, dtype=dtype, **options),
        head=HEADS[head](num_classes, **scaling),
        freeze=freeze,
        norm=FeatureNorm() if normalize_features else None,
    )


def published(name: str) -> ModelSpec:
    """The network of a name, if the program can read published weights for it.

    Args:
        name: the name of the network, as `find` takes it.

    Raises:
        UserError: the program does not read weights of the network.
    """
    spec = find(name)
    if spec.names is None:
        names = ", ".join(name for name, spec in MODELS.items() if spec.names is not None)
        raise UserError(
            f"config.model.pretrained is for networks with published weights, not {name!r}; "
            f"config.model.name may be {names}"
        )
    return spec


def load_pretrained(
    name: str, path: str, params: Any, batch_stats: Any, *, new_head: bool = False
) -> Pretrained:
    """The variables of the network of a name, read from a file; see `pretrained.load`."""
    names = published(name).names
    assert names is not None
    return pretrained.load(
        path, params, batch_stats, model_name=name, published=names, new_head=new_head
    )


def load_alone(model: Classifier, name: str, path: str, image_shape: tuple[int, ...]) -> Pretrained:
    """Like `load_pretrained`, but for a network without variables: variables not in the file are 0.

    Args:
        model: the network with its head.
        name: the name of the network.
        path: the file.
        image_shape: height, width and channels of its images.

    Raises:
        UserError: the file cannot be read, or is of another network.
    """
    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    init = functools.partial(model.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), images)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return load_pretrained(name, path, zeros["params"], zeros.get("batch_stats", {}))


def network_of(path: str) -> str:
    """The name of the network that a file of weights is for, by the number of its parameters.

    Raises:
        UserError: the file cannot be read, or fits no known network, or several.
    """
    arrays = files.read(Path(path))
    found = [
        name
        for name, spec in MODELS.items()
        if spec.names is not None and spec.names.num_parameters(arrays) == spec.num_parameters
    ]
    if len(found) == 1:
        return found[0]
    fits = f"fits {', '.join(found)}" if found else "fits no known network"
    raise UserError(
        f"config.model.pretrained: {path} {fits}; choose one by config.model.name "
        "(docs/fine_tuning.md lists them)"
    )
