"""What the battery cannot ask of the losses of the sigmoid: split batches, and single cases."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.parts.library.losses import splits
from topk_jax import losses

EPS = float(np.finfo(np.float32).eps)
NUM_EXAMPLES, NUM_CLASSES = 8, 5
EPR = "expected_positive_regularization"
PARAMETERS = {
    EPR: {"expected_positives": 1.5, "beta": 0.3},
    "role": {"expected_positives": 1.5, "weight": 0.3},
}
NUM_HEADS = {EPR: 1, "role": 2}


def batch(rng, name):
    heads = rng.normal(size=(NUM_HEADS[name], NUM_EXAMPLES, NUM_CLASSES)).astype(np.float32)
    return list(2 * heads), rng.integers(0, NUM_CLASSES, NUM_EXAMPLES)


def ours(name, **changed):
    return functools.partial(getattr(losses, name), **PARAMETERS[name] | changed)


def theirs(name):
    return functools.partial(getattr(reference, name), **PARAMETERS[name])


def their_gradients(name):
    """The reference's gradients, one for each head."""

    def gradients(*arrays):
        gradient = getattr(reference, f"{name}_gradient")(*arrays, **PARAMETERS[name])
        return gradient if isinstance(gradient, tuple) else (gradient,)

    return gradients


@functools.cache
def compiled(name):
    heads = tuple(range(NUM_HEADS[name]))
    return jax.jit(jax.value_and_grad(ours(name), argnums=heads))


@functools.cache
def split_step(name, num_devices, mapping):
    return splits.split(splits.training_step(ours(name)), num_devices, mapping)


both = pytest.mark.parametrize("name", [EPR, "role"])


@both
@pytest.mark.parametrize(("num_devices", "mapping"), [*splits.SPLITS, (4, "checked_shard_map")])
def test_split_batch(rng, name, mapping, num_devices):
    heads, labels = batch(rng, name)
    step = split_step(name, num_devices, mapping)
    splits.check_training_step(
        step, num_devices, mapping, heads, theirs(name), their_gradients(name), labels, rng
    )


@both
def test_split_by_vmap(rng, name):
    heads, labels = batch(rng, name)
    shares = [array.reshape(4, 2, *array.shape[1:]) for array in (*heads, labels)]
    values = jax.jit(jax.vmap(ours(name, axis_name="rows"), axis_name="rows"))(*shares)
    # float32 sums of some 60 terms of order 1.
    np.testing.assert_allclose(values, np.full(4, theirs(name)(*heads, labels)), rtol=1e-5)


@both
@pytest.mark.parametrize("broken", ["logits", "negative label", "large label"])
def test_one_broken_example_makes_every_device_nan(rng, name, broken):
    for head in range(NUM_HEADS[name]):
        heads, labels = batch(rng, name)
        if broken == "logits":
            heads[head][3, 2] = np.nan
        else:
            labels[3] = -1 if broken == "negative label" else NUM_CLASSES
        params = [np.zeros((3, NUM_CLASSES), np.float32)] * len(heads)
        share = (heads, np.zeros((NUM_EXAMPLES, 3), np.float32), labels)
        assert np.isnan(split_step(name, 4, "pmap")(params, share)[0]).all()


@both
def test_batch_of_one_and_of_several_axes(rng, name):
    heads, labels = batch(rng, name)
    whole, _ = compiled(name)(*heads, labels)
    folded = [array.reshape(2, 4, *array.shape[1:]) for array in (*heads, labels)]
    value, _ = compiled(name)(*folded)
    np.testing.assert_allclose(value, whole, rtol=1e-6)  # added up in another order

    value, _ = compiled(name)(*(array[0] for array in (*heads, labels)))
    wanted = theirs(name)(*(array[:1] for array in (*heads, labels)))
    np.testing.assert_allclose(value, wanted, rtol=1e-5)  # float32 sums of ten terms of order 1


