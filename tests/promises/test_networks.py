"""Networks: their publishers' numbers of parameters, and small ones of each family by NumPy."""

import copy
import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
import pytest

from tests.promises import numpy_networks as by_numpy
from tests.rows import rows
from train.models import FAMILIES, MODELS, build_model, check_image_shape

CLASSES = 5
# Of one network of each family, with a head of 1,000 classes.
PUBLISHED = {
    "alexnet": 61_100_840,
    "convnext_tiny": 28_589_128,
    "resnet18": 11_689_512,
    "shufflenet": 2_278_604,
    "squeezenet": 1_248_424,
    "vgg11": 132_863_336,
    "vit_small_patch16_224": 22_050_664,
}
# With so many layers that they take seconds.
DEEP = {
    "densenet121": 7_978_856,
    "efficientnet_b0": 5_288_548,
    "inception_resnet_v2": 55_843_464,
    "inception_v3": 23_834_568,
    "inception_v4": 42_679_816,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
}


def build(name, num_classes=CLASSES, **options):
    return build_model(
        name,
        num_classes=num_classes,
        head="linear",
        axis_name=None,
        half_precision=False,
        options=options,
    )


def shapes(model, image_shape):
    """The shapes of the logits of two images and of the variables, at no cost."""
    images = jax.ShapeDtypeStruct((2, *image_shape), np.float32)
    init = functools.partial(model.init_with_output, train=False)
    return jax.eval_shape(init, jax.random.key(0), images)


def test_each_family_has_a_network_here():
    assert all(family.NETWORKS.keys() & (PUBLISHED | DEEP).keys() for family in FAMILIES)


@pytest.mark.parametrize("name", rows(PUBLISHED, DEEP))
def test_a_network_is_as_large_as_its_publishers(name):
    size = MODELS[name].image_size
    assert check_image_shape(name, (size, size, 3)) is None
    logits, variables = shapes(build(name, 1000), (size, size, 3))
    assert (logits.shape, logits.dtype) == ((2, 1000), np.float32)
    sizes = [leaf.size for leaf in jax.tree.leaves(variables["params"])]
    assert sum(sizes) == (PUBLISHED | DEEP)[name]


def of_published(name, option, number, *others):
    """The first of what a published network is made of, and others by their indices."""
    parts = MODELS[name].build.keywords[option]
    return {option: (*parts[:number], *(parts[other] for other in others))}


@dataclasses.dataclass(frozen=True)
class Small:
    """What makes a network small, and what it then is.

    Attributes:
        options: of its layers.
        features: the features of images, by NumPy.
        epsilon: what its norms add to variances.
        pixels: the height and width of the images.
    """

    options: dict
    features: Callable
    epsilon: float = 1e-5
    pixels: int = 32


