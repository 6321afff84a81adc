"""The average-K loss and its candidates, on one device and on several."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from tests import reference
from topk_jax import losses

NUM_EXAMPLES, NUM_CLASSES = 8, 5

candidates = functools.cache(
    lambda k: jax.jit(functools.partial(losses.average_k_candidates, k=k)),
)


@functools.cache
def loss_and_gradients(k):
    def loss(logits, proposals, labels, alpha):
        return losses.average_k(logits, proposals, labels, k=k, alpha=alpha)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))


@functools.cache
def split_candidates(k, num_devices):
    """The candidates of a batch in equal shares, of which each device has one."""
    split = PartitionSpec("devices")
    share = functools.partial(losses.average_k_candidates, k=k, axis_name="devices")
    mesh = Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
    return jax.jit(jax.shard_map(share, mesh=mesh, in_specs=(split, split), out_specs=split))


def batch(rng, num_examples=NUM_EXAMPLES, num_classes=NUM_CLASSES):
    logits, proposals = rng.normal(size=(2, num_examples, num_classes)).astype(np.float32) * 2
    return logits, proposals, rng.integers(0, num_classes, num_examples)


def hostile_proposals(rng):
    """Proposals [8, 5] with ties within and across examples, and with candidates in one place.

    Entries tie in float32 and in float64: the numbers that the normaliser adds up are 1 or too
    small to matter, so that its rounding does not depend on the order of a shuffled row.
    """
    shape = (NUM_EXAMPLES, NUM_CLASSES)
    peaked = np.zeros(shape)
    peaked[:, 0] = 50.0
    masked = rng.normal(size=shape)
    masked[:, 1:] = -np.inf
    one_row = np.full(shape, -30.0)
    one_row[:, 0] = 30.0
    one_row[5] = [0.0, 0.1, 0.1, 0.2, 0.1]
    cases = {
        "random": rng.normal(size=shape),
        "equal": np.zeros(shape),
        "few values": np.tile(rng.permuted([0.0, 0.0, 1.0, 1.0, 1.0]), (NUM_EXAMPLES, 1)),
        "shuffled values": rng.permuted(np.tile([0.0, 0.0, 0.0, -200.0, -300.0], (8, 1)), axis=1),
        "underflowing": np.where(peaked > 0, 1e4, rng.normal(size=shape)),
        "peaked": peaked,
        "masked": masked,
        "first device": np.linspace(0.0, 3.0, NUM_EXAMPLES)[:, None] * peaked / 50.0,
        "last device": np.linspace(3.0, 0.0, NUM_EXAMPLES)[:, None] * peaked / 50.0,
        "one example": one_row,
    }
    return {name: case.astype(np.float32) for name, case in cases.items()}


@pytest.mark.parametrize("k", [1, 1.25, 2.75, 5])
def test_candidates_are_the_likeliest_wrong_classes(rng, k):
    labels = rng.integers(0, NUM_CLASSES, NUM_EXAMPLES)
    for name, proposals in hostile_proposals(rng).items():
        chosen = candidates(k)(proposals, labels)
        wanted = reference.average_k_candidates(proposals, labels, k=k)
        np.testing.assert_array_equal(chosen, wanted, err_msg=name)
        assert chosen.sum() == math.floor((k - 1) * NUM_EXAMPLES), name
        assert not chosen[np.arange(NUM_EXAMPLES), labels].any(), name


# Two candidates in all; six, although a device of eight has room for only four; all wrong classes.
@pytest.mark.parametrize(("k", "num_devices"), [(1.25, 2), (1.25, 8), (1.75, 8), (5, 4)])
def test_candidates_on_devices_are_those_of_the_whole_batch(rng, k, num_devices):
    labels = rng.integers(0, NUM_CLASSES, NUM_EXAMPLES)
    for name, proposals in hostile_proposals(rng).items():
        chosen = split_candidates(k, num_devices)(proposals, labels)
        np.testing.assert_array_equal(chosen, candidates(k)(proposals, labels), err_msg=name)


def test_log_odds_of_zero_with_either_sign_are_equal():
    proposals = np.array([[-0.0, -0.0], [0.0, 0.0], [-0.0, -0.0]], np.float32)
    chosen = losses.average_k_candidates(proposals, np.zeros(3, int), k=1.4)
    np.testing.assert_array_equal(chosen, [[False, True], [False, False], [False, False]])


def test_candidates_at_many_classes(rng):
    logits = rng.normal(size=(16, 1081)).astype(np.float32) * 3
    labels = rng.integers(0, 1081, 16)
    wanted = reference.average_k_candidates(logits, labels, k=5)
    np.testing.assert_array_equal(candidates(5)(logits, labels), wanted)


def test_decimals_of_k_are_exact():
    # As floats, 2.3 - 1 and 1.15 are too small for 13 and 15 candidates.
    for k, num_examples, count in ((2.3, 10, 13), (1.15, 100, 15), (np.float32(2.3), 10, 13)):
        assert candidates(k)(jnp.zeros((num_examples, 3)), jnp.zeros(num_examples, int)).sum() == (
            count
        )


def test_broken_examples_have_no_candidates(rng):
    _, proposals, labels = batch(rng)
    proposals[2, 1], labels[5], labels[6] = np.nan, -1, NUM_CLASSES
    broken = [2, 5, 6]
    # Six candidates go only to the others; with K = 5 these have 20 wrong classes, not 32.
    for k, count in ((1.75, 6), (5, 20)):
        chosen = candidates(k)(proposals, labels)
        np.testing.assert_array_equal(split_candidates(k, 4)(proposals, labels), chosen)
        assert not np.asarray(chosen)[broken].any()
        assert chosen.sum() == count


def test_batch_of_one_and_of_several_axes(rng):
    logits, proposals, labels = batch(rng, num_examples=1)
    value, _ = loss_and_gradients(2)(logits, proposals, labels, 0.3)
    wanted = reference.average_k(logits, proposals, labels, k=2, alpha=0.3)
    # float32 sums of five terms of order 1.
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    alone, _ = loss_and_gradients(2)(logits[0], proposals[0], labels[0], 0.3)
    np.testing.assert_allclose(alone, value, rtol=1e-6)  # fused in another order

    logits, proposals, labels = batch(rng)
    value, _ = loss_and_gradients(2)(logits, proposals, labels, 0.3)
    folded = [array.reshape(2, 4, *array.shape[1:]) for array in (logits, proposals, labels)]
    folded_value, _ = loss_and_gradients(2)(*folded, 0.3)
    np.testing.assert_allclose(folded_value, value, rtol=1e-6)  # added up in another order


def test_heads_of_two_dtypes(rng):
    logits, proposals, labels = batch(rng)
    value, gradients = loss_and_gradients(2)(
        jnp.asarray(logits, jnp.bfloat16), proposals, labels, 1
    )
    assert value.dtype == jnp.float32
    assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.float32]
    with jax.enable_x64(True):
        for heads in (
            (logits.astype(np.float64), proposals),
            (logits, proposals.astype(np.float64)),
        ):
            value, gradients = loss_and_gradients(2)(*heads, labels, 0.7)
            assert value.dtype == np.float64
            assert [gradient.dtype for gradient in gradients] == [head.dtype for head in heads]
            # float64 sums of some 40 terms of order 1.
            wanted = reference.average_k(*heads, labels, k=2, alpha=0.7)
            np.testing.assert_allclose(value, wanted, rtol=1e-13)


def test_masked_classes_are_harmless(rng):
    logits, proposals, labels = batch(rng)
    labels[:] = 0
    # Class 1 is masked in both heads. Class 2 is masked in only the multi-label head, and a
    # candidate.
    logits[:, 1:3], proposals[:, 1], proposals[:, 2] = -np.inf, -np.inf, 30.0
    value, gradients = loss_and_gradients(2)(logits, proposals, labels, 0.7)
    marks = candidates(2)(proposals, labels)
    assert np.isfinite(value)
    assert marks[:, 2].all()
    assert not np.asarray(gradients[0])[:, 1:3].any()
    assert not np.asarray(gradients[1])[:, 1].any()
    assert np.isfinite(gradients).all()
    # Nothing is left of the 8 candidates' term, and classes 1, 3 and 4 are the other 24 entries.
    negative = np.logaddexp(0.0, logits[:, 3:].astype(np.float64)).sum() / 24
    positive = np.logaddexp(0.0, -logits[:, 0].astype(np.float64)).mean()
    wanted = reference.cross_entropy(proposals, labels).mean() + positive + 0.7 * negative
    np.testing.assert_allclose(value, wanted, rtol=1e-5)  # float32 sums of positive terms


@pytest.mark.parametrize("k", [0.5, math.nan, True])
def test_a_wrong_k_is_refused(k):
    with pytest.raises((TypeError, ValueError), match="k must be"):
        losses.average_k_candidates(np.zeros((2, 3), np.float32), np.zeros(2, int), k=k)


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match="logits"):
        losses.average_k_candidates(np.zeros((0, 3), np.float32), np.zeros(0, int), k=2)
