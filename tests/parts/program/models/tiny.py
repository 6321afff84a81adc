"""Small members of every family, and variables drawn without initialising a network."""

import functools

import jax
import numpy as np

from train.models.model_spec import ModelSpec
from train.models.networks import resnet
from train.models.networks.alexnet import VGG, AlexNet
from train.models.networks.convnext import ConvNeXt
from train.models.networks.densenet import DenseNet
from train.models.networks.efficientnet import EfficientNet, Stage
from train.models.networks.inception_blocks import (
    Conv,
    Fork,
    Inception,
    halving_conv,
    halving_pool,
    mean_pool,
    mixed,
)
from train.models.networks.inception_v4 import residual
from train.models.networks.mobilenet import MobileNetV2, MobileNetV3, block
from train.models.networks.resnet import BasicBlock, Bottleneck, ResNet
from train.models.networks.shufflenet import ShuffleNet
from train.models.networks.small import MLP, SmallCNN, StridedCNN
from train.models.networks.squeezenet import SqueezeNet
from train.models.networks.vit import VisionTransformer

IMAGE_SHAPE = (32, 32, 3)

FAMILIES = {
    "small_cnn": functools.partial(SmallCNN, widths=(4, 4, 8)),
    "strided_cnn": functools.partial(StridedCNN, widths=(2, 4, 4, 8)),
    "mlp": functools.partial(MLP, width=8),
    "densenet": functools.partial(
        DenseNet, growth=2, layers_of_blocks=(2, 2, 2), of_small_images=True
    ),
    "large_densenet": functools.partial(DenseNet, growth=2, layers_of_blocks=(1, 2, 1, 1)),
    "inception": functools.partial(
        Inception,
        steps=(
            ("stem", halving_conv(4)),
            (
                "mixed",
                mixed(
                    {
                        "branch0": (Conv(2), Fork(2)),
                        "branch1": (functools.partial(mean_pool, counts_padding=False), Conv(4)),
                        "pool": (mean_pool,),
                    }
                ),
            ),
            ("residual", residual({"branch0": (Conv(2, (1, 3)),)}, 0.5)),
            ("reduction", mixed({"conv": (halving_conv(4),), "pool": (halving_pool,)})),
        ),
        dropout=0.0,
    ),
    "basic": functools.partial(ResNet, stage_sizes=(1, 2, 1, 1), block=BasicBlock, width=4),
    "bottleneck": functools.partial(
        ResNet,
        stage_sizes=(2, 1, 1, 1),
        block=functools.partial(Bottleneck, widening=2),
        width=4,
    ),
    "shufflenet": functools.partial(ShuffleNet, stage_sizes=(2, 1, 1), widths=(4, 4, 8, 8, 8)),
    "mobilenet_v2": functools.partial(
        MobileNetV2, stages=((1, 4, 1, 1), (2, 6, 2, 2)), stem=4, last=8, dropout=0.0
    ),
    "mobilenet_v3": functools.partial(
        MobileNetV3,
        blocks=(
            block(4, 3, 2, 4, squeezes=True, hard_swish=False),
            block(8, 5, 1, 4, squeezes=False, hard_swish=True),
        ),
        features=8,
        stem=4,
        dropout=0.0,
    ),
    "efficientnet": functools.partial(
        EfficientNet,
        stages=(Stage(1, 3, 1, 4, 1), Stage(2, 5, 2, 4, 2)),
        stem=4,
        last=8,
        of_tensorflow=True,
        dropout=0.0,
        stochastic_depth=0.0,
    ),
    "convnext": functools.partial(
        ConvNeXt, stage_sizes=(1, 1, 2, 1), width=4, stochastic_depth=0.0
    ),
    # With positions of 9 patches, for the 16 of an image.
    "vit": functools.partial(
        VisionTransformer,
        patch_size=8,
        grid_size=3,
        width=8,
        depth=2,
        num_heads=2,
        registers=2,
        layer_scale=1.0,
        projection=4,
    ),
}

# Without batch norm, and for images of 63 by 63 pixels at least.
WITHOUT_NORM = {
    "alexnet": functools.partial(AlexNet, widths=(2, 2, 3, 2, 2), hidden=8),
    "vgg": functools.partial(VGG, widths=(2, 2, 2, 3, 2), hidden=8),
    "squeezenet": functools.partial(SqueezeNet, width=2, squeezed=1),
}


def shapes(model, image_shape=IMAGE_SHAPE):
    """Shapes and dtypes of what the model gives and of its variables, at no cost."""
    images = jax.ShapeDtypeStruct((2, *image_shape), np.float32)
    return jax.eval_shape(
        lambda key, images: model.init_with_output(key, images, train=True),
        jax.random.key(0),
        images,
    )


def random_variables(rng, model, image_shape=IMAGE_SHAPE):
    """Variables in float64 of the size of a trained network's, no two alike."""
    draws = {
        "kernel": lambda shape: rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1])),
        "scale": lambda shape: rng.uniform(0.5, 1.5, shape),
        "bias": lambda shape: rng.normal(size=shape),
        "mean": lambda shape: rng.normal(size=shape),
        "var": lambda shape: rng.uniform(0.5, 2, shape),
        "gamma": lambda shape: rng.uniform(0.5, 1.5, shape),
        "cls_token": lambda shape: rng.normal(size=shape),
        "reg_token": lambda shape: rng.normal(size=shape),
        "pos_embed": lambda shape: rng.normal(size=shape),
    }
    _, variables = shapes(model, image_shape)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: draws[path[-1].key](leaf.shape), variables
    )


def in_float32(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)


# Replaces ResNet-50 in runs of the complete program: it reads the same files of weights.
SMALL_RESNET = ModelSpec(
    functools.partial(ResNet, stage_sizes=(1, 0, 0, 0), block=BasicBlock, width=4),
    names=resnet.NETWORKS["resnet50"].names,
)
