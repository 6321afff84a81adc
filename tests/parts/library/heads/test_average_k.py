"""The average-K loss of two heads over blocks of classes, beside the reference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from tests import reference
from tests.parts.library.heads.test_heads import (
    BLOCK,
    NUM_CLASSES,
    assert_close,
    drawn,
    scores_of,
)
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
    scores, pulled_back = scores_of("linear", features, weights, bias)
    proposals, of_proposals = scores_of("linear", features, proposal_weights, 0.0)
    arguments = {"k": k, "alpha": 0.7}
    value = reference.average_k(scores, proposals, labels, **arguments)
    slope, proposal_slope = reference.average_k_gradient(scores, proposals, labels, **arguments)
    of_features, of_weights, of_bias = pulled_back(slope)
    others, of_proposal_weights, _ = of_proposals(proposal_slope)
    return value, (of_features + others, of_weights, of_proposal_weights, of_bias)


@pytest.fixture
def batch(rng):
    features, weights, bias, labels = drawn(rng)
    return features, weights, jnp.roll(weights, 3, axis=1)[::-1], bias, labels


# Of equal proposals, all but the true class are candidates of the first examples.
@pytest.mark.parametrize(("k", "spread"), [(1, 1), (2.5, 1), (NUM_CLASSES, 1), (2.5, 0)])
def test_value_and_gradients_are_those_of_all_scores(k, spread, batch):
    features, weights, proposal_weights, bias, labels = batch
    arrays = (features, weights, spread * proposal_weights, bias, labels)
    assert_close(compiled(k)(*arrays), expected(k, *arrays))


@pytest.mark.parametrize("spread", [1, 0])
def test_accelerators_choose_the_same_candidates(batch, monkeypatch, spread):
    features, weights, proposal_weights, bias, labels = batch
    arrays = (features, weights, spread * proposal_weights, bias, labels)
    on_cpu = compiled(2.5)(*arrays)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )
    # Another function, or the program for the CPU would be taken.
    elsewhere = compiled.__wrapped__(2.5)
    assert_close(elsewhere(*arrays), on_cpu)


def test_nan_and_labels_out_of_range_are_nan(batch):
    features, weights, proposal_weights, bias, labels = batch
    for changed in (
        (features.at[2, 3].set(jnp.nan), weights, proposal_weights, bias, labels),
        (features, weights.at[0, 1].set(jnp.nan), proposal_weights, bias, labels),
        (features, weights, proposal_weights.at[0, 1].set(jnp.nan), bias, labels),
        (features, weights, proposal_weights, bias, labels.at[2].set(NUM_CLASSES)),
    ):
        value, (of_features, *_) = compiled(2.5)(*changed)
        assert np.isnan(value)
        assert np.isnan(of_features).all()


def test_devices_share_the_candidates(batch):
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


def test_heads_of_different_classes_are_refused(batch):
    features, weights, *_, labels = batch
    two = heads.LinearHead(weights), heads.LinearHead(weights[:, 1:])
    with pytest.raises(ValueError, match="proposal_head"):
        heads.average_k(features, *two, labels, k=2, alpha=1.0)
