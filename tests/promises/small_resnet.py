"""A small residual network with the names of ResNet-18's weights, its features, and photographs."""

import dataclasses
import functools

import numpy as np
from PIL import Image

from train import models

WIDTH, NUM_FEATURES, NUM_CLASSES, IMAGE_SIZE = 4, 8, 5, 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# As PyTorch has them: out, in, height, width.
_SHAPES = {
    "conv1": (4, 3, 7, 7),
    "bn1": (4,),
    "layer1.0.conv1": (4, 4, 3, 3),
    "layer1.0.bn1": (4,),
    "layer1.0.conv2": (4, 4, 3, 3),
    "layer1.0.bn2": (4,),
    "layer2.0.conv1": (8, 4, 3, 3),
    "layer2.0.bn1": (8,),
    "layer2.0.conv2": (8, 8, 3, 3),
    "layer2.0.bn2": (8,),
    "layer2.0.downsample.0": (8, 4, 1, 1),
    "layer2.0.downsample.1": (8,),
}


def weights():
    """The arrays of a file of weights by their names; no two numbers alike."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in _SHAPES.items():
        if len(shape) > 1:
            scale = np.sqrt(2 / np.prod(shape[1:]))
            arrays[f"{name}.weight"] = scale * rng.normal(size=shape)
            continue
        arrays[f"{name}.weight"] = rng.uniform(0.5, 1.5, shape)
        arrays[f"{name}.bias"] = rng.normal(size=shape)
        arrays[f"{name}.running_mean"] = rng.normal(size=shape)
        arrays[f"{name}.running_var"] = rng.uniform(0.5, 2, shape)
    arrays["fc.weight"] = rng.normal(size=(NUM_CLASSES, NUM_FEATURES))
    arrays["fc.bias"] = rng.normal(size=NUM_CLASSES)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def features(arrays, pixels):
    """The features of pixels [n, height, width, 3] in evaluation: layer by layer in 64 bits."""
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}

    def conv(name, inputs, stride=1):
        kernel = arrays[f"{name}.weight"]
        size, (height, width) = kernel.shape[-1], inputs.shape[2:]
        margin = size // 2
        padded = np.pad(inputs, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
        return sum(
            np.einsum(
                "nchw,oc->nohw",
                padded[:, :, row : row + height : stride, column : column + width : stride],
                kernel[:, :, row, column],
            )
            for row in range(size)
            for column in range(size)
        )

    def norm(name, inputs):
        scale, shift, mean, var = (
            arrays[f"{name}.{part}"][:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (inputs - mean) / np.sqrt(var + 1e-5) * scale + shift

    def block(name, inputs, stride):
        hidden = np.maximum(norm(f"{name}.bn1", conv(f"{name}.conv1", inputs, stride)), 0)
        hidden = norm(f"{name}.bn2", conv(f"{name}.conv2", hidden))
        if stride > 1:
            inputs = norm(f"{name}.downsample.1", conv(f"{name}.downsample.0", inputs, stride))
        return np.maximum(hidden + inputs, 0)

    images = ((pixels / 255 - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2)
    hidden = np.maximum(norm("bn1", conv("conv1", images, 2)), 0)
    padded = np.pad(hidden, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    size = hidden.shape[2]
    hidden = np.max(
        [
            padded[:, :, row : row + size : 2, column : column + size : 2]
            for row in range(3)
            for column in range(3)
        ],
        axis=0,
    )
    return block("layer2.0", block("layer1.0", hidden, 1), 2).mean(axis=(2, 3))


CLASSES = ("ash", "birch", "cedar")


def photographs(root, each, seed=0):
    """Writes photographs of the network's size, coarse and of the colour of their class."""
    rng = np.random.default_rng(seed)
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for number in range(each):
            coarse = rng.integers(0, 200, (6, 5, 3))
            coarse[..., label] += 50
            image = Image.fromarray(coarse.astype(np.uint8)).resize((IMAGE_SIZE, IMAGE_SIZE))
            image.save(root / name / f"{number:02}.png")


_RESNET = models.MODELS["resnet18"]
# An import path to it is the name of a network.
NETWORK = dataclasses.replace(
    _RESNET,
    build=functools.partial(_RESNET.build, stage_sizes=(1, 1, 0, 0), width=WIDTH),
    num_parameters=sum(
        array.size
        for name, array in weights().items()
        if "running" not in name and not name.startswith("fc")
    ),
)
