"""The average-K loss of two heads over blocks of classes, beside the reference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from tests import reference
from tests.parts.library.heads.test_heads import BLOCK, NUM_CLASSES, assert_close, drawn
from topk_jax import heads


@functools.cache
def compiled(k):
    """The loss, and its gradients by the features, both weights and the bias of the labels."""

    def loss(features, weights, proposal_weights, bias, labels):
        return heads.average_k(
            features,
            heads.LinearHead(weights, bias),
            heads.LinearHead(proposal_weights),
            labels,
            k=k,
            alpha=0.7,
            block_size=BLOCK,
        )

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))


def expected(k, features, weights, proposal_weights, bias, labels):
    features, weights, proposal_weights, bias = (
        np.asarray(array, np.float64) for array in (features, weights, proposal_weights, bias)
    )
    arguments = (features @ weights + bias, features @ proposal_weights, labels)
    value = reference.average_k(*arguments, k=k, alpha=0.7)
    slope, proposal_slope = reference.average_k_gradient(*arguments, k=k, alpha=0.7)
    of_features = slope @ weights.T + proposal_slope @ proposal_weights.T
    gradients = (features.T @ slope, features.T @ proposal_slope, slope.sum(axis=0))
    return value, (of_features, *gradients)


@pytest.fixture
def batch(rng):
    features, weights, bias, labels = drawn(rng)
    return features, weights, jnp.roll(weights, 3, axis=1)[::-1], bias, labels


@pytest.mark.parametrize("k", [1, 2.5, pytest.param(NUM_CLASSES)])
def test_value_and_gradients_are_those_of_all_scores(k, batch):
    assert_close(compiled(k)(*batch), expected(k, *batch))


def test_candidates_of_equal_probability_are_of_earlier_examples_and_lower_classes(batch):
    features, weights, _, bias, labels = batch
    # All scores are 0: all classes but the true one are candidates of the first examples.
    arrays = (features, weights, jnp.zeros_like(weights), bias, labels)
    assert_close(compiled(2.5)(*arrays), expected(2.5, *arrays))


@pytest.mark.parametrize("are_tied", [False, True])
def test_accelerators_choose_the_same_candidates_without_a_sort(batch, monkeypatch, are_tied):
    features, weights, proposal_weights, bias, labels = batch
    if are_tied:
        proposal_weights = jnp.zeros_like(proposal_weights)
    arrays = (features, weights, proposal_weights, bias, labels)
    on_cpu = compiled(2.5)(*arrays)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )
    # Another function, or the program for the CPU would be taken.
    elsewhere = compiled.__wrapped__(2.5)
    assert "sort[" not in str(jax.make_jaxpr(elsewhere)(*arrays))
    assert_close(elsewhere(*arrays), on_cpu)


def test_nan_and_labels_out_of_range_are_nan(batch):
    features, weights, proposal_weights, bias, labels = batch
    for changed in (
        (features.at[2, 3].set(jnp.nan), weights, proposal_weights, bias, labels),
        (features, weights.at[0, 1].set(jnp.nan), proposal_weights, bias, labels),
        (features, weights, proposal_weights.at[0, 1].set(jnp.nan), bias, labels),
        (features, weights, proposal_weights, bias, labels.at[2].set(-1)),
        (features, weights, proposal_weights, bias, labels.at[2].set(NUM_CLASSES)),
    ):
        value, (of_features, *_) = compiled(2.5)(*changed)
        assert np.isnan(value)
        assert np.isnan(of_features).all()


@pytest.mark.parametrize("on_accelerators", [False, True])
def test_devices_share_the_candidates(batch, monkeypatch, on_accelerators):
    features, weights, proposal_weights, bias, labels = batch
    features, labels = jnp.tile(features, (4, 1)), jnp.tile(labels, 4)

    def loss(features, labels, axis_name=None):
        head, proposals = heads.LinearHead(weights, bias), heads.LinearHead(proposal_weights)
        return heads.average_k(
            features,
            head,
            proposals,
            labels,
            k=2.5,
            alpha=0.7,
            axis_name=axis_name,
            block_size=BLOCK,
        )

    expected = jax.jit(loss)(features, labels)
    if on_accelerators:
        monkeypatch.setattr(
            jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
        )
    split = PartitionSpec("devices")
    mapped = jax.shard_map(
        functools.partial(loss, axis_name="devices"),
        mesh=Mesh(np.array(jax.devices()), ("devices",)),
        in_specs=(split, split),
        out_specs=PartitionSpec(),
    )
    assert_close(jax.jit(mapped)(features, labels), expected)
    # The features of all devices.
    assert np.isnan(jax.jit(jax.grad(mapped))(features, labels.at[0].set(-1))).all()


def test_refuses_heads_of_different_classes(batch):
    features, weights, *_, labels = batch
    two = heads.LinearHead(weights), heads.LinearHead(weights[:, 1:])
    with pytest.raises(ValueError, match="proposal_head must have the 21 classes of head, got 20"):
        heads.average_k(features, *two, labels, k=2, alpha=1.0)
    with pytest.raises(TypeError, match="proposal_head must be a LinearHead or a CosineHead"):
        heads.average_k(features, two[0], None, labels, k=2, alpha=1.0)
