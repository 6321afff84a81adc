"""Rows of the same name in tests/parts that take long."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from tests.parts.library.heads.test_scores import AXES, draw, head_of
from topk_jax import heads, losses


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_gradient_of_a_split_head_is_that_of_one_device(kind, rng):
    arrays, labels = draw(rng), jnp.arange(8) * 2

    def mean_loss(arrays, name=None):
        logits = heads.scores(arrays["features"], head_of(kind, arrays))
        return losses.calibrated_top_k_hinge(logits, labels, k=3, class_axis_name=name).mean()

    expected = jax.grad(mean_loss)(arrays)
    mesh = jax.make_mesh((8,), ("classes",), axis_types=(AxisType.Auto,))
    specs = {name: PartitionSpec(*axes) for name, axes in AXES.items()}
    specs["features"] = PartitionSpec()
    mapped = jax.shard_map(
        jax.grad(lambda arrays: mean_loss(arrays, "classes")),
        mesh=mesh,
        in_specs=(specs,),
        out_specs=specs,
    )
    actual = jax.jit(mapped)(arrays)
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-5, atol=1e-6, err_msg=name)
