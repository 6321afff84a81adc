"""A small network in the place of ResNet-50, and files of its weights."""

import functools

import numpy as np

from tests.train.models import torchvision
from tests.train.models.tiny import in_float32, random_variables
from train.models import HEADS, MODELS, ModelSpec, pretrained
from train.models.classifier import Classifier
from train.models.resnet import RESNETS, BasicBlock, ResNet

# As wide as a ResNet, by which files of weights are told apart.
SMALL = functools.partial(ResNet, stage_sizes=(1, 0, 0, 0), block=BasicBlock)
NUM_FEATURES = 64


def shrink(set_item):
    """Has the small network in the place of ResNet-50; called as `dict.__setitem__`."""
    set_item(RESNETS, "resnet50", SMALL)
    set_item(MODELS, "resnet50", ModelSpec(SMALL, pretrained.load_resnet))


def weights():
    """Random variables of it with a head of 1,000 classes, and the same as torchvision's arrays."""
    model = Classifier(SMALL(axis_name=None), HEADS["linear"](1000))
    variables = in_float32(random_variables(np.random.default_rng(0), model))
    return variables, torchvision.arrays_of(variables["params"], variables["batch_stats"])
