"""Layers are counted from the head, by one rule for every network."""

import jax
import pytest

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


def test_layers_are_in_the_order_of_their_calls_and_not_of_their_names():
    network = ResNet(axis_name=None, stage_sizes=(11, 1, 1, 1), block=BasicBlock, width=2)
    found = distances(network)
    assert found["layer1_10"] == found["layer1_9"] - 1 == found["layer4_0"] + 3