def test_forward_mode_and_hessian_of_role(rng):
    heads, labels = batch(rng, "role")
    with jax.enable_x64(True):
        heads = np.stack(heads).astype(np.float64)
        direction = rng.normal(size=heads.shape)

        def loss(heads):
            return ours("role")(*heads, labels)

        slope = jax.jit(lambda *both: jax.jvp(loss, both[:1], both[1:])[1])(heads, direction)
        wanted = np.stack(their_gradients("role")(*heads, labels))
        np.testing.assert_allclose(slope, (wanted * direction).sum(), rtol=1e-12)  # 80 products

        hessian = jax.jit(jax.hessian(loss))(heads)
        # The other side of a cross term is a constant in both derivatives: the hessian in
        # one head equals the hessian of the loss with the other head fixed; mixed ones are 0.
        for head in (0, 1):
            np.testing.assert_array_equal(hessian[head, :, :, 1 - head], 0.0)

            def gradient_at(own, head=head):
                both_heads = [own, heads[1]] if head == 0 else [heads[0], own]
                return their_gradients("role")(*both_heads, labels)[head]

            differences = reference.finite_difference_jacobian(gradient_at, heads[head], 1e-5)
            # The square of the step times a third derivative of order 1, and 1e-15 over the step.
            np.testing.assert_allclose(hessian[head, :, :, head], differences, atol=1e-8)


def test_role_is_that_of_cole_et_al(rng):
    (logits, estimates), labels = batch(rng, "role")
    strength, expected = 0.8, PARAMETERS["role"]["expected_positives"]
    f, theta = reference.sigmoid(logits), reference.sigmoid(estimates)
    observed = np.eye(NUM_CLASSES)[labels]
    total = 0.0
    for own, other in ((f, theta), (theta, f)):
        entries = -observed * np.log(own)
        entries += -other * np.log(own) - (1 - other) * np.log(1 - own)
        gap = (own.sum(axis=-1).mean() - expected) / NUM_CLASSES
        total += 0.5 * (entries.mean() + strength * gap**2)
    value = ours("role", weight=strength / NUM_CLASSES)(logits, estimates, labels)
    # float32 sums of some 160 terms of order 1.
    np.testing.assert_allclose(value / NUM_CLASSES, total, rtol=1e-5)


def test_class_masked_on_one_side_of_role_is_harmless(rng):
    for masked in (0, 1):
        heads, labels = batch(rng, "role")
        labels[:] = 0
        heads[masked][:, 1] = -np.inf
        value, gradients = compiled("role")(*heads, labels)
        # float32 sums of some 160 terms of order 1.
        np.testing.assert_allclose(value, theirs("role")(*heads, labels), rtol=1e-5)
        np.testing.assert_allclose(gradients, their_gradients("role")(*heads, labels), atol=1e-6)
        assert not np.asarray(gradients[masked])[:, 1].any()
        # The other side still learns that the class is absent.
        assert (np.asarray(gradients[1 - masked])[:, 1] > 0).all()


def test_heads_of_role_in_two_dtypes(rng):
    (logits, estimates), labels = batch(rng, "role")
    value, gradients = compiled("role")(jnp.asarray(logits, jnp.bfloat16), estimates, labels)
    assert value.dtype == jnp.float32
    assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.float32]


def test_assume_negative_is_binary_cross_entropy_of_two_classes(rng):
    logits, labels = rng.normal(size=(4, 2)).astype(np.float32), np.array([0, 1, 1, 0])
    both_ways = losses.binary_cross_entropy(logits, np.eye(2, dtype=np.int32)[labels])
    # The same two terms; one is multiplied by 1.
    np.testing.assert_allclose(losses.assume_negative(logits, labels), both_ways, rtol=1e-7)


def test_assume_negative_of_a_single_class():
    value = losses.assume_negative(jnp.array([[0.5]]), jnp.array([0]))
    np.testing.assert_allclose(value, np.log1p(np.exp(-0.5)), rtol=1e-6)  # one float32 logarithm


def test_labels_of_eight_bits_count_beyond_256_classes(rng):
    logits, labels = rng.normal(size=(3, 600)).astype(np.float32), np.array([5, 200, 255])
    narrow = losses.assume_negative(logits, labels.astype(np.uint8))
    np.testing.assert_array_equal(narrow, losses.assume_negative(logits, labels))


