"""The means and deviations of channels that images are normalised by, for published weights."""

from typing import NamedTuple


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
