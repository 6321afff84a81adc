"""Weights of torchvision's ResNets come in bit for bit; what does not fit is refused."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.parts.program.models import tiny
from tests.parts.program.models import torch_writer as writer
from train.foundation.errors import UserError
from train.models import HEADS, MODELS, ModelSpec, build_model, network_of, pretrained, published
from train.models.classifier import Classifier
from train.models.networks.resnet import NETWORKS, BasicBlock, Bottleneck, ResNet
from train.models.weights import names
from train.models.weights.names import OtherNames, PublishedNames

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
    return pretrained.load(str(path), *variables, model_name=name, networks=MODELS, **options)


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
    assert found.message == (
        f"{name} starts with the weights of {path}, its head too, of {NUM_CLASSES} classes"
    )
    assert_equal(before, small_variables(2, name))  # What was given is as it was.


def test_places_and_layouts():
    params, batch_stats = small_variables(1)
    features, statistics = params["features"], batch_stats["features"]
    block, block_statistics = features["layer2_0"], statistics["layer2_0"]
    head = params["head"]["Dense_0"]
    arrays = names.arrays_of(params, batch_stats, NAMES)
    # As PyTorch has them: out, in, height, width; out, in.
    for name, kernel in {
        "conv1.weight": features["conv1"]["kernel"],
        "layer2.0.conv1.weight": block["conv1"]["kernel"],
        "layer2.0.downsample.0.weight": block["downsample_conv"]["kernel"],
    }.items():
        height, width, inputs, outputs = kernel.shape
        assert arrays[name].shape == (outputs, inputs, height, width)
        for index in np.ndindex(*kernel.shape):
            i, j, c, d = index
            assert arrays[name][d, c, i, j] == kernel[index]
    np.testing.assert_array_equal(arrays["fc.weight"], head["kernel"].T)
    for name, array in {
        "fc.bias": head["bias"],
        "bn1.weight": features["bn1"]["scale"],
        "bn1.bias": features["bn1"]["bias"],
        "bn1.running_mean": statistics["bn1"]["mean"],
        "bn1.running_var": statistics["bn1"]["var"],
        "layer2.0.downsample.1.weight": block["downsample_bn"]["scale"],
        "layer2.0.downsample.1.running_var": block_statistics["downsample_bn"]["var"],
        "layer2.0.bn2.running_mean": block_statistics["bn2"]["mean"],
    }.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert len(arrays) == len(jax.tree.leaves((params, batch_stats)))


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
    ("head", "num_classes", "removed", "reason"),
    [
        ("linear", 9, (), f"the file's is for {NUM_CLASSES} classes, not 9"),
        ("cosine", NUM_CLASSES, (), "the model's is not linear"),
        ("two_heads", NUM_CLASSES, (), "the model's is not linear"),
        ("linear", NUM_CLASSES, ("fc.weight", "fc.bias"), "the file has none"),
        ("linear", NUM_CLASSES, ("fc.bias",), "the file's has 'fc.weight'"),
    ],
)
def test_a_head_that_starts_anew(head, num_classes, removed, reason, tmp_path):
    written = small_variables(1)
    before = small_variables(2, head=head, num_classes=num_classes)
    path = tmp_path / "model.pth"
    path.write_bytes(torch_bytes(without(names.arrays_of(*written, NAMES), *removed)))
    params, batch_stats, message, _ = load(path, before)
    assert_equal(params["features"], written[0]["features"])
    assert_equal(batch_stats, written[1])
    assert_equal(params["head"], before[0]["head"])
    assert message.endswith(f"of {path}, but its head starts from random weights: {reason}")


def test_a_head_starts_anew_where_that_is_asked_for(tmp_path):
    written, before = small_variables(1), small_variables(2)
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.numpy.save(names.arrays_of(*written, NAMES)))
    params, _, message, _ = load(path, before, new_head=True)
    assert_equal(params["features"], written[0]["features"])
    assert_equal(params["head"], before[0]["head"])
    assert message.endswith(
        "but its head starts from random weights: config.model.new_head asks for it"
    )


@pytest.mark.parametrize("shape", [(), (6,), (6, 5), (6, 16, 2), (0, 16)])
def test_a_head_of_an_odd_shape_starts_anew(shape, tmp_path):
    arrays = names.arrays_of(*small_variables(1), NAMES)
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.numpy.save(arrays | {"fc.weight": np.zeros(shape, np.float32)}))
    found = load(path, small_variables(2))
    assert "but its head starts from random weights: the file's is for " in found.message
    assert not found.head_is_read


def test_heads_that_torchvision_lacks_are_left_out():
    for head in ("cosine", "two_heads"):
        found = names.arrays_of(*small_variables(1, head=head), NAMES).keys()
        assert found == names.arrays_of(*small_variables(1), NAMES).keys() - {
            "fc.weight",
            "fc.bias",
        }


def refused(path, variables, name="resnet18"):
    """The one line that refuses a file."""
    with pytest.raises(UserError) as caught:
        load(path, variables, name)
    message = str(caught.value)
    assert "\n" not in message
    assert "config.model.pretrained" in message
    return message


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


def write_shapes(path, shapes):
    """A file of torch.save with tensors of these shapes, all views of as few numbers as may be."""
    sizes = [math.prod(shape) for shape in shapes.values()]
    numbers = np.ones(max(*sizes, math.ceil(sum(sizes) / 8)), np.float32)
    tensors = {
        name: writer.tensor(np.broadcast_to(numbers[0], shape))._replace(storage=numbers)
        for name, shape in shapes.items()
    }
    path.write_bytes(writer.zip_bytes(tensors))


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_and_shapes_are_torchvisions(name):
    expected = torchvision_shapes(*PUBLISHED[name])
    found = {
        NAMES.of(place): NAMES.to_torch(place, array).shape
        for place, array in names.flatten(*real_variables(name)).items()
    }
    assert found == expected
    arrays = {one: np.broadcast_to(np.float32(0), shape) for one, shape in expected.items()}
    assert pretrained.networks_of(arrays, MODELS) == [name]


def test_a_network_of_the_real_size(tmp_path):
    path = tmp_path / "resnet18.pth"
    write_shapes(path, torchvision_shapes(*PUBLISHED["resnet18"]))
    params, batch_stats, message, _ = load(path, real_variables("resnet18"))
    for leaf in jax.tree.leaves((params, batch_stats)):
        assert (leaf == 1).all()
    assert message.endswith("its head too, of 1000 classes")


DENSENET = {
    "features.conv0.weight": (64, 3, 7, 7),
    "features.norm0.weight": (64,),
    "features.denseblock1.denselayer1.conv1.weight": (128, 64, 1, 1),
    "classifier.weight": (1000, 1024),
}


# 864 parameters below the head.
OTHER_FAMILY = {
    "stem.weight": (32, 3, 3, 3),
    "classifier.weight": (10, 32),
    "classifier.bias": (10,),
}


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (
            torchvision_shapes(*PUBLISHED["resnet34"]),
            "config.model.name=resnet18, it holds resnet34: it has also 'layer1.2.bn1.bias', "
            "'layer1.2.bn1.running_mean', 'layer1.2.bn1.running_var' and 77 more",
        ),
        (
            torchvision_shapes(*PUBLISHED["wide_resnet50_2"]),
            "config.model.name=resnet18, it holds wide_resnet50_2: it has also",
        ),
        (
            # A ResNeXt has the names of a ResNet.
            torchvision_shapes(*PUBLISHED["resnet50"]) | {"layer1.0.conv2.weight": (128, 4, 3, 3)},
            "config.model.name=resnet18: it has also",
        ),
        (DENSENET, "holds no network known here: it lacks bn1.bias, bn1.running_mean, bn1.running"),
        (OTHER_FAMILY, "name=resnet18, it holds other: it lacks bn1.bias, bn1.running_mean, bn1.r"),
        (
            torchvision_shapes(*PUBLISHED["resnet18"]) | {"conv1.weight": (64, 1, 7, 7)},
            "does not fit config.model.name=resnet18: it has conv1.weight of shape (64, 1, 7, 7) "
            "instead of (64, 3, 7, 7)",
        ),
        (
            without(torchvision_shapes(*PUBLISHED["resnet18"]), "bn1.running_var"),
            "does not fit config.model.name=resnet18: it lacks bn1.running_var",
        ),
        (
            # A ResNet-D of timm: three convolutions in the place of the first.
            torchvision_shapes(*PUBLISHED["resnet18"]) | {"conv1.0.weight\n": (32, 3, 3, 3)},
            r"does not fit config.model.name=resnet18: it has also 'conv1.0.weight\n'",
        ),
    ],
    ids=[
        *("resnet34", "wide", "resnext", "densenet", "family", "one channel", "incomplete", "more")
    ],
)
def test_another_network(shapes, reason, tmp_path, monkeypatch):
    other = ModelSpec(ResNet, names=PublishedNames({}, head="classifier"), num_parameters=864)
    monkeypatch.setitem(MODELS, "other", other)
    path = tmp_path / "model.pth"
    write_shapes(path, shapes)
    assert reason in refused(path, real_variables("resnet18"))


def test_a_resnet_34_for_a_resnet_50(tmp_path):
    path = tmp_path / "model.pth"
    write_shapes(path, torchvision_shapes(*PUBLISHED["resnet34"]))
    assert re.search(
        r"name=resnet50, it holds resnet34: it lacks layer1\.0\.bn3\.bias, .* and \d+ more; "
        r"it has layer1\.0\.conv1\.weight of shape \(64, 64, 3, 3\) instead of \(64, 64, 1, 1\)",
        refused(path, real_variables("resnet50"), "resnet50"),
    )


def test_networks_without_published_weights():
    others = [name for name, spec in MODELS.items() if spec.names is None]
    assert {"densenet_40_40", "mlp", "small_cnn"} <= set(others)
    for name in others:
        with pytest.raises(UserError) as caught:
            published(name)
        message = str(caught.value)
        assert "config.model.pretrained is for networks with published weights" in message
        assert message.endswith(f"config.model.name is {name!r}")


def test_integers_where_weights_belong(tmp_path):
    arrays = names.arrays_of(*small_variables(1), NAMES)
    path = tmp_path / "model.safetensors"
    for dtype in ("i4", "i1", "?"):
        # Beside them are the numbers that they were scaled by.
        quantised = {"bn1.weight": arrays["bn1.weight"].astype(dtype), "bn1.scale": np.ones(1)}
        path.write_bytes(safetensors.numpy.save(arrays | quantised))
        message = refused(path, small_variables(2))
        assert message.endswith(
            f"has {np.dtype(dtype)} numbers in bn1.weight, in place of floating-point ones: "
            "quantised weights are not read"
        )


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._utils", "_rebuild_qtensor"),  # The integers of quantize_per_tensor.
        ("torch._utils", "_rebuild_tensor_v3"),  # Real numbers of 8 bits.
        ("torch", "qint8"),  # A layer of quantize_dynamic.
    ],
)
@pytest.mark.parametrize("to_bytes", writer.FORMATS.values(), ids=writer.FORMATS)
def test_quantised_files_of_torch(module, name, to_bytes, tmp_path):
    path = tmp_path / "model.pth"
    call = writer.Call(writer.Global(module, name), (writer.tensor(np.ones(3, "i1")),))
    path.write_bytes(to_bytes({"conv1.weight": call}))
    assert refused(path, small_variables(1)).endswith(
        f"{path} asks for {module}.{name}, as quantised weights do, which are not read: save the "
        "weights in floating point"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("model-00001-of-00002.safetensors", "pytorch_model-00002-of-00010.bin"),
        *("model.safetensors.index.json", "pytorch_model.bin.index.json"),
    ],
)
def test_one_of_several_files(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(WRITERS["model.safetensors"](names.arrays_of(*small_variables(1), NAMES)))
    message = refused(path, small_variables(1))
    assert f"{path} is one of several files of the same weights, or their index: " in message


@pytest.mark.parametrize("prefix", ["model.", "net.", "module.backbone."])
def test_names_with_something_before_them(prefix, tmp_path):
    path = tmp_path / "model.pth"
    shapes = torchvision_shapes(*PUBLISHED["resnet18"])
    prefixed = {prefix + name: shape for name, shape in shapes.items()}
    # All weights of a class, which Lightning keeps beside the network.
    write_shapes(path, prefixed | {"criterion.weight": (1000,)})
    for name in ("resnet18", "resnet50"):
        message = refused(path, real_variables(name), name)
        assert message == (
            f"config.model.pretrained: {path} has {prefix!r} before the names of resnet18, as "
            "programs like PyTorch Lightning write them: save the state dict of the network inside "
            "instead"
        )
    with pytest.raises(UserError) as caught:
        network_of(str(path))
    assert str(caught.value) == message


def test_axes_of_length_one_do_not_matter(tmp_path):
    written = small_variables(1)
    arrays = names.arrays_of(*written, NAMES)
    path = tmp_path / "model.safetensors"
    for name in ("conv1.weight", "bn1.weight", "fc.weight", "layer2.0.downsample.0.weight"):
        arrays[name] = np.ascontiguousarray(np.squeeze(arrays[name])[None, ..., None])
    path.write_bytes(safetensors.numpy.save(arrays))
    assert_equal(load(path, small_variables(2))[:2], written)


def test_a_file_that_several_networks_could_have_written(tmp_path, monkeypatch):
    path = tmp_path / "model.pth"
    write_shapes(path, torchvision_shapes(*PUBLISHED["resnet18"]))
    assert network_of(str(path)) == "resnet18"
    monkeypatch.setitem(MODELS, "twin", MODELS["resnet18"])
    with pytest.raises(
        UserError, match=r"fits each of resnet18, twin; config.model.name=NAME chooses one$"
    ):
        network_of(str(path))


def broken(arrays):
    raise KeyError("qkv.weight")


def test_a_file_that_cannot_be_arranged(tmp_path, monkeypatch):
    path = tmp_path / "model.pth"
    write_shapes(path, DENSENET)
    others = (OtherNames("classifier.weight", arrange=broken),)
    twin = dataclasses.replace(NAMES, others=others)
    spec = dataclasses.replace(MODELS["resnet18"], names=twin)
    monkeypatch.setitem(MODELS, "resnet18", spec)
    assert "holds no network known here: it lacks bn1" in refused(path, real_variables("resnet18"))
    with pytest.raises(UserError, match=r"holds no network known here; docs"):
        network_of(str(path))


def test_files_that_are_no_weights(tmp_path, monkeypatch):
    variables = small_variables(1)
    path = tmp_path / "model.pth"
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in (path, "~/model.pth"):
        assert refused(given, variables).endswith(f"{path}: No such file or directory")
    assert refused(tmp_path, variables).endswith(f"{tmp_path}: Is a directory")
    for content in (b"", b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\n"):
        path.write_bytes(content)
        assert refused(path, variables).endswith(
            f"{path} is not a file of safetensors or torch.save: it starts with {content[:9]!r}"
        )
    # A type of safetensors that no weights of a ResNet have.
    header = b'{"conv1.weight":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    assert refused(path, variables).endswith(
        "has numbers of the type F8_E4M3 in 'conv1.weight', which are not read: quantised weights "
        "are not"
    )


@pytest.mark.parametrize("file_name", WRITERS)
def test_a_file_that_is_cut_short(file_name, tmp_path):
    variables = small_variables(1)
    content = WRITERS[file_name](names.arrays_of(*variables, NAMES))
    path = tmp_path / file_name
    # In the head, in the pickle or the header, in the numbers, and of the last byte.
    for length in (12, 40, 700, *np.linspace(1000, len(content) - 1, 12, dtype=int)):
        path.write_bytes(content[:length])
        message = refused(path, variables)
        assert re.search(rf"{path} is damaged or cut short \(.+\); get it again$", message)


def test_a_message_does_not_repeat_the_file(tmp_path):
    content = bytearray(torch_bytes(names.arrays_of(*small_variables(1), NAMES)))
    # The length of a member's name, at the start of the member.
    content[content.index(b"archive/data/0") - 3] = 255
    path = tmp_path / "model.pth"
    path.write_bytes(content)
    message = refused(path, small_variables(2))
    assert "is damaged or cut short (BadZipFile: File name in directory" in message
    assert len(message) < 300 + len(str(path))


@pytest.mark.parametrize("file_name", WRITERS)
def test_a_file_with_a_changed_byte_is_read_or_refused(file_name, rng, tmp_path):
    """Whatever the byte, there are variables of the right shapes or one line."""
    variables = small_variables(1)
    content = WRITERS[file_name](names.arrays_of(*variables, NAMES))
    path = tmp_path / file_name
    refusals = []
    for _ in range(40):
        changed = bytearray(content)
        changed[rng.integers(len(content) // 4)] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        try:
            params, batch_stats, *_ = load(path, variables)
        except UserError as error:
            refusals.append(str(error))
        else:
            shapes = jax.tree.map(np.shape, (params, batch_stats))
            assert shapes == jax.tree.map(np.shape, variables)
    assert refusals
    for message in refusals:
        assert str(path) in message
        assert "\n" not in message
