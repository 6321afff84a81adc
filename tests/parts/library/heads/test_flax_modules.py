"""Heads of Flax whose weights are split by classes when they are made, as docs/scaling.md says."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from flax import nnx

from topk_jax import heads

OF_HEAD = jax.P(None, "classes")
SHAPE = (3, 16)


def initial_weights(key, shape):
    return jax.reshard(jax.nn.initializers.lecun_normal()(key, shape), OF_HEAD)


class LinenHead(nn.Module):
    @nn.compact
    def __call__(self, features):
        return heads.scores(
            features, heads.LinearHead(self.param("weights", initial_weights, SHAPE))
        )


class NnxHead(nnx.Module):
    def __init__(self, rngs):
        self.weights = nnx.Param(initial_weights(rngs.params(), SHAPE))

    def __call__(self, features):
        return heads.scores(features, heads.LinearHead(self.weights[...]))


def linen_scores(features):
    variables = jax.jit(LinenHead().init)(jax.random.key(0), features)
    return variables["params"]["weights"], jax.jit(LinenHead().apply)(variables, features)


def nnx_scores(features):
    head = nnx.jit(lambda: NnxHead(nnx.Rngs(0)))()
    return head.weights[...], nnx.jit(lambda head, features: head(features))(head, features)


@pytest.mark.parametrize("scores_of", [linen_scores, nnx_scores])
def test_the_weights_and_the_scores_are_split(scores_of):
    mesh = jax.make_mesh((2, 4), ("batch", "classes"))
    with jax.set_mesh(mesh):
        features = jax.reshard(jnp.ones((2, SHAPE[0])), jax.P("batch"))
        weights, scores = scores_of(features)
    assert weights.sharding.spec == OF_HEAD
    assert scores.sharding.spec == jax.P("batch", "classes")
    assert weights.shape == SHAPE
