"""Every network computes in ONNX Runtime what it computes in JAX, for any number of images."""

import jax
import numpy as np

from tests.peers.networks.comparison import build, computed, difference, each_network, shapes_of
from tests.peers.networks.test_parity import image_shapes
from train.classifiers import onnx_runtime
from train.models import MODELS
from train.package.onnx import lowering

# In units of the largest logit. Both in float32, with sums in other orders.
BOUND = 1e-5


def drawn(shapes):
    """Variables of the size with which activations neither grow nor vanish."""
    generator = np.random.default_rng(0)

    def draw(path, leaf):
        name = jax.tree_util.keystr(path)
        if "var" in name or "scale" in name:
            return generator.uniform(0.5, 1.5, leaf.shape).astype(np.float32)
        width = np.sqrt(np.prod(leaf.shape[:-1])) if leaf.ndim > 1 else 10
        return (generator.normal(size=leaf.shape, scale=1.2) / width).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


@each_network
def test_onnx_runtime(name, record):
    check(name, record)


def test_a_network_without_published_weights(record):
    check("densenet_40_40", record)


def check(name, record):
    shape = image_shapes(name)[0]
    network = build(name)
    variables = drawn(shapes_of(network, shape))

    def logits(images):
        return network.apply(variables, images, train=False)

    images = np.random.default_rng(1).normal(size=(2, *shape)).astype(np.float32)
    expected = computed(
        lambda variables, images: network.apply(variables, images, train=False), variables, images
    )
    content = lowering.make(
        lambda images: (logits(images),), "images", shape, np.float32, ["logits"], {}
    )
    call = onnx_runtime.load(content)
    errors = [difference(call(images[rows])[0], expected[rows]) for rows in (slice(None), slice(1))]
    record(name, "ONNX Runtime", f"{max(errors):.1e}")
    assert max(errors) < BOUND
    assert np.abs(expected).max() > 0.01


def test_no_other_network_is_left_out():
    """The others are in tests/parts/program/package/onnx/test_small_networks.py."""
    unpublished = {name for name, spec in MODELS.items() if spec.names is None}
    assert unpublished == {"small_cnn", "strided_cnn", "linear", "mlp", "densenet_40_40"}
