"""Every network computes what torchvision's or timm's does with the same weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch

from tests.peers.networks import peers
from tests.peers.networks.comparison import (
    BOUND,
    NUM_IMAGES,
    build,
    compiled,
    computed,
    difference,
    each_network,
    images_of,
    loaded,
    one_of_each_family,
    with_batch_norm,
)
from train.models import MODELS
from train.models.weights import files
from train.models.weights.names import arrays_of
from train.training.state import num_parameters

# If rounding moves one activation across the kink of a ReLU, its entire share of the gradients
# below changes: about 1e-4 of them in these small images.
_GRADIENT_BOUND = 1e-3


def image_shapes(name):
    """Two sizes with different heights and widths; odd ones if the network takes them."""
    unit = MODELS[name].multiple_of
    if unit > 1:
        return [(5 * unit, 7 * unit, 3), (8 * unit, 4 * unit, 3)]
    return [(96, 128, 3), (111, 97, 3)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="session")
def latest():
    """The network of the latest test, by its name; only one, because the largest take gigabytes."""
    return {}


@pytest.fixture
def pair(name, folder, latest):
    """A peer, and the file of its weights, for the parameter `name`."""
    path = folder / "peer.safetensors"
    if name not in latest:
        latest.clear()
        latest[name] = peers.make(name)
        safetensors.torch.save_file(latest[name].state_dict(), path)
    return latest[name], path


@each_network
def test_evaluation(name, pair, record):
    peer, path = pair
    model = build(name)
    for number, shape in enumerate(image_shapes(name), start=1):
        variables = loaded(name, path)
        images = images_of(shape)
        apply = functools.partial(model.apply, train=False)
        logits = computed(apply, variables, images)
        error = difference(logits, peers.apply(peer, images))
        record(name, f"evaluation {number}", f"{error:.1e}")
        assert error < BOUND


@each_network
def test_variables(name, pair, record):
    """What is read is written as it was, under the same names, none missing and none more."""
    peer, path = pair
    variables = loaded(name, path)
    expected = sum(parameter.numel() for parameter in peer.parameters())
    record(name, "parameters", f"{expected:,}")
    assert num_parameters(variables["params"]) == expected
    spec = MODELS[name]
    assert spec.names.num_parameters(files.read(path)) == spec.num_parameters
    written = arrays_of(variables["params"], variables["batch_stats"], spec.names)
    tensors = peer.state_dict()
    # PyTorch counts batches, and uses the counts for nothing here.
    assert written.keys() == {key for key in tensors if not key.endswith("num_batches_tracked")}
    for key, array in written.items():
        np.testing.assert_array_equal(array, tensors[key].numpy())


@with_batch_norm()
def test_training(name, pair, record):
    """The outputs of a second step, and the statistics of batch norm after it.

    In training the others compute what they do in evaluation: dropout is off.
    """
    peer, path = pair
    shape = image_shapes(name)[0]
    model = build(name)
    variables = loaded(name, path)
    images = np.stack([images_of(shape), images_of(shape)[:, ::-1] + 0.5])
    step = compiled(
        functools.partial(model.apply, train=True, mutable=["batch_stats"]), variables, images[0]
    )
    for batch in images:
        logits, updates = step(variables, batch)
        variables = {"params": variables["params"], **updates}
    found = arrays_of({}, variables["batch_stats"], MODELS[name].names)
    expected, statistics = peers.two_steps(peer, images, torch.float32)
    bound = BOUND
    if difference(logits, expected) > BOUND:
        # Batch norm amplifies rounding, the more so the deeper a network is. No implementation in
        # float32 can be held to less than a few times what PyTorch's own is off.
        rounded = expected
        expected, statistics = peers.two_steps(peer, images, torch.float64)
        bound = 4 * difference(rounded, expected)
        record(name, "PyTorch's own", f"{difference(rounded, expected):.1e}")
    error = difference(logits, expected)
    record(name, "training", f"{error:.1e}")
    assert found.keys() == statistics.keys()
    worst = max(difference(found[key], one) for key, one in statistics.items())
    record(name, "statistics", f"{worst:.1e}")
    assert error < bound
    assert worst < bound


@one_of_each_family
def test_gradients(name, pair, record):
    """Gradients of the sum of the logits times fixed numbers, by every parameter.

    In evaluation: in training, batch norm amplifies rounding until activations cross the kinks of
    ReLUs, and PyTorch's own gradients in float32 are off by a hundredth.
    """
    peer, path = pair
    shape = image_shapes(name)[0]
    model = build(name)
    variables = loaded(name, path)
    images = images_of(shape)
    weights = np.random.default_rng(1).normal(size=(NUM_IMAGES, peers.NUM_CLASSES))
    weights = weights.astype(np.float32)

    def weighted(params, batch_stats, images):
        variables = {"params": params, "batch_stats": batch_stats}
        return jnp.vdot(model.apply(variables, images, train=False), weights)

    arguments = variables["params"], variables["batch_stats"], images
    by_params = computed(jax.grad(weighted), *arguments)
    found = arrays_of(by_params, {}, MODELS[name].names)
    expected = peers.gradients(peer, images, weights)
    assert found.keys() == expected.keys()
    error = relative_norm(found, expected)
    record(name, "gradients", f"{error:.1e}")
    assert error < _GRADIENT_BOUND
    # And each gradient in units of its own size, if it is above the rounding of larger ones.
    largest = max(np.linalg.norm(one) for one in expected.values())
    for key, one in expected.items():
        own = np.linalg.norm(found[key] - one)
        assert own < 10 * _GRADIENT_BOUND * max(np.linalg.norm(one), 1e-3 * largest), key


def relative_norm(found, expected):
    squares = [np.sum((found[key] - one) ** 2) for key, one in expected.items()]
    return float(np.sqrt(sum(squares) / sum(np.sum(one**2) for one in expected.values())))
