"""What the battery cannot ask of the losses of the sigmoid."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
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


both = pytest.mark.parametrize("name", [EPR, "role"])


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


def test_assume_negative_of_a_single_class():
    value = losses.assume_negative(jnp.array([[0.5]]), jnp.array([0]))
    np.testing.assert_allclose(value, np.log1p(np.exp(-0.5)), rtol=1e-6)  # one float32 logarithm


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
