"""Weights of torchvision's ResNets come in bit for bit; what does not fit is refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.parts.program.models import tiny
from tests.promises import torch_files
from train.foundation.errors import UserError
from train.models import HEADS, pretrained
from train.models.classifier import Classifier
from train.models.networks.resnet import NETWORKS, BasicBlock, Bottleneck, ResNet
from train.models.weights import names

NUM_CLASSES = 6
NAMES = NETWORKS["resnet18"].names
# With the names of ResNet-18's and ResNet-50's variables, and few numbers.
SMALL = {
    "resnet18": functools.partial(ResNet, stage_sizes=(2, 2, 2, 2), block=BasicBlock, width=2),
    "resnet50": functools.partial(ResNet, stage_sizes=(3, 4, 6, 3), block=Bottleneck, width=2),
}


@functools.cache
def small_shapes(name, head, num_classes):
    model = Classifier(features=SMALL[name](axis_name=None), head=HEADS[head](num_classes))
    return tiny.shapes(model, (32, 32, 3))[1]


def small_variables(seed, name="resnet18", *, head="linear", num_classes=NUM_CLASSES):
    """Parameters and statistics, no two numbers alike."""
    rng = np.random.default_rng(seed)
    variables = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32),
        small_shapes(name, head, num_classes),
    )
    return variables["params"], variables["batch_stats"]


def load(path, variables, name="resnet18", **options):
    return pretrained.load(str(path), *variables, model_name=name, published=NAMES, **options)


def assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    for leaf in jax.tree.leaves(found):
        assert leaf.dtype == np.float32


def with_counts(arrays):
    """As PyTorch writes a state dict: with the number of batches that each batch norm has seen."""
    norms = [name for name in arrays if name.endswith("running_var")]
    counts = [name.replace("running_var", "num_batches_tracked") for name in norms]
    return arrays | dict.fromkeys(counts, np.array(7))


WRITERS = {
    "model.safetensors": safetensors.numpy.save,
    "model.pth": lambda arrays: torch_files.zip_file(torch_files.checkpoint(arrays)),
    "pytorch_model.bin": lambda arrays: torch_files.legacy_file(torch_files.checkpoint(arrays)),
}


@pytest.mark.parametrize("file_name", WRITERS)
@pytest.mark.parametrize("name", SMALL)
def test_round_trip(name, file_name, tmp_path):
    written, before = small_variables(1, name), small_variables(2, name)
    path = tmp_path / file_name
    path.write_bytes(WRITERS[file_name](with_counts(names.arrays_of(*written, NAMES))))
    found = load(path, before, name)
    assert_equal(found[:2], written)
    assert found.why_new_head is None
    assert_equal(before, small_variables(2, name))  # What was given is as it was.


@pytest.mark.parametrize("dtype", ["f2", "f8", jnp.bfloat16], ids=str)
@pytest.mark.parametrize("file_name", ["model.safetensors", "model.pth"])
def test_other_precisions(dtype, file_name, tmp_path):
    written = jax.tree.map(lambda leaf: leaf.astype(dtype), small_variables(1))
    path = tmp_path / file_name
    path.write_bytes(WRITERS[file_name](names.arrays_of(*written, NAMES)))
    found = load(path, small_variables(2))[:2]
    assert_equal(found, jax.tree.map(lambda leaf: leaf.astype(np.float32), written))


# In each row: the head, the number of classes, what the file lacks, why the head starts anew.
NEW_HEADS = [
    ("linear", 9, (), f"the file's is for {NUM_CLASSES} classes, not 9"),
    ("two_heads", NUM_CLASSES, (), "the model's is not linear"),
    ("linear", NUM_CLASSES, ("fc.weight", "fc.bias"), "the file has none"),
    ("linear", NUM_CLASSES, ("fc.bias",), "the file's has 'fc.weight'"),
    ("linear", NUM_CLASSES, (), pretrained.NEW_HEAD),
]


@pytest.mark.parametrize(("head", "num_classes", "removed", "why"), NEW_HEADS)
def test_a_head_that_starts_anew(head, num_classes, removed, why, tmp_path):
    written = small_variables(1)
    before = small_variables(2, head=head, num_classes=num_classes)
    arrays = names.arrays_of(*written, NAMES)
    path = tmp_path / "model.pth"
    kept = {name: array for name, array in arrays.items() if name not in removed}
    path.write_bytes(WRITERS[path.name](kept))
    found = load(path, before, new_head=why == pretrained.NEW_HEAD)
    assert_equal(found.params["features"], written[0]["features"])
    assert_equal(found.batch_stats, written[1])
    assert_equal(found.params["head"], before[0]["head"])
    assert found.why_new_head
    assert found.message.endswith(f"but its head starts from random weights: {why}")


def test_a_file_of_another_network_is_told_by_its_names(tmp_path):
    arrays = names.arrays_of(*small_variables(1), NAMES)
    arrays["conv2.weight"] = arrays.pop("conv1.weight")
    arrays["bn1.bias"] = np.zeros(9, np.float32)
    arrays["bn1.weight"] = np.zeros(2, np.int8)
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.numpy.save(arrays))
    told = (
        "config.model.name=resnet18: it lacks conv1.weight, has also 'conv2.weight', "
        "has no floating-point numbers in bn1.weight, has other shapes, as for other networks or "
        "image sizes: bn1.bias (9,) instead of (2,)"
    )
    with pytest.raises(UserError, match=re.escape(told)):
        load(path, small_variables(2))


def test_axes_of_length_one_do_not_matter(tmp_path):
    written = small_variables(1)
    arrays = names.arrays_of(*written, NAMES)
    path = tmp_path / "model.safetensors"
    for name in ("conv1.weight", "bn1.weight", "fc.weight", "layer2.0.downsample.0.weight"):
        arrays[name] = np.ascontiguousarray(np.squeeze(arrays[name])[None, ..., None])
    path.write_bytes(safetensors.numpy.save(arrays))
    assert_equal(load(path, small_variables(2))[:2], written)


@pytest.mark.parametrize("file_name", WRITERS)
def test_a_file_that_is_cut_short(file_name, tmp_path):
    variables = small_variables(1)
    content = WRITERS[file_name](names.arrays_of(*variables, NAMES))
    path = tmp_path / file_name
    # In the head, in the pickle or the header, in the numbers, and of the last byte.
    for length in (12, 40, 700, *np.linspace(1000, len(content) - 1, 12, dtype=int)):
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match=str(path)) as caught:
            load(path, variables)
        assert "\n" not in str(caught.value)
