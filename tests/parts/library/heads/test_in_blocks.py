"""Any loss of single examples in blocks of them, beside the loss of all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import heads, losses

LOSSES = {
    "focal": functools.partial(losses.focal, gamma=2.0),
    "top_k_hinge": functools.partial(losses.top_k_hinge, k=5),
    "noised_top_k_hinge": functools.partial(
        losses.noised_top_k_hinge, k=5, epsilon=0.5, num_samples=3
    ),
}


def both(name, num_examples, block_size, num_classes=100):
    """The function of weights, features, labels and keys: values and gradients."""

    def loss(weights, features, labels_and_keys):
        labels, keys = labels_and_keys
        given = {"key": keys} if name.startswith("noised") else {}
        return LOSSES[name](features @ weights, labels, **given)

    def total(is_in_blocks, weights, features, *labels_and_keys):
        one = functools.partial(loss, weights)
        if is_in_blocks:
            one = functools.partial(heads.in_blocks, one, block_size=block_size)
        values = one(features, labels_and_keys)
        return (values * jnp.arange(1.0, num_examples + 1)).sum(), values

    rng = np.random.default_rng(0)
    arrays = (
        jnp.asarray(rng.normal(size=(16, num_classes)), jnp.float32),
        jnp.asarray(rng.normal(size=(num_examples, 16)), jnp.float32),
        jnp.asarray(rng.integers(num_classes, size=num_examples)),
        jax.random.split(jax.random.key(0), num_examples),
    )
    programs = (
        jax.jit(jax.value_and_grad(functools.partial(total, each), argnums=(0, 1), has_aux=True))
        for each in (True, False)
    )
    return *programs, arrays


@pytest.mark.parametrize(
    ("name", "num_examples", "block_size"),
    [
        ("focal", 10, 3),
        ("top_k_hinge", 6, 3),
        ("top_k_hinge", 2, 5),
        ("noised_top_k_hinge", 10, 4),
        ("focal", 0, 3),
    ],
)
def test_values_and_gradients_are_those_of_the_loss(name, num_examples, block_size):
    ours, plain, arrays = both(name, num_examples, block_size)
    found, wanted = ours(*arrays), plain(*arrays)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        # Sums over the examples in another order.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-5)


def test_the_scores_of_one_block_are_in_memory():
    *programs, arrays = both("top_k_hinge", 1024, 64, num_classes=10_000)
    ours, plain = (
        program.lower(*arrays).compile().memory_analysis().temp_size_in_bytes
        for program in programs
    )
    # All scores have 41 MB, those of a block 2.6 MB.
    assert ours < 20 * 2**20 < 80 * 2**20 < plain


def test_what_is_no_loss_of_single_examples_is_refused():
    features, labels = jnp.ones((4, 3)), jnp.zeros(4, jnp.int32)
    with pytest.raises(ValueError, match="loss must return one number for each of 2 examples"):
        heads.in_blocks(lambda x, _: x.sum(), features, labels, block_size=2)
    with pytest.raises(ValueError, match="the same number of examples"):
        heads.in_blocks(losses.cross_entropy, features, labels[:3], block_size=2)
