"""EfficientNets drop features and blocks as torchvision's do."""

import functools

import jax
import numpy as np
import pytest
import torch
from flax import linen as nn

from tests.peers.networks import peers
from tests.peers.networks.published_networks import torchvision
from train.models import MODELS
from train.models.networks.inverted_residual import InvertedResidual

BOTH_HAVE = [f"efficientnet_b{number}" for number in range(5)]
SHAPE = (80, 113, 3)


@pytest.mark.parametrize("name", BOTH_HAVE)
def test_defaults_are_torchvisions(name):
    with torch.device("meta"):
        of_torchvision = getattr(torchvision.models, name)(num_classes=peers.NUM_CLASSES)
    # torchvision's builders have the rates of the paper, timm's leave them to the user.
    features = MODELS[name].build(axis_name=None)
    assert features.dropout == of_torchvision.classifier[0].p
    assert rates_of(features) == [
        block.p
        for block in of_torchvision.modules()
        if isinstance(block, torchvision.ops.StochasticDepth)
    ]


def rates_of(features):
    """How often each block is left out, from the first one on."""
    rates = []

    def note(call, arguments, keywords, context):
        if isinstance(context.module, InvertedResidual):
            rates.append(context.module.stochastic_depth)
        return call(*arguments, **keywords)

    images = jax.ShapeDtypeStruct((1, *SHAPE), np.float32)
    with nn.intercept_methods(note):
        jax.eval_shape(functools.partial(features.init, train=False), jax.random.key(0), images)
    return rates
