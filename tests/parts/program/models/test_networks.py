"""Networks have the published sizes and names, and compute the published functions."""

import functools
import json
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import digits
from tests.parts.program.models import reference, tiny
from train.assembly import assemble
from train.configuration.parsing import parse
from train.foundation.errors import UserError
from train.models import MODELS, ModelSpec, build_model, check_image_shape
from train.models.networks.small_cnn import SmallCNN
from train.training.state import num_parameters

# Published numbers of parameters and features, with the numbers of classes and sizes of images.
PUBLISHED = {
    "densenet_40_40": (1_941_620, 440, 100, 32),
    "resnet18": (11_689_512, 512, 1000, 224),
    "resnet34": (21_797_672, 512, 1000, 224),
    "resnet50": (25_557_032, 2048, 1000, 224),
    "resnet101": (44_549_160, 2048, 1000, 224),
    "resnet152": (60_192_808, 2048, 1000, 224),
    "wide_resnet50_2": (68_883_240, 2048, 1000, 224),
    "wide_resnet101_2": (126_886_696, 2048, 1000, 224),
}


def build(name, num_classes=10):
    return build_model(
        name, num_classes=num_classes, head="linear", axis_name=None, half_precision=False
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name):
    parameters, num_features, num_classes, size = PUBLISHED[name]
    logits, variables = tiny.shapes(build(name, num_classes), (size, size, 3))
    assert logits.shape == (2, num_classes)
    assert num_parameters(variables["params"]) == parameters
    assert variables["params"]["head"]["Dense_0"]["kernel"].shape == (num_features, num_classes)


def test_the_strided_network_is_as_small_as_it_says():
    _, variables = tiny.shapes(build("strided_cnn"))
    layers = variables["params"]["features"]
    kernels = [layers[f"layer{number}_conv"]["kernel"].size for number in range(1, 5)]
    assert sum(kernels) == 240_480
    # Each kernel is applied at each place of its output; these are 16, 8, 4 and 4 wide.
    places = (16**2, 8**2, 4**2, 4**2)
    assert sum(map(operator.mul, places, kernels)) == 4_939_776


def test_every_model_of_images_takes_another_size():
    # tests/peers/networks has all that other people publish.
    ours = {name: spec for name, spec in MODELS.items() if spec.names is None}
    for name, spec in (ours | {"resnet18": MODELS["resnet18"]}).items():
        if "images" in spec.inputs:
            assert check_image_shape(name, (40, 48, 1)) is None
            logits, _ = tiny.shapes(build(name), (40, 48, 1))
            assert logits.shape == (2, 10)


@pytest.mark.parametrize("name", MODELS)
def test_images_that_a_network_was_published_for_have_a_size_that_it_takes(name):
    size = MODELS[name].image_size
    assert check_image_shape(name, (size, size, 3)) is None


def test_images_of_a_size_that_a_network_does_not_take(monkeypatch):
    patches = ModelSpec(SmallCNN, smallest=20, multiple_of=14)
    monkeypatch.setitem(MODELS, "patches", patches)
    assert check_image_shape("patches", (28, 42, 3)) is None
    for shape in ((14, 28, 3), (28, 35, 3), (28, 14, 1)):
        assert check_image_shape("patches", shape) == (
            "images whose height and width are at least 28 and divisible by 14"
        )
    config = json.loads(digits.get_config("cross_entropy").to_json())
    config["model"]["name"] = "patches"
    with pytest.raises(UserError, match=r"name=patches takes .* got images of shape \(8, 8, 1\)"):
        assemble(parse(config))
    monkeypatch.setitem(MODELS, "patches", ModelSpec(SmallCNN, smallest=9))
    with pytest.raises(UserError, match=r"height and width are at least 9; got images of shape"):
        assemble(parse(config))


@pytest.mark.parametrize(
    ("name", "stage_sizes", "convolutions"),
    [("resnet18", (2,) * 4, 2), ("resnet50", (3, 4, 6, 3), 3)],
)
def test_resnets_have_torchvisions_names(name, stage_sizes, convolutions):
    _, variables = tiny.shapes(build(name))
    leaves = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
    names = set()
    for collection in ("params", "batch_stats"):
        features = variables[collection]["features"]
        for path, _ in jax.tree_util.tree_leaves_with_path(features):
            *modules, leaf = (key.key for key in path)
            place = ".".join(modules).replace("downsample_conv", "downsample.0")
            place = place.replace("downsample_bn", "downsample.1").replace("_", ".")
            names.add(f"{place}.{leaves.get(leaf, leaf)}")
    norm = ("weight", "bias", "running_mean", "running_var")
    expected = {"conv1.weight", *(f"bn1.{leaf}" for leaf in norm)}
    for stage, num_blocks in enumerate(stage_sizes, start=1):
        for index in range(num_blocks):
            block = f"layer{stage}.{index}"
            for number in range(1, convolutions + 1):
                expected |= {f"{block}.conv{number}.weight"}
                expected |= {f"{block}.bn{number}.{leaf}" for leaf in norm}
            if index == 0 and (stage > 1 or convolutions == 3):
                expected |= {f"{block}.downsample.0.weight"}
                expected |= {f"{block}.downsample.1.{leaf}" for leaf in norm}
    assert names == expected


