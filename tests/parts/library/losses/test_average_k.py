"""The average-K loss and its candidates, on one device and on several."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.parts.library.losses import splits
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
def split_candidates(k, num_devices, mapping):
    def share(_, batch):
        return losses.average_k_candidates(*batch, k=k, axis_name=splits.AXIS)

    return splits.split(share, num_devices, mapping)


@functools.cache
def split_step(k, num_devices, mapping):
    step = splits.training_step(functools.partial(losses.average_k, k=k, alpha=0.7))
    return splits.split(step, num_devices, mapping)


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


@pytest.mark.parametrize("k", [1, 1.25, 1.6, 2, 2.75, 4.5, 5])
def test_candidates_are_the_likeliest_wrong_classes(rng, k):
    labels = rng.integers(0, NUM_CLASSES, NUM_EXAMPLES)
    for name, proposals in hostile_proposals(rng).items():
        chosen = candidates(k)(proposals, labels)
        wanted = reference.average_k_candidates(proposals, labels, k=k)
        np.testing.assert_array_equal(chosen, wanted, err_msg=name)
        assert chosen.sum() == math.floor((k - 1) * NUM_EXAMPLES), name
        assert not chosen[np.arange(NUM_EXAMPLES), labels].any(), name


@pytest.mark.parametrize(("num_devices", "mapping"), splits.SPLITS)
# Two candidates in all; six, although a device of eight has room for only four; all wrong classes.
@pytest.mark.parametrize("k", [1.25, 1.75, 5])
def test_candidates_on_devices_are_those_of_the_whole_batch(rng, k, num_devices, mapping):
    labels = rng.integers(0, NUM_CLASSES, NUM_EXAMPLES)
    for name, proposals in hostile_proposals(rng).items():
        chosen = split_candidates(k, num_devices, mapping)(np.zeros(1), (proposals, labels))
        whole = candidates(k)(proposals, labels)
        np.testing.assert_array_equal(np.concatenate(chosen), whole, err_msg=name)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_log_odds_of_zero_with_either_sign_are_equal(monkeypatch, platform):
    if platform != "cpu":
        monkeypatch.setattr(
            jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
        )
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


@pytest.mark.parametrize("num_devices", [1, 4])
def test_broken_examples_have_no_candidates(rng, num_devices):
    _, proposals, labels = batch(rng)
    proposals[2, 1], labels[5], labels[6] = np.nan, -1, NUM_CLASSES
    broken = [2, 5, 6]
    # Six candidates go only to the others; with K = 5 these have 20 wrong classes, not 32.
    for k, count in ((1.75, 6), (5, 20)):
        chosen = candidates(k)(proposals, labels)
        shares = split_candidates(k, num_devices, "pmap")(np.zeros(1), (proposals, labels))
        np.testing.assert_array_equal(np.concatenate(shares), chosen)
        assert not np.asarray(chosen)[broken].any()
        assert chosen.sum() == count


@pytest.mark.parametrize("k", [1, 1.6, 2, 4.5, 5])
def test_value_and_gradient(rng, k):
    logits, proposals, labels = batch(rng)
    value, gradients = loss_and_gradients(k)(logits, proposals, labels, 0.7)
    # float32 sums of some 40 terms of order 1.
    wanted = reference.average_k(logits, proposals, labels, k=k, alpha=0.7)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    wanted = reference.average_k_gradient(logits, proposals, labels, k=k, alpha=0.7)
    for gradient, want in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-7)


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


def test_no_gradient_flows_through_the_choice(rng):
    logits, proposals, labels = batch(rng)

    def loss(proposals):
        whole = losses.average_k(logits, proposals, labels, k=2, alpha=3.0)
        return whole - losses.cross_entropy(proposals, labels).mean()

    # The two gradients of the cross-entropy cancel to the last bits of numbers of order 1.
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(proposals), 0.0, atol=1e-7)


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


@pytest.mark.parametrize("broken", ["logits", "proposals", "negative label", "large label"])
def test_one_broken_example_makes_every_device_nan(rng, broken):
    logits, proposals, labels = batch(rng)
    if broken == "logits":
        logits[3, 2] = np.nan
    elif broken == "proposals":
        proposals[3, 2] = np.nan
    else:
        labels[3] = -1 if broken == "negative label" else NUM_CLASSES
    params = [np.zeros((3, NUM_CLASSES), np.float32)] * 2
    share = ([logits, proposals], np.zeros((NUM_EXAMPLES, 3), np.float32), labels)
    assert np.isnan(split_step(2.3, 4, "pmap")(params, share)[0]).all()


@pytest.mark.parametrize(("num_devices", "mapping"), splits.SPLITS)
def test_split_batch(rng, num_devices, mapping):
    logits, proposals, labels = batch(rng)
    parameters = {"k": 2.3, "alpha": 0.7}
    splits.check_training_step(
        split_step(2.3, num_devices, mapping),
        num_devices,
        mapping,
        (logits, proposals),
        functools.partial(reference.average_k, **parameters),
        functools.partial(reference.average_k_gradient, **parameters),
        labels,
        rng,
    )


@pytest.mark.parametrize(("k", "mapping"), [(1, "pmap"), (5, "pmap"), (2.3, "checked_shard_map")])
def test_split_batch_at_the_ends_and_with_checked_replication(rng, k, mapping):
    logits, proposals, labels = batch(rng)
    splits.check_training_step(
        split_step(k, 4, mapping),
        4,
        mapping,
        (logits, proposals),
        functools.partial(reference.average_k, k=k, alpha=0.7),
        functools.partial(reference.average_k_gradient, k=k, alpha=0.7),
        labels,
        rng,
    )


ZEROS = np.zeros((2, 3), np.float32)
BATCH = {"proposal_logits": ZEROS, "labels": np.zeros(2, np.int32), "k": 2}
SHARED_REFUSALS = [
    ({"proposal_logits": np.zeros((2, 3), np.int32)}, TypeError, "proposal_logits must be a float"),
    ({"proposal_logits": "x"}, TypeError, "proposal_logits must be a float"),
    ({"proposal_logits": np.float32(1.0)}, ValueError, "proposal_logits must have at least one"),
    ({"labels": np.zeros(2, np.float32)}, TypeError, "labels must be an integer"),
    ({"labels": np.zeros(3, np.int32)}, ValueError, r"labels must have shape \(2,\)"),
    ({"k": 0.5}, ValueError, "k must be from 1 to 3 .*got 0.5"),
    ({"k": 3.5}, ValueError, "k must be from 1 to 3 .*got 3.5"),
    ({"k": math.nan}, ValueError, "k must be a finite number, got nan"),
    ({"k": "2"}, TypeError, "k must be a real number, got '2'"),
    ({"k": True}, TypeError, "k must be a real number, got True"),
    ({"axis_name": "rows"}, ValueError, "axis_name must be None or the name .*got 'rows'"),
    ({"axis_name": ["rows"]}, ValueError, "axis_name must be None or the name"),
]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        *SHARED_REFUSALS,
        (
            {"proposal_logits": np.zeros((0, 3), np.float32), "labels": np.zeros(0, np.int32)},
            ValueError,
            "proposal_logits must have at least one example",
        ),
    ],
)
def test_candidates_refuse(wrong, error, message):
    with pytest.raises(error, match=message):
        losses.average_k_candidates(**{**BATCH, **wrong})


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        *SHARED_REFUSALS,
        (
            {"proposal_logits": np.zeros((2, 4), np.float32)},
            ValueError,
            "proposal_logits must have",
        ),
        ({"logits": np.zeros((2, 3), np.int32)}, TypeError, "logits must be a float"),
        ({"logits": np.zeros((2, 4), np.float32)}, ValueError, "proposal_logits must have shape"),
        ({"alpha": -0.1}, ValueError, "alpha must be at least 0, got -0.1"),
        ({"alpha": math.nan}, ValueError, "alpha must be at least 0, got nan"),
        ({"alpha": np.ones(2)}, ValueError, "alpha must be a scalar"),
        ({"alpha": "x"}, TypeError, "alpha must be a real"),
        (
            {
                "logits": np.zeros((0, 3), np.float32),
                "proposal_logits": np.zeros((0, 3), np.float32),
                "labels": np.zeros(0, np.int32),
            },
            ValueError,
            "logits must have at least one example",
        ),
    ],
)
def test_loss_refuses(wrong, error, message):
    with pytest.raises(error, match=message):
        losses.average_k(**{**BATCH, "logits": ZEROS, "alpha": 0.3, **wrong})


def test_k_is_static():
    with pytest.raises(TypeError, match="k must be a static number, got a traced value"):
        jax.jit(lambda k: losses.average_k_candidates(ZEROS, BATCH["labels"], k=k))(2)
