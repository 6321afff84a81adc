"""An entry of the registry: a network without its head, and what is published for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from flax import linen as nn

from train.models.weights.names import PublishedNames


class Normalization(NamedTuple):
    """The mean and the standard deviation of each channel, of values in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


# ImageNet's training images.
IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# To [-1, 1]: for the Inceptions, and for vision transformers of 2021.
HALVES = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# The images that CLIP was trained on.
CLIP = Normalization((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))

# By the values of `config.model.normalization`, beside "dataset" for the data set's own. They are
# for red, green and blue.
NORMALIZATIONS = {"imagenet": IMAGENET, "halves": HALVES, "clip": CLIP}


@dataclass(frozen=True)
class ModelSpec:
    """A network without its head.

    Attributes:
        build: makes the module of features; called with `axis_name` and `dtype`. The features are
            float32 [n, d], or [n, height, width, d] if the head is applied at every place: its
            logits are then rectified and averaged over the image.
        inputs: what it takes: "images" or "features"; see `DatasetSpec`.
        options: the fields of `config.model` that `build` takes too, of
            `configuration.groups.MODEL_OPTIONS`.
        names: what files of weights call its variables; None if the program reads none.
        num_parameters: the number of its parameters, without the head and without those that
            depend on the size of the images. It distinguishes files of weights.
        has_blocks: whether it has blocks, each of which ends with `kept_by_remat` in training.
        normalization: the normalization of the images that published weights were trained on.
        image_size: the height and width of these images.
        smallest: the least height and width of an image.
        multiple_of: what divides the height and the width of every image.
    """

    build: Callable[..., nn.Module]
    inputs: tuple[str, ...] = ("images",)
    options: tuple[str, ...] = ()
    names: PublishedNames | None = None
    num_parameters: int | None = None
    has_blocks: bool = False
    normalization: Normalization = IMAGENET
    image_size: int = 224
    smallest: int = 1
    multiple_of: int = 1
