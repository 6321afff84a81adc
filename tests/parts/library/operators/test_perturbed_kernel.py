"""The kernel of the perturbed selection: the classes and values of the plain one, bit for bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from tests.rows import rows
from topk_jax import losses, operators

KEY = jax.random.key(7)


def scores_of(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def by(implementation, operator, scores, key, k, num_samples, epsilon):
    @jax.jit
    def of(scores, key, epsilon):
        call = functools.partial(
            operator, k=k, num_samples=num_samples, implementation=implementation
        )
        values, slopes = jax.vjp(lambda s, e: call(key, s, epsilon=e), scores, epsilon)
        return values, slopes(jnp.ones_like(values))

    return of(scores, key, jnp.float32(epsilon))


# Rows of less than a block, of full blocks and with a part of one; samples of one group and more.
@pytest.mark.parametrize(
    ("shape", "k", "num_samples", "epsilon"),
    rows(
        [((2, 3, 100), 6, 3, 0.5), ((2, 1081), 11, 10, 0.1), ((7,), 7, 1, 1.0)],
        [((3, 1024), 2, 8, 1.0), ((4, 600), 3, 5, 0.0)],
    ),
)
def test_the_kth_largest_is_that_of_the_plain_selection(shape, k, num_samples, epsilon):
    arguments = (operators.perturbed_top_k_value, scores_of(shape), KEY, k, num_samples, epsilon)
    plain, kernel = by("xla", *arguments), by("pallas", *arguments)
    jax.tree.map(np.testing.assert_array_equal, kernel, plain)


def test_the_sum_selects_the_same_classes():
    arguments = (operators.perturbed_top_k_sum, scores_of((3, 700)), KEY, 5, 4, 0.5)
    plain, kernel = by("xla", *arguments), by("pallas", *arguments)
    # The frequencies of the classes.
    np.testing.assert_array_equal(kernel[1][0], plain[1][0])
    # Sums of 5 values, in another order.
    np.testing.assert_allclose(kernel[0], plain[0], rtol=1e-6)


def test_equal_masked_and_missing_scores_rank_as_in_the_plain_selection():
    scores = np.zeros((4, 600), np.float32)
    scores[1, 3:] = -np.inf
    scores[2] = -np.inf
    scores[3, 5] = np.nan
    # Without noise equal scores stay equal.
    for epsilon in (0.0, 1.0):
        arguments = (operators.perturbed_top_k_value, jnp.asarray(scores), KEY, 4, 2, epsilon)
        plain, kernel = by("xla", *arguments), by("pallas", *arguments)
        jax.tree.map(np.testing.assert_array_equal, kernel, plain)


def test_the_loss_under_vmap_and_shard_map():
    logits, labels = scores_of((8, 50), 1), jnp.arange(8)
    keys = jax.random.split(KEY, 8)

    def loss(implementation, logits, labels, keys):
        return losses.noised_top_k_hinge(
            logits,
            labels,
            k=3,
            epsilon=1.0,
            num_samples=3,
            key=keys,
            implementation=implementation,
        )

    plain = jax.jit(functools.partial(loss, "xla"))(logits, labels, keys)
    kernel = functools.partial(loss, "pallas")
    np.testing.assert_array_equal(jax.vmap(kernel)(logits, labels, keys), plain)
    split = PartitionSpec("data")
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    # JAX's interpreter of kernels does not know over which devices a loop varies.
    mapped = jax.shard_map(kernel, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    np.testing.assert_array_equal(jax.jit(mapped)(logits, labels, keys), plain)


@pytest.mark.parametrize(("platform", "kernels"), [("tpu", 1), ("cuda", 0), ("rocm", 0)])
def test_the_kernel_is_for_tpus(platform, kernels):
    operator = jax.jit(
        functools.partial(
            operators.perturbed_top_k_value,
            k=6,
            epsilon=1.0,
            num_samples=5,
            implementation="pallas",
        )
    )
    exported = jax.export.export(operator, platforms=[platform])
    program = exported(KEY, jax.ShapeDtypeStruct((8, 1081), jnp.float32)).mlir_module()
    assert program.count("stablehlo.custom_call @tpu_custom_call") == kernels
    assert "triton" not in program
