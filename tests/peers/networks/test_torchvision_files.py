"""Files that torchvision publishes and that differ from its networks."""

import re

import numpy as np
import safetensors.torch
import torch

from tests.peers.networks import peers
from tests.peers.networks.comparison import loaded
from tests.peers.networks.published_networks import torchvision
from train.models import MODELS, load_pretrained, network_of
from train.models.model_spec import IMAGENET
from train.models.weights.names import arrays_of


def assert_read(name, path, peer):
    found = loaded(name, path)
    arrays = arrays_of(found["params"], found["batch_stats"], MODELS[name].names)
    expected = peer.state_dict()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, expected[key].numpy())
    assert network_of(str(path)) == name
    return found


def test_the_older_names_of_a_densenet(tmp_path):
    peer = peers.make("densenet121")
    older = {
        re.sub(r"(denselayer\d+\.(norm|conv))(\d)", r"\1.\3", key): tensor
        for key, tensor in peer.state_dict().items()
    }
    assert not older.keys() <= peer.state_dict().keys()
    path = tmp_path / "densenet121.safetensors"
    safetensors.torch.save_file(older, path)
    assert_read("densenet121", path, peer)


def test_the_auxiliary_head_of_an_inception(tmp_path):
    peer = torchvision.models.inception_v3(num_classes=peers.NUM_CLASSES, init_weights=False)
    path = tmp_path / "inception_v3.safetensors"
    safetensors.torch.save_file(peer.state_dict(), path)
    found = assert_read("inception_v3", path, peer)
    message = load_pretrained("inception_v3", str(path), *found.values()).message
    assert "its head too, of 37 classes; left out: 'AuxLogits.conv0.bn.bias', " in message


def test_torchvision_rescales_images_for_an_inception():
    """Its published network takes images normalised as for others, and sees those in [-1, 1]."""
    peer = torchvision.models.inception_v3(transform_input=True, init_weights=False)
    pixels = np.random.default_rng(0).uniform(size=(2, 4, 4, 3))
    images = (pixels - IMAGENET.mean) / IMAGENET.std
    seen = peer._transform_input(torch.tensor(images.transpose(0, 3, 1, 2)))
    mean, std = MODELS["inception_v3"].normalization
    np.testing.assert_allclose(seen.numpy().transpose(0, 2, 3, 1), (pixels - mean) / std)