REFERENCES = {
    "strided_cnn": reference.strided_cnn,
    "densenet": functools.partial(reference.densenet, layers_per_block=2),
    "basic": functools.partial(reference.resnet, stage_sizes=(1, 2, 1, 1), bottleneck=False),
    "bottleneck": functools.partial(reference.resnet, stage_sizes=(2, 1, 1, 1), bottleneck=True),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("family", REFERENCES)
def test_features_equal_the_reference(family, train, rng):
    model = tiny.FAMILIES[family](axis_name=None)
    variables = tiny.random_variables(rng, model)
    images = rng.normal(size=(4, *tiny.IMAGE_SHAPE))
    apply = jax.jit(
        lambda variables, images: model.apply(
            variables, images, train=train, mutable=["batch_stats"]
        )
    )
    features, updates = apply(*tiny.in_float32((variables, images)))
    expected = REFERENCES[family](variables, images, train=train)
    assert features.shape == expected.shape
    # Float32 rounding through some ten layers; in training the last batch norms see four numbers
    # a channel, which may be close together.
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-4)
    changed = jax.tree.map(
        lambda new, old: not np.array_equal(new, old),
        updates["batch_stats"],
        tiny.in_float32(variables["batch_stats"]),
    )
    assert set(jax.tree.leaves(changed)) == {train}


def test_batch_norm_gathers_a_tenth_of_each_batch(rng):
    model = tiny.FAMILIES["mlp"](axis_name=None)
    variables = tiny.random_variables(rng, model)
    images = rng.normal(size=(4, *tiny.IMAGE_SHAPE))
    _, updates = model.apply(
        *tiny.in_float32((variables, images)), train=True, mutable=["batch_stats"]
    )
    hidden = images.reshape(4, -1) @ variables["params"]["Dense_0"]["kernel"]
    before = variables["batch_stats"]["BatchNorm_0"]
    after = updates["batch_stats"]["BatchNorm_0"]
    # Float32 rounding of sums of 3,072 products.
    np.testing.assert_allclose(
        after["mean"], 0.9 * before["mean"] + 0.1 * hidden.mean(axis=0), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        after["var"], 0.9 * before["var"] + 0.1 * hidden.var(axis=0), rtol=1e-4, atol=1e-5
    )


# The others have norms of each example alone.
@pytest.mark.parametrize("family", [one for one in tiny.FAMILIES if one not in ("convnext", "vit")])
def test_synchronised_batch_norm_sees_the_whole_batch(family, rng):
    whole = tiny.FAMILIES[family](axis_name=None)
    split = tiny.FAMILIES[family](axis_name="devices")
    variables = tiny.in_float32(tiny.random_variables(rng, whole))
    images = tiny.in_float32(rng.normal(size=(8, *tiny.IMAGE_SHAPE)))
    parts = images.reshape(4, 2, *tiny.IMAGE_SHAPE)

    def apply(model, images):
        return model.apply(variables, images, train=True, mutable=["batch_stats"])

    features, updates = jax.jit(functools.partial(apply, whole))(images)
    on_devices = jax.pmap(
        functools.partial(apply, split), axis_name="devices", devices=jax.devices()[:4]
    )
    split_features, split_updates = on_devices(parts)
    # Sums in another order, as against the reference.
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    close(split_features.reshape(features.shape), features)
    for device in range(4):
        jax.tree.map(lambda one, all_, d=device: close(all_[d], one), updates, split_updates)


def test_batch_norm_without_an_axis_sees_the_devices_share(rng):
    model = tiny.FAMILIES["mlp"](axis_name=None)
    variables = tiny.in_float32(tiny.random_variables(rng, model))
    images = tiny.in_float32(rng.normal(size=(2, 4, *tiny.IMAGE_SHAPE)))

    def apply(images):
        return model.apply(variables, images, train=True, mutable=["batch_stats"])[0]

    on_devices = jax.pmap(apply, axis_name="devices", devices=jax.devices()[:2])(images)
    for part, features in zip(images, on_devices, strict=True):
        # The same sums in two compilations.
        np.testing.assert_allclose(features, apply(part), rtol=1e-5, atol=1e-5)


