"""A small network in the place of ResNet-50, and files of its weights."""

import functools

import numpy as np

from tests.parts.program.models.tiny import in_float32, random_variables
from train.models import HEADS, MODELS
from train.models.classifier import Classifier
from train.models.model_spec import ModelSpec
from train.models.networks.resnet import NETWORKS, BasicBlock, ResNet
from train.models.weights.names import arrays_of

# As wide as a ResNet: the width distinguishes files of weights.
SMALL = functools.partial(ResNet, stage_sizes=(1, 0, 0, 0), block=BasicBlock)
NUM_FEATURES = 64
NAMES = NETWORKS["resnet50"].names
# 64 channels: the first convolution, two of 3 by 3, and the scales and biases of three norms.
NUM_PARAMETERS = 7 * 7 * 3 * 64 + 2 * 3 * 3 * 64 * 64 + 3 * 2 * 64


def shrink(set_item):
    """Has the small network in the place of ResNet-50; called as `dict.__setitem__`."""
    set_item(MODELS, "resnet50", ModelSpec(SMALL, names=NAMES, num_parameters=NUM_PARAMETERS))


def weights(num_classes=1000):
    """Random variables of it with a head for the classes, and the same as torchvision's arrays."""
    model = Classifier(SMALL(axis_name=None), HEADS["linear"](num_classes))
    variables = in_float32(random_variables(np.random.default_rng(0), model))
    return variables, arrays_of(variables["params"], variables["batch_stats"], NAMES)
