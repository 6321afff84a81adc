"""Weights of torchvision's ResNets come in bit for bit; what does not fit is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.parts.program.models import tiny
from tests.parts.program.models import torch_writer as writer
from train.foundation.errors import UserError
from train.models import HEADS, MODELS, build_model, pretrained
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
def small_shapes(name, head, num_classes, channels):
    model = Classifier(features=SMALL[name](axis_name=None), head=HEADS[head](num_classes))
    return tiny.shapes(model, (32, 32, channels))[1]


def small_variables(seed, name="resnet18", *, head="linear", num_classes=NUM_CLASSES, channels=3):
    """Parameters and statistics, no two numbers alike."""
    rng = np.random.default_rng(seed)
    variables = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32),
        small_shapes(name, head, num_classes, channels),
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
    complete = {}
    for name, array in arrays.items():
        complete[name] = array
        if name.endswith("running_var"):
            complete[name.replace("running_var", "num_batches_tracked")] = np.int64(7)
    return complete


def torch_bytes(arrays, to_bytes=writer.zip_bytes):
    tensors = {name: writer.tensor(array) for name, array in with_counts(arrays).items()}
    return to_bytes({"epoch": 3, "model": writer.ordered(tensors), "optimizer": {}})


WRITERS = {
    "model.safetensors": lambda arrays: safetensors.numpy.save(
        {name: np.asarray(array) for name, array in with_counts(arrays).items()}
    ),
    "model.pth": torch_bytes,
    "model_weights_best_acc.tar": torch_bytes,
    "pytorch_model.bin": functools.partial(torch_bytes, to_bytes=writer.legacy_bytes),
}


@pytest.mark.parametrize("file_name", WRITERS)
@pytest.mark.parametrize("name", SMALL)
def test_round_trip(name, file_name, tmp_path):
    written, before = small_variables(1, name), small_variables(2, name)
    path = tmp_path / file_name
    path.write_bytes(WRITERS[file_name](names.arrays_of(*written, NAMES)))
    found = load(path, before, name)
    assert_equal(found[:2], written)
    assert found.head_is_read
    assert_equal(before, small_variables(2, name))  # What was given is as it was.


@pytest.mark.parametrize("dtype", ["f2", "f8", jnp.bfloat16], ids=str)
@pytest.mark.parametrize("file_name", ["model.safetensors", "model.pth"])
def test_other_precisions(dtype, file_name, tmp_path):
    written = jax.tree.map(lambda leaf: leaf.astype(dtype), small_variables(1))
    path = tmp_path / file_name
    path.write_bytes(WRITERS[file_name](names.arrays_of(*written, NAMES)))
    found = load(path, small_variables(2))[:2]
    assert_equal(found, jax.tree.map(lambda leaf: leaf.astype(np.float32), written))


def without(arrays, *names):
    return {name: array for name, array in arrays.items() if name not in names}


@pytest.mark.parametrize(
    ("head", "num_classes", "removed"),
    [
        ("linear", 9, ()),
        ("cosine", NUM_CLASSES, ()),
        ("two_heads", NUM_CLASSES, ()),
        ("linear", NUM_CLASSES, ("fc.weight", "fc.bias")),
        ("linear", NUM_CLASSES, ("fc.bias",)),
    ],
)
def test_a_head_that_starts_anew(head, num_classes, removed, tmp_path):
    written = small_variables(1)
    before = small_variables(2, head=head, num_classes=num_classes)
    path = tmp_path / "model.pth"
    path.write_bytes(torch_bytes(without(names.arrays_of(*written, NAMES), *removed)))
    found = load(path, before)
    assert_equal(found.params["features"], written[0]["features"])
    assert_equal(found.batch_stats, written[1])
    assert_equal(found.params["head"], before[0]["head"])
    assert not found.head_is_read


def test_a_head_starts_anew_where_that_is_asked_for(tmp_path):
    written, before = small_variables(1), small_variables(2)
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.numpy.save(names.arrays_of(*written, NAMES)))
    found = load(path, before, new_head=True)
    assert_equal(found.params["features"], written[0]["features"])
    assert_equal(found.params["head"], before[0]["head"])
    assert not found.head_is_read


# Each: the blocks of its stages, its convolutions a block, the channels of the first 3 by 3 one.
PUBLISHED = {
    "resnet18": ((2, 2, 2, 2), 2, 64),
    "resnet34": ((3, 4, 6, 3), 2, 64),
    "resnet50": ((3, 4, 6, 3), 3, 64),
    "resnet101": ((3, 4, 23, 3), 3, 64),
    "resnet152": ((3, 8, 36, 3), 3, 64),
    "wide_resnet50_2": ((3, 4, 6, 3), 3, 128),
    "wide_resnet101_2": ((3, 4, 23, 3), 3, 128),
}


def torchvision_shapes(stage_sizes, convolutions, width):
    """The shapes in a state dict of torchvision with 1,000 classes, written out from its code."""

    def norm(name, channels):
        leaves = ("weight", "bias", "running_mean", "running_var")
        return {f"{name}.{leaf}": (channels,) for leaf in leaves}

    shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    inputs = 64
    for stage, num_blocks in enumerate(stage_sizes):
        inner = width * 2**stage
        outputs = 64 * 2**stage * (1 if convolutions == 2 else 4)
        for index in range(num_blocks):
            block = f"layer{stage + 1}.{index}"
            sizes = ((3, 3), (3, 3)) if convolutions == 2 else ((1, 1), (3, 3), (1, 1))
            channels = (inputs, *[inner] * (convolutions - 1), outputs)
            for number, size in enumerate(sizes, start=1):
                shape = (channels[number], channels[number - 1], *size)
                shapes[f"{block}.conv{number}.weight"] = shape
                shapes |= norm(f"{block}.bn{number}", channels[number])
            if inputs != outputs:
                shapes[f"{block}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= norm(f"{block}.downsample.1", outputs)
            inputs = outputs
    return shapes | {"fc.weight": (1000, inputs), "fc.bias": (1000,)}


@functools.cache
def real_variables(name):
    """Variables of the real size without memory: views of one number."""
    model = build_model(name, num_classes=1000, head="linear", axis_name=None, half_precision=False)
    _, variables = tiny.shapes(model, (64, 64, 3))
    zero = np.zeros((), np.float32)
    arrays = jax.tree.map(lambda leaf: np.broadcast_to(zero, leaf.shape), variables)
    return arrays["params"], arrays["batch_stats"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_and_shapes_are_torchvisions(name):
    expected = torchvision_shapes(*PUBLISHED[name])
    found = {
        NAMES.of(place): NAMES.to_torch(place, array).shape
        for place, array in names.flatten(*real_variables(name)).items()
    }
    assert found == expected
    arrays = {one: np.broadcast_to(np.float32(0), shape) for one, shape in expected.items()}
    assert NAMES.num_parameters(arrays) == MODELS[name].num_parameters


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
