"""Convolutions for `nn.Conv`, in forms that are faster on the CPU.

XLA has good convolutions for accelerators. On the CPU its depthwise ones take up to a hundred times
as long as their multiplications need, and its gradients of 1 by 1 kernels a few times. The forms
here have the same values and gradients, up to rounding.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Strides = tuple[int, int]
# Before and after the rows, and before and after the columns.
Padding = tuple[tuple[int, int], tuple[int, int]]
Forward = Callable[[jax.Array, jax.Array], jax.Array]
Pair = tuple[jax.Array, jax.Array]
Gradients = Callable[[jax.Array, jax.Array, jax.Array], Pair]

_NO_PADDING = ((0, 0), (0, 0))
# Rows whose products are added before the matrix product that adds all others: enough that the sum
# is a small array, few enough that the operation compiles at once. Heights of networks for images
# of 224 pixels are multiples of it.
_ROWS = 7


def convolve(
    inputs: jax.Array,
    kernel: jax.Array,
    strides: Strides,
    padding: Any,
    *,
    feature_group_count: int = 1,
    **_others: Any,
) -> jax.Array:
    """The convolution for `nn.Conv`; never dilated, and with the usual axes.

    Args:
        inputs: [n, height, width, c].
        kernel: [rows, columns, c / feature_group_count, channels].
        strides: the strides of rows and columns.
        padding: the zeros before and after rows and columns, or "SAME" as in TensorFlow.
        feature_group_count: the groups of channels that are convolved apart.
    """
    down, across = strides
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(inputs.shape[1:3], kernel.shape[:2], strides, padding)
    (above, below), (left, right) = padding
    zeros, channels = ((above, below), (left, right)), inputs.shape[-1]
    if feature_group_count == channels == kernel.shape[-1] and channels > 1:
        return _make_depthwise((down, across), zeros, channels)(inputs, kernel)
    if feature_group_count == 1 and zeros == _NO_PADDING:
        if kernel.shape[:2] == (1, 1):
            # Pixels that are skipped do not count.
            return _of_patches(inputs[:, ::down, ::across], kernel)
        if kernel.shape[:2] == (down, across):
            return _of_patches(inputs, kernel)
    return _convolve_by_xla(inputs, kernel, (down, across), zeros, feature_group_count)


def _convolve_by_xla(
    inputs: jax.Array, kernel: jax.Array, strides: Strides, padding: Padding, groups: int = 1
) -> jax.Array:
    return lax.conv_general_dilated(
        inputs,
        kernel,
        strides,
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _by_device(by_xla: Forward, on_cpu: Forward, gradients_on_cpu: Gradients) -> Forward:
    """XLA's convolution, which on the CPU has another form and other gradients."""

    @jax.custom_vjp
    def convolution(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.platform_dependent(inputs, kernel, cpu=on_cpu, default=by_xla)

    def forward(inputs: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Pair]:
        return convolution(inputs, kernel), (inputs, kernel)

    def backward(saved: Pair, cotangent: jax.Array) -> Pair:
        gradients: Pair = lax.platform_dependent(
            *saved, cotangent, cpu=gradients_on_cpu, default=_make_gradients(by_xla)
        )
        return gradients

    convolution.defvjp(forward, backward)
    return convolution


def _make_gradients(function: Forward) -> Gradients:
    """JAX's gradients of a convolution by its inputs and its kernel."""

    def gradients(inputs: jax.Array, kernel: jax.Array, cotangent: jax.Array) -> Pair:
        _, pull_back = jax.vjp(function, inputs, kernel)
        by_inputs, by_kernel = pull_back(cotangent)
        return by_inputs, by_kernel

    return gradients


def _convolve_patches(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    rows, columns, *_ = kernel.shape
    return _convolve_by_xla(inputs, kernel, (rows, columns), _NO_PADDING)


def _multiply_patches(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """The patches as the rows of a matrix, times the kernel."""
    rows, columns, channels, outputs = kernel.shape
    images, height, width = inputs.shape[0], inputs.shape[1] // rows, inputs.shape[2] // columns
    patches = inputs[:, : height * rows, : width * columns]
    patches = patches.reshape(images, height, rows, width, columns, channels).swapaxes(2, 3)
    matrix = patches.reshape(images * height * width, rows * columns * channels)
    return (matrix @ kernel.reshape(-1, outputs)).reshape(images, height, width, outputs)


# The windows are side by side.
_of_patches = _by_device(_convolve_patches, _multiply_patches, _make_gradients(_multiply_patches))


# Cached, because JAX reuses its traces only for the same function.
@functools.cache
def _make_depthwise(strides: Strides, padding: Padding, channels: int) -> Forward:
    """A convolution of each channel separately."""
    settings: dict[str, Any] = {"strides": strides, "padding": padding}

    def gradients(inputs: jax.Array, kernel: jax.Array, cotangent: jax.Array) -> Pair:
        by_inputs = _input_gradient(inputs, kernel, cotangent, **settings)
        return by_inputs, _kernel_gradient(inputs, kernel, cotangent, **settings)

    by_xla = functools.partial(_convolve_by_xla, groups=channels, **settings)
    return _by_device(by_xla, functools.partial(_sum_of_slices, **settings), gradients)


def _sum_of_slices(
    inputs: jax.Array, kernel: jax.Array, strides: Strides, padding: Padding
) -> jax.Array:
    """The shifted images, each times one number of every channel's kernel, in one operation.

    Half precision is added in float32, as XLA does.
    """
    rows, columns = kernel.shape[:2]
    padded = jnp.pad(inputs, ((0, 0), *padding, (0, 0)))
    # The rows and columns of the images after the windows' first ones.
    below, right = padded.shape[1] - rows + 1, padded.shape[2] - columns + 1
    total = jnp.zeros((), jnp.float32)
    for row in range(rows):
        for column in range(columns):
            shifted = padded[
                :, row : row + below : strides[0], column : column + right : strides[1]
            ]
            numbers = kernel[row : row + 1, column : column + 1]
            total = total + shifted.astype(jnp.float32) * numbers.astype(jnp.float32)
    return total.astype(inputs.dtype)


def _input_gradient(
    inputs: jax.Array,
    kernel: jax.Array,
    cotangent: jax.Array,
    strides: Strides,
    padding: Padding,
) -> jax.Array:
    """The convolution of the cotangent, with zeros between its pixels, and the turned kernel."""
    around = [(0, 0, 0)]
    for axis, (stride, (before, _)) in enumerate(zip(strides, padding, strict=True)):
        size = kernel.shape[axis]
        first, spread = size - 1 - before, (cotangent.shape[axis + 1] - 1) * stride + 1
        around.append((first, inputs.shape[axis + 1] + size - 1 - first - spread, stride - 1))
    spread_out = lax.pad(cotangent, jnp.zeros((), cotangent.dtype), [*around, (0, 0, 0)])
    return _sum_of_slices(spread_out, kernel[::-1, ::-1], (1, 1), _NO_PADDING)


def _kernel_gradient(
    inputs: jax.Array,
    kernel: jax.Array,
    cotangent: jax.Array,
    strides: Strides,
    padding: Padding,
) -> jax.Array:
    """For each place of the kernel, the sum of the shifted images times the cotangent.

    XLA adds up pixels one number at a time on the CPU. A few rows are therefore added as arrays,
    and their sums by a product with ones.
    """
    rows, columns, _, channels = kernel.shape
    images, height, width, _ = cotangent.shape
    per_part = -(-height // _ROWS)
    missing = per_part * _ROWS - height
    cotangent = jnp.pad(cotangent, ((0, 0), (0, missing), (0, 0), (0, 0))).astype(jnp.float32)
    (above, below), of_columns = padding
    of_rows = (above, below + missing * strides[0])
    padded = jnp.pad(inputs, ((0, 0), of_rows, of_columns, (0, 0))).astype(jnp.float32)
    ones = jnp.ones((1, images * per_part * width), jnp.float32)
    high, wide = (per_part - 1) * strides[0] + 1, (width - 1) * strides[1] + 1

    def of_place(place: jax.Array) -> jax.Array:
        row, column = place // columns, place % columns
        total = jnp.zeros((), jnp.float32)
        for first in range(0, per_part * _ROWS, per_part):
            start = (0, row + first * strides[0], column, 0)
            window = lax.dynamic_slice(padded, start, (images, high, wide, channels))
            window = window[:, :: strides[0], :: strides[1]]
            total = total + window * cotangent[:, first : first + per_part]
        return (ones @ total.reshape(-1, channels))[0]

    by_kernel = lax.map(of_place, jnp.arange(rows * columns))
    return by_kernel.reshape(kernel.shape).astype(kernel.dtype)
