"""Files of PyTorch's own, in all its ways to write a state dict, are read as they were."""

import functools

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.peers.networks import peers
from tests.peers.networks.comparison import loaded
from train.foundation.errors import UserError
from train.models import published
from train.models.weights.names import arrays_of

NAME = "resnet18"
NAMES = published(NAME).names


@functools.cache
def state_dict():
    return peers.make(NAME).state_dict()


def read(path):
    """The arrays of a file, once it was read."""
    variables = loaded(NAME, path)
    return arrays_of(variables["params"], variables["batch_stats"], NAMES)


def assert_equal(arrays, state_dict):
    """Bit for bit, in any order, but for the counts of batches that PyTorch never uses."""
    wanted = {key for key in state_dict if not key.endswith("num_batches_tracked")}
    assert arrays.keys() == wanted
    for key in wanted:
        np.testing.assert_array_equal(arrays[key], state_dict[key].detach().float().numpy())


def rows_in_another_order(tensor):
    """The same numbers, as a view that is not contiguous: each dimension laid out last to first."""
    dims = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(dims).contiguous().permute(dims)


def in_one_storage(tensors):
    """The same numbers, as views at offsets of one long tensor for each type."""
    merged = {}
    for dtype in {tensor.dtype for tensor in tensors.values()}:
        of_type = {key: tensor for key, tensor in tensors.items() if tensor.dtype == dtype}
        merged_type = torch.cat([tensor.reshape(-1) for tensor in of_type.values()])
        parts = merged_type.split([tensor.numel() for tensor in of_type.values()])
        merged |= {
            key: part.view(tensor.shape)
            for (key, tensor), part in zip(of_type.items(), parts, strict=True)
        }
    return merged


def converted(dtype):
    return lambda tensors: {
        key: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for key, tensor in tensors.items()
    }


def plantnet_checkpoint(tensors):
    """As Pl@ntNet-300K's program saves it, beside an optimiser that has made a step."""
    weights = [torch.nn.Parameter(torch.ones(3))]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True)
    weights[0].sum().backward()
    optimizer.step()
    return {"epoch": 29, "model": tensors, "optimizer": optimizer.state_dict()}


SAVED = {
    "plain": lambda tensors: tensors,
    "plantnet": plantnet_checkpoint,
    "wrapped": lambda tensors: {
        "state_dict": {f"module.{key}": tensor for key, tensor in tensors.items()},
        "best": 0.7,
    },
    "parameters": lambda tensors: {
        key: torch.nn.Parameter(tensor) if tensor.is_floating_point() else tensor
        for key, tensor in tensors.items()
    },
    "half": converted(torch.float16),
    "bfloat16": converted(torch.bfloat16),
    "double": converted(torch.float64),
    "strided": lambda tensors: {
        key: rows_in_another_order(tensor) for key, tensor in tensors.items()
    },
    "one storage": in_one_storage,
}
# What converting rounds to; the others are bit for bit.
ROUNDED = {"half": torch.float16, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("kind", SAVED)
def test_files_of_torch_save(kind, as_zip, tmp_path):
    tensors = state_dict()
    path = tmp_path / "model.tar"
    torch.save(SAVED[kind](tensors), path, _use_new_zipfile_serialization=as_zip)
    expected = {key: tensor.to(ROUNDED.get(kind, tensor.dtype)) for key, tensor in tensors.items()}
    assert_equal(read(path), expected)


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "legacy"])
def test_a_whole_model_is_refused(as_zip, tmp_path):
    path = tmp_path / "model.pth"
    torch.save(torch.nn.Linear(2, 3), path, _use_new_zipfile_serialization=as_zip)
    with pytest.raises(UserError, match=r"asks for 'torch\.nn\.modules\.linear\.Linear'"):
        read(path)


def test_safetensors_in_bfloat16(tmp_path):
    tensors = converted(torch.bfloat16)(state_dict())
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path)
    assert_equal(read(path), tensors)
