"""Files of weights that are written here are read by torchvision and timm."""

import pytest
import safetensors.numpy
import safetensors.torch
import torch

from tests.peers.networks import peers
from tests.peers.networks.comparison import PUBLISHED, loaded
from tests.peers.networks.published_networks import publisher_of
from train.models import MODELS
from train.models.weights.names import arrays_of


# With batch norm, with a convolution as its last layer, and with tokens.
@pytest.mark.parametrize("name", ["resnet18", "squeezenet", "vit_small_patch14_reg4_dinov2"])
def test_pytorch_reads_what_is_written(name, tmp_path):
    peer = peers.make(name)
    # As the authors of Pl@ntNet-300K publish theirs.
    saved = {"epoch": 29, "model": peer.state_dict(), "optimizer": {}}
    torch.save(saved, tmp_path / "best_acc.tar")
    variables = loaded(name, tmp_path / "best_acc.tar")
    names = MODELS[name].names
    assert names is not None
    written = arrays_of(variables["params"], variables["batch_stats"], names)
    safetensors.numpy.save_file(written, tmp_path / "written")
    again = peers.make(name)
    with torch.no_grad():
        for tensor in [*again.parameters(), *again.buffers()]:
            tensor.zero_()
    again.load_state_dict(safetensors.torch.load_file(tmp_path / "written"), strict=True)
    found = again.state_dict()
    for key, tensor in peer.state_dict().items():
        assert torch.equal(found[key], tensor), key


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_publisher_of_the_names(name):
    names = MODELS[name].names
    assert names is not None
    assert names.publisher == publisher_of(name)