ZEROS = np.zeros((2, 3), np.float32)
NO_EXAMPLES = {"logits": np.zeros((0, 3), np.float32), "labels": np.zeros(0, np.int32)}
SHARED_REFUSALS = [
    ({"axis_name": "rows"}, ValueError, "axis_name must be None or the name .*got 'rows'"),
    ({"axis_name": ["rows"]}, ValueError, "axis_name must be None or the name"),
    ({"expected_positives": 3.1}, ValueError, "expected_positives must be .*at most 3, got 3.1"),
]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [*SHARED_REFUSALS, (NO_EXAMPLES, ValueError, "logits must have at least one example")],
)
def test_expected_positive_regularization_refuses(wrong, error, message):
    arguments = {"logits": ZEROS, "labels": np.zeros(2, np.int32)}
    with pytest.raises(error, match=message):
        ours(EPR)(**{**arguments, **wrong})


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        *SHARED_REFUSALS,
        ({"label_logits": np.zeros((2, 3), np.int32)}, TypeError, "label_logits must be a float"),
        ({"label_logits": "x"}, TypeError, "label_logits must be a float"),
        (
            {"label_logits": np.zeros((3, 3), np.float32)},
            ValueError,
            r"label_logits must have shape \(2, 3\), got shape \(3, 3\)",
        ),
        (
            {**NO_EXAMPLES, "label_logits": NO_EXAMPLES["logits"]},
            ValueError,
            "logits must have at least one example",
        ),
    ],
)
def test_role_refuses(wrong, error, message):
    arguments = {"logits": ZEROS, "label_logits": ZEROS, "labels": np.zeros(2, np.int32)}
    with pytest.raises(error, match=message):
        ours("role")(**{**arguments, **wrong})


# Soft targets


def test_soft_targets_are_the_reference(rng):
    logits = jnp.asarray(rng.normal(size=(6, 8)) * 3, jnp.float32).at[0, 0].set(-jnp.inf)
    targets = rng.random((6, 8)).astype(np.float32)
    targets[:, :3] = [0, 1, 0.5]
    values, pull_back = jax.vjp(lambda s: losses.binary_cross_entropy(s, targets), logits)
    (gradient,) = pull_back(jnp.ones(6))
    # A sum of eight terms, each with two roundings of its parts.
    np.testing.assert_allclose(
        values, reference.binary_cross_entropy(logits, targets), rtol=16 * EPS
    )
    expected = reference.binary_cross_entropy_gradient(logits, targets)
    np.testing.assert_allclose(gradient, expected, atol=4 * EPS)


def test_a_soft_target_mixes_the_losses_of_hard_ones(rng):
    logits = jnp.asarray(rng.normal(size=(6, 8)), jnp.float32)
    present, absent = (losses.binary_cross_entropy(logits, np.full((6, 8), t)) for t in (1, 0))
    mixed = losses.binary_cross_entropy(logits, np.full((6, 8), 0.25, np.float32))
    np.testing.assert_allclose(mixed, 0.25 * present + 0.75 * absent, rtol=16 * EPS)


@pytest.mark.parametrize("wrong", [-0.25, 1.25])
def test_a_target_outside_0_and_1_is_refused_and_nan_if_traced(wrong):
    logits = jnp.zeros((2, 3))
    targets = np.array([[0.5, wrong, 0.0], [1.0, 0.0, 0.0]], np.float32)
    with pytest.raises(ValueError, match="targets must be from 0 to 1, got"):
        losses.binary_cross_entropy(logits, targets)
    found = jax.jit(losses.binary_cross_entropy)(logits, targets)
    np.testing.assert_array_equal(jnp.isnan(found), [True, False])
    # Examples that are left out may have any targets.
    left_out = losses.binary_cross_entropy(logits, targets, where=np.array([False, True]))
    assert jnp.isfinite(left_out).all()


def test_sparse_targets_are_0_or_1():
    with pytest.raises(ValueError, match=r"targets must be 0 or 1, got 0\.5"):
        losses.sparse_top_loss(jnp.zeros(3), np.array([0.5, 0.0, 1.0], np.float32))
