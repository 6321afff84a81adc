"""Networks have the published sizes and names, and compute the published functions."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import digits
from tests.parts.program.models import tiny
from train.configuration.parsing import parse
from train.foundation.errors import UserError
from train.models import MODELS, build_model, check_image_shape
from train.models.model_spec import ModelSpec
from train.models.networks.small import SmallCNN
from train.run.parts import assemble
from train.training.state import num_parameters


def build(name, num_classes=10):
    return build_model(
        name, num_classes=num_classes, head="linear", axis_name=None, half_precision=False
    )


def test_every_model_of_images_takes_another_size():
    # tests/peers/networks has all that other people publish.
    ours = {name: spec for name, spec in MODELS.items() if spec.names is None}
    for name, spec in (ours | {"resnet18": MODELS["resnet18"]}).items():
        if "images" in spec.inputs:
            assert check_image_shape(name, (40, 48, 1)) is None
            logits, _ = tiny.shapes(build(name), (40, 48, 1))
            assert logits.shape == (2, 10)


def test_images_of_a_size_that_a_network_does_not_take(monkeypatch):
    patches = ModelSpec(SmallCNN, smallest=20, multiple_of=14)
    monkeypatch.setitem(MODELS, "patches", patches)
    assert check_image_shape("patches", (28, 42, 3)) is None
    for shape in ((14, 28, 3), (28, 35, 3), (28, 14, 1)):
        assert check_image_shape("patches", shape) is not None
    config = json.loads(digits.get_config("cross_entropy").to_json())
    config["model"]["name"] = "patches"
    with pytest.raises(UserError, match=r"config\.model\.name=patches"):
        assemble(parse(config))


def test_the_densenet_for_small_images_is_as_large_as_published():
    _, variables = tiny.shapes(build("densenet_40_40", 100), (32, 32, 3))
    assert num_parameters(variables["params"]) == 1_941_620


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


def test_convolutions_start_he_normal_by_fan_out(key):
    model = tiny.FAMILIES["densenet"](axis_name=None, growth=32, layers_of_blocks=(1,))
    images = jnp.zeros((1, *tiny.IMAGE_SHAPE))

    @jax.jit
    def initial(key):
        params = model.init(key, images, train=True)["params"]
        return params["denseblock1_denselayer1"]["conv2"]["kernel"]

    kernel = np.asarray(initial(key))
    assert kernel.shape == (3, 3, 128, 32)
    scale = np.sqrt(2 / (9 * 32))
    # The deviation of 36,864 normals is known within 0.37 %; five times that.
    assert abs(kernel.std() / scale - 1) < 0.02
    # Not truncated at two deviations: the largest of this many normals is above four.
    assert np.abs(kernel).max() > 3 * scale
