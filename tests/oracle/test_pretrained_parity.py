"""ResNets compute what those of transformers do with the same weights; files are PyTorch's own."""

import functools

import jax
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from transformers import ResNetConfig, ResNetForImageClassification

from train.foundation.errors import UserError
from train.models import build_model, load_pretrained, published
from train.models.weights.names import arrays_of

NUM_CLASSES = 37
# Of other heights than widths, and odd ones: a padding that is off by one shows at the edges.
IMAGE_SHAPE = (75, 62, 3)
NAMES = published("resnet18").names
CONFIGS = {
    "resnet18": {
        "depths": [2, 2, 2, 2],
        "hidden_sizes": [64, 128, 256, 512],
        "layer_type": "basic",
    },
    "resnet50": {"depths": [3, 4, 6, 3]},
}


@functools.cache
def theirs(name):
    """A network with random weights and statistics of the order of a trained one's."""
    config = ResNetConfig(num_labels=NUM_CLASSES, downsample_in_bottleneck=False, **CONFIGS[name])
    torch.manual_seed(0)
    model = ResNetForImageClassification(config).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.5)
                module.running_mean.normal_(0, 0.5)
                module.running_var.uniform_(0.5, 2)
    return model


def torchvision_names(name):
    """Torchvision's name for each in the state dict of transformers."""
    names = {}
    for theirs_name in theirs(name).state_dict():
        *modules, leaf = theirs_name.split(".")
        if modules[0] == "classifier":
            ours = "fc"
        elif modules[1] == "embedder":
            ours = "conv1" if modules[-1] == "convolution" else "bn1"
        else:  # resnet.encoder.stages.S.layers.B.(layer.N | shortcut).(convolution | normalization)
            is_conv = modules[-1] == "convolution"
            block = f"layer{int(modules[3]) + 1}.{modules[5]}"
            if modules[6] == "shortcut":
                ours = f"{block}.downsample.{0 if is_conv else 1}"
            else:
                ours = f"{block}.{'conv' if is_conv else 'bn'}{int(modules[7]) + 1}"
        names[theirs_name] = f"{ours}.{leaf}"
    return names


def torchvision_state_dict(name):
    names = torchvision_names(name)
    return {names[key]: tensor for key, tensor in theirs(name).state_dict().items()}


@functools.cache
def ours(name):
    """A network, and variables that show if they are left as they were."""
    model = build_model(
        name, num_classes=NUM_CLASSES, head="linear", axis_name=None, half_precision=False
    )
    images = jax.ShapeDtypeStruct((1, *IMAGE_SHAPE), np.float32)
    shapes = jax.eval_shape(functools.partial(model.init, train=True), jax.random.key(0), images)
    variables = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), shapes)
    return model, variables["params"], variables["batch_stats"]


def assert_equal(arrays, state_dict):
    """Bit for bit, in any order, but for the counts of batches that PyTorch never uses."""
    wanted = {key for key in state_dict if not key.endswith("num_batches_tracked")}
    assert arrays.keys() == wanted
    for key in wanted:
        np.testing.assert_array_equal(arrays[key], state_dict[key].detach().float().numpy())


@pytest.mark.parametrize("name", CONFIGS)
def test_features_and_logits(name, rng, tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(torchvision_state_dict(name), path)
    model, params, batch_stats = ours(name)
    loaded = load_pretrained(name, str(path), params, batch_stats)
    assert f"its head too, of {NUM_CLASSES} classes" in loaded.message

    @jax.jit
    def apply(images):
        variables = {"params": loaded.params, "batch_stats": loaded.batch_stats}
        logits, state = model.apply(
            variables,
            images,
            train=False,
            capture_intermediates=lambda module, _: module.name == "features",
        )
        return state["intermediates"]["features"]["__call__"][0], logits

    images = rng.normal(size=(2, *IMAGE_SHAPE)).astype(np.float32)
    with torch.no_grad():
        channels_first = torch.tensor(images.transpose(0, 3, 1, 2))
        expected = theirs(name)(channels_first)
        features = theirs(name).resnet(channels_first).pooler_output[:, :, 0, 0]
    for found, wanted in zip(apply(images), (features, expected.logits), strict=True):
        # Both in float32, with sums in other orders: the bound that the issue sets, in units of
        # the largest, which is of the order of the terms of each sum.
        bound = 1e-5 * wanted.abs().max().item()
        np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=bound)


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
    tensors = torchvision_state_dict("resnet18")
    path = tmp_path / "model.tar"
    torch.save(SAVED[kind](tensors), path, _use_new_zipfile_serialization=as_zip)
    _, params, batch_stats = ours("resnet18")
    loaded = load_pretrained("resnet18", str(path), params, batch_stats)
    expected = {key: tensor.to(ROUNDED.get(kind, tensor.dtype)) for key, tensor in tensors.items()}
    assert_equal(arrays_of(loaded.params, loaded.batch_stats, NAMES), expected)


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "legacy"])
def test_a_whole_model_is_refused(as_zip, tmp_path):
    path = tmp_path / "model.pth"
    torch.save(torch.nn.Linear(2, 3), path, _use_new_zipfile_serialization=as_zip)
    _, params, batch_stats = ours("resnet18")
    with pytest.raises(UserError, match=r"asks for 'torch\.nn\.modules\.linear\.Linear'"):
        load_pretrained("resnet18", str(path), params, batch_stats)


def test_safetensors_in_bfloat16(tmp_path):
    tensors = converted(torch.bfloat16)(torchvision_state_dict("resnet18"))
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path)
    _, params, batch_stats = ours("resnet18")
    loaded = load_pretrained("resnet18", str(path), params, batch_stats)
    assert_equal(arrays_of(loaded.params, loaded.batch_stats, NAMES), tensors)


def test_round_trip_through_pytorch(tmp_path):
    """What is written goes into PyTorch's modules, none left over, and is what was read."""
    path = tmp_path / "model.pth"
    tensors = torchvision_state_dict("resnet50")
    torch.save(tensors, path)
    _, params, batch_stats = ours("resnet50")
    loaded = load_pretrained("resnet50", str(path), params, batch_stats)
    written = tmp_path / "out.safetensors"
    arrays = arrays_of(loaded.params, loaded.batch_stats, NAMES)
    safetensors.numpy.save_file(arrays, written)
    found = safetensors.torch.load_file(written)
    assert_equal(found, tensors)
    theirs_names = {ours_name: key for key, ours_name in torchvision_names("resnet50").items()}
    network = ResNetForImageClassification(theirs("resnet50").config)
    network.load_state_dict({theirs_names[key]: tensor for key, tensor in found.items()})
    for key, tensor in network.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            assert torch.equal(tensor, theirs("resnet50").state_dict()[key])
