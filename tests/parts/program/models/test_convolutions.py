"""Convolutions for the CPU have the values and gradients of XLA's own."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from train.models.convolutions import convolve

# Height and width, channels, outputs, rows and columns of the kernel, strides, padding, groups.
CASES = {
    "depthwise": ((9, 8), 4, 4, (3, 3), (1, 1), ((1, 1), (1, 1)), 4),
    "depthwise, large": ((15, 7), 3, 3, (7, 5), (1, 1), ((3, 3), (2, 2)), 3),
    "depthwise, strided": ((10, 7), 4, 4, (5, 3), (2, 2), ((2, 2), (1, 1)), 4),
    "depthwise, strided, one side": ((9, 12), 2, 2, (3, 3), (2, 3), ((0, 1), (2, 0)), 2),
    "1 by 1": ((5, 3), 4, 6, (1, 1), (1, 1), ((0, 0), (0, 0)), 1),
    "1 by 1, strided": ((5, 6), 4, 6, (1, 1), (2, 2), ((0, 0), (0, 0)), 1),
    "patches": ((8, 6), 3, 5, (4, 2), (4, 2), ((0, 0), (0, 0)), 1),
    "patches and a rest": ((9, 7), 3, 5, (2, 3), (2, 3), ((0, 0), (0, 0)), 1),
    "XLA's own": ((6, 5), 4, 6, (3, 3), (2, 2), ((1, 1), (1, 1)), 2),
}


def by_xla(inputs, kernel, strides, padding, groups):
    return lax.conv_general_dilated(
        inputs,
        kernel,
        strides,
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def operands(case, dtype):
    size, channels, outputs, kernel_size, *_, groups = case
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(6, *size, channels))
    kernel = rng.normal(size=(*kernel_size, channels // groups, outputs))
    return jnp.asarray(inputs, dtype), jnp.asarray(kernel, dtype)


# Rounding of sums of hundreds of terms, in units of the largest number.
@pytest.mark.parametrize(("dtype", "bound"), [(jnp.float32, 1e-6), (jnp.bfloat16, 1e-2)])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_and_gradients(case, dtype, bound):
    *_, strides, padding, groups = case
    inputs, kernel = operands(case, dtype)

    @jax.jit
    def both(inputs, kernel):
        found, pull_back = jax.vjp(
            lambda inputs, kernel: convolve(
                inputs, kernel, strides, padding, feature_group_count=groups
            ),
            inputs,
            kernel,
        )
        expected, pull_back_expected = jax.vjp(
            lambda inputs, kernel: by_xla(inputs, kernel, strides, padding, groups),
            # Sums of sums of bfloat16 are not a reference.
            inputs.astype(jnp.float32),
            kernel.astype(jnp.float32),
        )
        weights = jnp.cos(jnp.arange(found.size, dtype=jnp.float32)).reshape(found.shape)
        weights = weights.astype(dtype)
        return (found, *pull_back(weights)), (
            expected,
            *pull_back_expected(weights.astype(jnp.float32)),
        )

    for found, expected in zip(*both(inputs, kernel), strict=True):
        assert found.dtype == dtype
        assert found.shape == expected.shape
        difference = np.abs(np.asarray(found, np.float32) - expected).max()
        assert difference < bound * np.abs(expected).max()


@pytest.mark.parametrize("name", ["depthwise", "patches"])
def test_other_devices_take_xlas_own(name):
    """Serialized for several kinds of devices at once, and lowered for one."""
    case = CASES[name]
    *_, strides, padding, groups = case

    @jax.jit
    def function(inputs, kernel):
        return convolve(inputs, kernel, strides, padding, feature_group_count=groups)

    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in operands(case, jnp.float32)]
    assert jax.export.export(function, platforms=("cpu", "cuda", "tpu"))(*shapes).serialize()
    texts = {
        platform: jax.export.export(function, platforms=[platform])(*shapes).mlir_module()
        for platform in ("cpu", "cuda")
    }
    assert "stablehlo.convolution" in texts["cuda"]
    assert "stablehlo.convolution" not in texts["cpu"]
