"""EfficientNets of timm and of torchvision are one network here, under two sets of names."""

import functools

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
from flax import linen as nn

from benchmarks.published_networks import torchvision
from tests.peers.networks import peers
from tests.peers.networks.comparison import BOUND, build, computed, difference, images_of, loaded
from train.models import MODELS
from train.models.networks.inverted_residual import InvertedResidual

BOTH_HAVE = [f"efficientnet_b{number}" for number in range(5)]
SHAPE = (80, 113, 3)


def shapes(arrays):
    return {name: tuple(array.shape) for name, array in arrays.items() if array.ndim}


@pytest.mark.parametrize("name", BOTH_HAVE)
def test_names_and_defaults_of_both(name):
    with torch.device("meta"):
        of_timm = peers.make(name)
        of_torchvision = getattr(torchvision.models, name)(num_classes=peers.NUM_CLASSES)
    names = MODELS[name].names
    translated = names.translate(of_torchvision.state_dict())
    assert shapes(translated) == shapes(names.translate(of_timm.state_dict()))
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


def test_weights_of_torchvision(tmp_path, record):
    name = "efficientnet_b0"
    torch.manual_seed(0)
    peer = peers.drawn(torchvision.models.efficientnet_b0(num_classes=peers.NUM_CLASSES))
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(peer.state_dict(), path)
    model, images = build(name), images_of(SHAPE)
    variables = loaded(name, path)
    apply = functools.partial(model.apply, train=False)
    logits = computed(apply, variables, images)
    error = difference(logits, peers.apply(peer, images))
    record(name, "by torchvision", f"{error:.1e}")
    assert error < BOUND
