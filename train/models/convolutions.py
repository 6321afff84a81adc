"""Convolutions as XLA computes them, and in forms that are faster on the CPU.

XLA has good convolutions for accelerators. On the CPU they take longer than their multiplications
need: depthwise ones up to a hundred times as long, gradients of 1 by 1 kernels a few times, and
gradients of larger kernels up to three times. The forms here have the same values and gradients,
up to rounding. `benchmarks/networks.py` measures them.
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
# Numbers of the windows whose product with the cotangent is added to the gradient of a kernel in
# one step: enough that the product is fast, few enough that they stay in the cache (1.2 MB).
_NUMBERS_PER_STEP = 300_000
# With fewer channels of the inputs the windows are too narrow for a fast product.
_LEAST_CHANNELS = 32


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
        padding: the zeros before and after rows and columns.
        feature_group_count: the groups of channels that are convolved apart.
    """
    down, across = strides
    (above, below), (left, right) = padding
    zeros = ((above, below), (left, right))
    channels = inputs.shape[-1]
    if feature_group_count == channels == kernel.shape[-1] and channels > 1:
        return _make_depthwise((down, across), zeros, channels)(inputs, kernel)
    if feature_group_count == 1 and zeros == _NO_PADDING:
        rows, columns = kernel.shape[:2]
        if (rows, columns) == (1, 1):
            # Pixels that are skipped do not count.
            return _of_patches(inputs[:, ::down, ::across], kernel)
        if (rows, columns) == (down, across):
            return _of_patches(inputs, kernel)
    if feature_group_count == 1 and channels >= _LEAST_CHANNELS:
        return _make_dense((down, across), zeros)(inputs, kernel)
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