def activation_dtypes(jaxpr):
    """The dtypes of the results of all convolutions, matrix products and ReLUs, in order."""
    for equation in jaxpr.eqns:
        result = equation.outvars[0].aval
        # The maximum of fewer dimensions is the clipping of a variance at 0.
        if equation.primitive.name in ("conv_general_dilated", "dot_general") or (
            equation.primitive.name == "max" and result.ndim > 1
        ):
            yield result.dtype
        for value in equation.params.values():
            if hasattr(value, "jaxpr"):
                yield from activation_dtypes(value.jaxpr)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        *((name, "linear") for name in ("small_cnn", "mlp", "resnet18")),
        *(("small_cnn", head) for head in ("cosine", "two_heads")),
    ],
)
def test_half_precision_is_that_of_the_layers_below_the_head_alone(name, head):
    model = build_model(name, num_classes=10, head=head, axis_name=None, half_precision=True)
    images = jnp.zeros((2, *tiny.IMAGE_SHAPE))

    def apply(params, batch_stats):
        variables = {"params": params, "batch_stats": batch_stats}
        outputs, updates = model.apply(variables, images, train=True, mutable=["batch_stats"])
        return sum(logits.sum() for logits in jax.tree.leaves(outputs)), (outputs, updates)

    _, variables = tiny.shapes(model)
    arguments = variables["params"], variables["batch_stats"]
    everything = jax.eval_shape(jax.value_and_grad(apply, has_aux=True), *arguments)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((variables, everything))}
    assert dtypes == {jnp.dtype(jnp.float32)}
    dtypes = list(activation_dtypes(jax.make_jaxpr(apply)(*arguments).jaxpr))
    num_heads = 2 if head == "two_heads" else 1
    assert set(dtypes[:-num_heads]) == {jnp.dtype(jnp.bfloat16)}
    assert set(dtypes[-num_heads:]) == {jnp.dtype(jnp.float32)}


# The others have softmaxes and layer norms, whose maxima are float32.
@pytest.mark.parametrize("family", [one for one in tiny.FAMILIES if one not in ("convnext", "vit")])
def test_half_precision_of_a_small_member(family):
    model = tiny.FAMILIES[family](axis_name=None, dtype=jnp.bfloat16)
    features, variables = tiny.shapes(model)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((features, variables))}
    assert dtypes == {jnp.dtype(jnp.float32)}
    apply = functools.partial(model.apply, train=True, mutable=["batch_stats"])
    jaxpr = jax.make_jaxpr(apply)(variables, jnp.zeros((2, *tiny.IMAGE_SHAPE))).jaxpr
    assert set(activation_dtypes(jaxpr)) == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize("family", ["small_cnn", "convnext", "vit"])
def test_half_precision_is_close(family, rng):
    images = tiny.in_float32(rng.normal(size=(8, *tiny.IMAGE_SHAPE)))
    build_tiny = functools.partial(tiny.FAMILIES[family], axis_name=None)
    variables = tiny.in_float32(tiny.random_variables(rng, build_tiny()))

    def features_of(network):
        return jax.jit(functools.partial(network.apply, train=False))(variables, images)

    expected = features_of(build_tiny())
    features = features_of(build_tiny(dtype=jnp.bfloat16))
    assert features.dtype == jnp.float32
    # Eight bits of mantissa, 0.4 %, at each of a dozen roundings.
    error = np.abs(features - expected).max() / np.abs(expected).max()
    assert 1e-5 < error < 0.03


def test_half_precision_is_a_field_of_the_configuration():
    config = json.loads(digits.get_config().to_json())
    assert config["model"]["half_precision"] is False
    config["model"]["half_precision"] = 1
    with pytest.raises(UserError, match=r"config\.model\.half_precision must be True or False"):
        parse(config)


def test_convolutions_start_he_normal_by_fan_out(key):
    model = tiny.FAMILIES["densenet"](axis_name=None, growth=32, layers_per_block=1)
    images = jnp.zeros((1, *tiny.IMAGE_SHAPE))

    @jax.jit
    def initial(key):
        return model.init(key, images, train=True)["params"]["block1_0_conv2"]["kernel"]

    kernel = np.asarray(initial(key))
    assert kernel.shape == (3, 3, 128, 32)
    scale = np.sqrt(2 / (9 * 32))
    # The deviation of 36,864 normals is known within 0.37 %; five times that.
    assert abs(kernel.std() / scale - 1) < 0.02
    # Not truncated at two deviations: the largest of this many normals is above four.
    assert np.abs(kernel).max() > 3 * scale
