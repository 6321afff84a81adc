"""Layers are counted from the head, by one rule for every network."""

import jax
import pytest
from flax import linen as nn

from tests.parts.program.models.tiny import FAMILIES, IMAGE_SHAPE
from train.models import HEADS
from train.models.classifier import Classifier
from train.models.layers_by_depth import distances_from_head
from train.models.networks.resnet import BasicBlock, ResNet


def distances(network, head="linear"):
    """The distances by the names of the modules inside the network; the same within a module."""
    found = distances_from_head(Classifier(network, HEADS[head](10)), IMAGE_SHAPE)
    assert set(jax.tree.leaves(found["head"])) == {0}
    of_modules = {name: set(jax.tree.leaves(part)) for name, part in found["features"].items()}
    assert all(len(numbers) == 1 for numbers in of_modules.values())
    return {name: numbers.pop() for name, numbers in of_modules.items()}


EXPECTED = {
    "small_cnn": [("Conv_0", "BatchNorm_0"), ("Conv_1", "BatchNorm_1"), ("Conv_2", "BatchNorm_2")],
    "strided_cnn": [(f"layer{number}_conv", f"layer{number}_bn") for number in range(1, 5)],
    "mlp": [("Dense_0", "BatchNorm_0"), ("Dense_1", "BatchNorm_1")],
    "basic": [
        ("conv1", "bn1"),
        *[(f"layer{block}",) for block in ("1_0", "2_0", "2_1", "3_0", "4_0")],
    ],
    "bottleneck": [
        ("conv1", "bn1"),
        *[(f"layer{block}",) for block in ("1_0", "1_1", "2_0", "3_0", "4_0")],
    ],
    "shufflenet": [
        ("conv1_conv", "conv1_bn"),
        *[(f"stage{unit}",) for unit in ("2_0", "2_1", "3_0", "4_0")],
        ("conv5_conv", "conv5_bn"),
    ],
    "large_densenet": [
        ("conv0", "norm0"),
        ("denseblock1_denselayer1",),
        ("transition1",),
        *[(f"denseblock2_denselayer{layer}",) for layer in (1, 2)],
        ("transition2",),
        ("denseblock3_denselayer1",),
        ("transition3",),
        ("denseblock4_denselayer1", "norm5"),
    ],
    "inception": [("stem_conv", "stem_bn"), ("mixed",), ("residual",), ("reduction",)],
    "vit": [
        ("patch_embed", "cls_token", "reg_token", "pos_embed", "norm_pre"),
        ("blocks_0",),
        ("blocks_1", "norm"),
        ("proj",),
    ],
}


@pytest.mark.parametrize("family", EXPECTED)
def test_norms_belong_to_the_layer_before_them_and_a_block_is_a_layer(family):
    layers = EXPECTED[family]
    network = FAMILIES[family](axis_name=None)
    assert distances(network, "two_heads") == {
        name: len(layers) - index for index, names in enumerate(layers) for name in names
    }


def test_each_convolution_of_a_densenet_is_a_layer():
    found = distances(FAMILIES["densenet"](axis_name=None))
    # The first, two in each of 3 times 2 bottleneck layers, and the two between blocks.
    assert found["conv1"] == 1 + 12 + 2
    assert found["transition1_conv"] == 2 * (2 * 2) + 1 + 1
    # Norms come before their convolutions here.
    assert found["block1_0_bn1"] == found["conv1"]
    assert found["bn"] == found["block3_1_conv2"] == 1


def test_layers_are_in_the_order_of_their_calls_and_not_of_their_names():
    network = ResNet(None, stage_sizes=(11, 1, 1, 1), block=BasicBlock, width=2)
    found = distances(network)
    assert found["layer1_10"] == found["layer1_9"] - 1 == found["layer4_0"] + 3


class Wrapped(nn.Module):
    """Somebody's network, made to be called as ours are."""

    inner: nn.Module

    @nn.compact
    def __call__(self, images, *, train):
        return self.inner(images, train=train)


def test_of_a_network_that_wraps_another_the_layers_of_that_one_count():
    found = distances_from_head(
        Classifier(Wrapped(FAMILIES["mlp"](axis_name=None)), HEADS["linear"](10)), IMAGE_SHAPE
    )
    assert found["features"]["inner"]["Dense_0"] == {"kernel": 2}
    assert found["features"]["inner"]["BatchNorm_1"] == {"bias": 1, "scale": 1}


class OwnParameters(nn.Module):
    """A network with parameters that are in no module, before and after a layer."""

    @nn.compact
    def __call__(self, images, *, train):
        shift = self.param("shift", nn.initializers.zeros, (1, 1, 1, images.shape[-1]))
        hidden = nn.Dense(4)((images + shift).mean(axis=(1, 2)))
        hidden = hidden + self.param("position", nn.initializers.zeros, (1, 4))
        return nn.Dense(4)(hidden)


def test_parameters_in_no_module_belong_to_the_layer_before_them():
    expected = {"shift": 2, "Dense_0": 2, "position": 2, "Dense_1": 1}
    assert distances(OwnParameters()) == expected