def _with_cpu_forms(
    by_xla: Forward, *, gradients_on_cpu: Gradients, on_cpu: Forward | None = None
) -> Forward:
    """XLA's convolution, which on the CPU has other gradients, and another form if one is given."""

    @jax.custom_vjp
    def convolution(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
        if on_cpu is None:
            return by_xla(inputs, kernel)
        return lax.platform_dependent(inputs, kernel, cpu=on_cpu, default=by_xla)

    def forward(inputs: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Pair]:
        return convolution(inputs, kernel), (inputs, kernel)

    def backward(saved: Pair, cotangent: jax.Array) -> Pair:
        gradients: Pair = lax.platform_dependent(
            *saved, cotangent, cpu=gradients_on_cpu, default=_make_vjp(by_xla)
        )
        return gradients

    convolution.defvjp(forward, backward)
    return convolution


def _make_vjp(function: Forward) -> Gradients:
    """The gradients by the inputs and the kernel, from the inputs, the kernel and a cotangent."""

    def gradients(inputs: jax.Array, kernel: jax.Array, cotangent: jax.Array) -> Pair:
        _, pull_back = jax.vjp(function, inputs, kernel)
        by_inputs, by_kernel = pull_back(cotangent)
        return by_inputs, by_kernel

    return gradients


def _convolve_patches(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    rows, columns, *_ = kernel.shape
    return _convolve_by_xla(inputs, kernel, (rows, columns), _NO_PADDING)


def _multiply(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """The patches as the rows of a matrix, times the kernel."""
    rows, columns, channels, outputs = kernel.shape
    images, height, width = inputs.shape[0], inputs.shape[1] // rows, inputs.shape[2] // columns
    patches = inputs[:, : height * rows, : width * columns]
    if (rows, columns) != (1, 1):
        patches = patches.reshape(images, height, rows, width, columns, channels)
        patches = patches.transpose(0, 1, 3, 2, 4, 5)
    matrix = patches.reshape(images * height * width, rows * columns * channels)
    return (matrix @ kernel.reshape(-1, outputs)).reshape(images, height, width, outputs)


# The windows are side by side.
_of_patches = _with_cpu_forms(
    _convolve_patches, on_cpu=_multiply, gradients_on_cpu=_make_vjp(_multiply)
)


# Cached, because JAX reuses its traces only for the same function.
@functools.cache
def _make_dense(strides: Strides, padding: Padding) -> Forward:
    """XLA's own convolution, with another gradient by the kernel on the CPU."""
    by_xla = functools.partial(_convolve_by_xla, strides=strides, padding=padding)
    gradients_by_xla = _make_vjp(by_xla)

    def gradients(inputs: jax.Array, kernel: jax.Array, cotangent: jax.Array) -> Pair:
        by_inputs, _ = gradients_by_xla(inputs, kernel, cotangent)
        return by_inputs, _add_kernel_gradient_in_steps(inputs, kernel, cotangent, strides, padding)

    return _with_cpu_forms(by_xla, gradients_on_cpu=gradients)


def _add_kernel_gradient_in_steps(
    inputs: jax.Array,
    kernel: jax.Array,
    cotangent: jax.Array,
    strides: Strides,
    padding: Padding,
) -> jax.Array:
    """The sum over a few images, or a few rows of one, of their windows times their cotangents.

    The windows of all images as one matrix would hold each input once for each place of the
    kernel. XLA's own convolution is three times as slow for large images.
    """
    rows, columns, channels, outputs = kernel.shape
    images, height, width, _ = cotangent.shape
    pixels = max(1, _NUMBERS_PER_STEP // (columns * channels))
    of_height = -(-height // max(1, min(height, pixels // width)))
    step_rows = -(-height // of_height)
    step_images = 1
    if of_height == 1:
        fitting = max(1, pixels // (height * width))
        step_images = max(size for size in range(1, fitting + 1) if images % size == 0)
    (above, _), (left, right) = padding
    window_rows = (step_rows - 1) * strides[0] + rows
    # Rows after the last step are cut off, and missing rows are zeros.
    below = (of_height - 1) * step_rows * strides[0] + window_rows - above - inputs.shape[1]
    padded = lax.pad(
        inputs,
        jnp.zeros((), inputs.dtype),
        ((0, 0, 0), (above, below, 0), (left, right, 0), (0, 0, 0)),
    )
    missing = of_height * step_rows - height
    cotangent = jnp.pad(cotangent, ((0, 0), (0, missing), (0, 0), (0, 0)))

    def add(step: jax.Array, total: jax.Array) -> jax.Array:
        image, part = step // of_height * step_images, step % of_height
        window = lax.dynamic_slice(
            padded,
            (image, part * step_rows * strides[0], 0, 0),
            (step_images, window_rows, padded.shape[2], channels),
        )
        of_step = lax.dynamic_slice(
            cotangent, (image, part * step_rows, 0, 0), (step_images, step_rows, width, outputs)
        ).reshape(-1, outputs)
        last = (width - 1) * strides[1] + 1
        side_by_side = jnp.concatenate(
            [window[:, :, column : column + last : strides[1]] for column in range(columns)], -1
        )
        last = (step_rows - 1) * strides[0] + 1
        products = [
            jnp.matmul(
                of_step.T,
                side_by_side[:, row : row + last : strides[0]].reshape(-1, columns * channels),
                preferred_element_type=jnp.float32,
            )
            for row in range(rows)
        ]
        return total + jnp.stack(products)

    by_kernel = lax.fori_loop(
        0,
        images // step_images * of_height,
        add,
        jnp.zeros((rows, outputs, columns * channels), jnp.float32),
    )
    return by_kernel.transpose(0, 2, 1).reshape(kernel.shape).astype(kernel.dtype)


@functools.cache
def _make_depthwise(strides: Strides, padding: Padding, channels: int) -> Forward:
    """A convolution of each channel separately."""

    def gradients(inputs: jax.Array, kernel: jax.Array, cotangent: jax.Array) -> Pair:
        operands = (inputs, kernel, cotangent, strides, padding)
        return _compute_input_gradient(*operands), _compute_kernel_gradient(*operands)

    return _with_cpu_forms(
        functools.partial(_convolve_by_xla, strides=strides, padding=padding, groups=channels),
        on_cpu=functools.partial(_sum_of_slices, strides=strides, padding=padding),
        gradients_on_cpu=gradients,
    )


def _sum_of_slices(
    inputs: jax.Array, kernel: jax.Array, strides: Strides, padding: Padding
) -> jax.Array:
    """The shifted images, each times one number of every channel's kernel, in one operation.

    Half precision is added in float32, as XLA does.
    """
    rows, columns = kernel.shape[:2]
    images, height, width, channels = inputs.shape
    height = (height + sum(padding[0]) - rows) // strides[0] + 1
    width = (width + sum(padding[1]) - columns) // strides[1] + 1
    padded = jnp.pad(inputs, ((0, 0), *padding, (0, 0)))
    total = jnp.zeros((), jnp.float32)
    for row in range(rows):
        for column in range(columns):
            shifted = lax.slice(
                padded,
                (0, row, column, 0),
                (
                    images,
                    row + strides[0] * (height - 1) + 1,
                    column + strides[1] * (width - 1) + 1,
                    channels,
                ),
                (1, *strides, 1),
            )
            numbers = kernel[row : row + 1, column : column + 1]
            total = total + shifted.astype(jnp.float32) * numbers.astype(jnp.float32)
    return total.astype(inputs.dtype)


def _compute_input_gradient(
    inputs: jax.Array,
    kernel: jax.Array,
    cotangent: jax.Array,
    strides: Strides,
    padding: Padding,
) -> jax.Array:
    """The convolution of the cotangent, with zeros between its pixels, and the turned kernel."""
    zero = jnp.zeros((), cotangent.dtype)
    around = []
    for length, of_output, size, stride, (before, _) in zip(
        inputs.shape[1:3], cotangent.shape[1:3], kernel.shape[:2], strides, padding, strict=True
    ):
        first = size - 1 - before
        spread = (of_output - 1) * stride + 1
        around.append((first, length + size - 1 - first - spread, stride - 1))
    spread_out = lax.pad(cotangent, zero, ((0, 0, 0), *around, (0, 0, 0)))
    return _sum_of_slices(spread_out, kernel[::-1, ::-1], (1, 1), _NO_PADDING)


def _compute_kernel_gradient(
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
    below += missing * strides[0]
    padded = jnp.pad(inputs, ((0, 0), (above, below), of_columns, (0, 0))).astype(jnp.float32)
    ones = jnp.ones((1, images * per_part * width), jnp.float32)
    window = (
        images,
        (per_part - 1) * strides[0] + 1,
        (width - 1) * strides[1] + 1,
        channels,
    )

    def of_place(place: jax.Array) -> jax.Array:
        row, column = place // columns, place % columns
        total = jnp.zeros((), jnp.float32)
        for part in range(_ROWS):
            first = part * per_part
            shifted = lax.dynamic_slice(padded, (0, row + first * strides[0], column, 0), window)
            shifted = shifted[:, :: strides[0], :: strides[1]]
            total = total + shifted * cotangent[:, first : first + per_part]
        return (ones @ total.reshape(-1, channels))[0]

    by_kernel = lax.map(of_place, jnp.arange(rows * columns))
    return by_kernel.reshape(kernel.shape).astype(kernel.dtype)