SMALL_VIT = {"patch_size": 8, "grid_size": 4, "width": 8, "depth": 2, "num_heads": 2}
SMALL = {
    "small_cnn": Small({"widths": (3, 4, 5)}, by_numpy.small_cnn, pixels=8),
    "strided_cnn": Small({"widths": (3, 4, 5)}, by_numpy.strided_cnn),
    "mlp": Small({"width": 6}, by_numpy.mlp, pixels=8),
    "resnet18": Small({"stage_sizes": (1, 2, 0, 0), "width": 4}, by_numpy.resnet),
    "wide_resnet50_2": Small({"stage_sizes": (1, 1, 0, 0), "width": 4}, by_numpy.resnet),
    "densenet121": Small(
        {"layers_of_blocks": (2, 1, 1, 1), "growth": 2}, by_numpy.densenet, pixels=64
    ),
    "densenet_40_40": Small({"layers_of_blocks": (2, 1), "growth": 2}, by_numpy.densenet, pixels=8),
    "mobilenet_v2": Small(
        {"stages": ((1, 4, 1, 1), (6, 6, 2, 2)), "stem": 4, "last": 8},
        functools.partial(by_numpy.mobile, activation=by_numpy.relu6, strides=(1, 2, 1)),
    ),
    "mobilenet_v3_large": Small(
        of_published("mobilenet_v3_large", "blocks", 4) | {"features": 8},
        functools.partial(by_numpy.mobilenet_v3, strides=(1, 2, 1, 2)),
        epsilon=1e-3,
    ),
    "efficientnet_b0": Small(
        of_published("efficientnet_b0", "stages", 2) | {"stem": 8, "last": 8},
        functools.partial(by_numpy.mobile, activation=by_numpy.silu, strides=(1, 2, 1)),
    ),
    "shufflenet": Small({"stage_sizes": (2, 1, 1), "widths": (4, 4, 8, 8, 8)}, by_numpy.shufflenet),
    "squeezenet": Small({"width": 4, "squeezed": 1}, by_numpy.squeezenet, pixels=63),
    "alexnet": Small({"widths": (2, 2, 3, 2, 2), "hidden": 6}, by_numpy.alexnet, pixels=127),
    "vgg11": Small({"widths": (2, 2, 3, 2, 2), "hidden": 6}, by_numpy.vgg, pixels=64),
    "inception_v3": Small(
        of_published("inception_v3", "steps", 8, 11), by_numpy.inception, epsilon=1e-3, pixels=75
    ),
    "convnext_tiny": Small(
        {"stage_sizes": (1, 1, 0, 0), "width": 4}, by_numpy.convnext, epsilon=1e-6
    ),
    "vit_small_patch14_reg4_dinov2": Small(
        SMALL_VIT | {"registers": 2},
        functools.partial(by_numpy.vit, activation=by_numpy.gelu),
        epsilon=1e-6,
    ),
    "vit_base_patch16_clip_quickgelu_224": Small(
        SMALL_VIT | {"projection": 4},
        functools.partial(by_numpy.vit, activation=by_numpy.quick_gelu),
    ),
}


def draw(rng, path, shape):
    """Numbers of a variable that do not vanish or explode through some ten layers."""
    match path[-1].key:
        case "kernel":
            return rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))
        case "scale" | "gamma":
            return rng.uniform(0.3, 0.6, shape)
        # Small, so that what is added to them is seen.
        case "var":
            return rng.uniform(0.05, 0.3, shape)
    return rng.normal(size=shape) / 3


def evaluated(network, variables, images, *, train):
    """The logits by NumPy, and the statistics of the norms after them."""
    params = variables["params"]
    stats = copy.deepcopy(variables.get("batch_stats", {}))
    net = by_numpy.Net(params["features"], stats.get("features", {}), network.epsilon, train)
    logits = by_numpy.Net(params["head"], {}).dense("Dense_0", network.features(net, images))
    # SqueezeNet has a head at every place.
    return logits if logits.ndim == 2 else by_numpy.relu(logits).mean(axis=(1, 2)), stats


@pytest.mark.parametrize("name", SMALL)
def test_logits_are_those_of_the_written_out_network(name, rng):
    network = SMALL[name]
    model = build(name, **network.options)
    shape = (network.pixels, network.pixels, 3)
    variables = jax.tree_util.tree_map_with_path(
        lambda path, leaf: draw(rng, path, leaf.shape), shapes(model, shape)[1]
    )
    images = rng.normal(size=(4, *shape))
    small = jax.tree.map(lambda leaf: leaf.astype(np.float32), (variables, images))
    # Each is compiled.
    for train in (False, True) if name in ("mlp", "strided_cnn") else (False,):
        apply = jax.jit(functools.partial(model.apply, train=train, mutable=["batch_stats"]))
        found = apply(*small)
        logits, stats = evaluated(network, variables, images, train=train)
        # Float32, through some ten layers; in training a batch norm may see few numbers.
        bound = (1e-3 if train else 1e-4) * np.abs(logits).max()
        np.testing.assert_allclose(found[0], logits, rtol=0, atol=bound)
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
            found[1].get("batch_stats", {}),
            stats,
        )
