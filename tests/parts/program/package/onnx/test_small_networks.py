"""Small networks with each head in ONNX Runtime and in JAX; tests/peers has the others."""

import functools

import jax
import numpy as np
import pytest

from tests.parts.program.package.onnx import in_onnx
from train.models import HEADS, build_model
from train.training.objectives import class_logits

IMAGES = np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype(np.float32)
FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)


def check(name, examples, head="linear", **options):
    rest = {"axis_name": None, "half_precision": False, "options": options}
    model = build_model(name, num_classes=4, head=head, **rest)
    init = functools.partial(model.init, train=False)
    generator = np.random.default_rng(0)

    def draw(leaf):
        """The first ones would hide what multiplies by 1 or adds 0; some are variances."""
        width = np.sqrt(np.prod(leaf.shape[:-1]))
        return (generator.uniform(0.1, 1.1, leaf.shape) / width).astype(leaf.dtype)

    variables = jax.tree.map(draw, jax.eval_shape(init, jax.random.key(0), examples[:1]))
    in_onnx.check(lambda x: class_logits(model.apply(variables, x, train=False)), examples)


@pytest.mark.parametrize("head", HEADS)
def test_heads(head):
    check("mlp", FEATURES, head, width=5)


@pytest.mark.parametrize("name", ["small_cnn", "strided_cnn", "linear"])
def test_images(name):
    check(name, IMAGES)
