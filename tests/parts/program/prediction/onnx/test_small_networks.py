"""Small networks of each kind of block, with each head, in ONNX Runtime and in JAX.

`tests/peers/networks` compares all networks.
"""

import functools

import jax
import numpy as np
import pytest

from tests.parts.program.prediction.onnx import in_onnx
from train.models import HEADS, build_model
from train.training.objectives import class_logits

IMAGES = np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype(np.float32)
FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)


def drawn(model, examples, seed=0):
    """Variables that are drawn: the first ones would hide what multiplies by 1 or adds 0."""
    shapes = jax.eval_shape(
        functools.partial(model.init, train=False), jax.random.key(0), examples[:1]
    )
    generator = np.random.default_rng(seed)

    def draw(leaf):
        width = np.sqrt(np.prod(leaf.shape[:-1]))
        # Positive, because some are variances.
        return (generator.uniform(0.1, 1.1, leaf.shape) / width).astype(leaf.dtype)

    return jax.tree.map(draw, shapes)


def check(model, examples):
    variables = drawn(model, examples)

    def logits(inputs):
        return class_logits(model.apply(variables, inputs, train=False))

    in_onnx.check(logits, examples)


def small(name, head="linear", **options):
    return build_model(
        name,
        num_classes=4,
        head=head,
        axis_name=None,
        half_precision=False,
        options=options,
    )


@pytest.mark.parametrize("head", HEADS)
def test_heads(head):
    check(small("mlp", head, width=5), FEATURES)


@pytest.mark.parametrize("name", ["small_cnn", "strided_cnn", "linear"])
def test_images(name):
    check(small(name), IMAGES)
