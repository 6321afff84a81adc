"""The layers that all networks share, called inside a compact method of a Linen module.

Half precision computes in bfloat16. Parameters, the statistics of norms and the features at the end
of a network stay float32, because they are small or sums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.convolutions import convolve
from train.models.rematerialization import kept_by_remat

# Rows and columns, or one number for both.
Size = int | tuple[int, int]
Activation = Callable[[jax.Array], jax.Array]

# As in torchvision (He et al., by fan-out): a normal that is not truncated.
_he_normal = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


@dataclass(frozen=True)
class Layers:
    """The layers of one network in one call, with the settings that they share.

    Attributes:
        dtype: the type in which convolutions and matrix products compute.
        train: whether the network is trained: batch norm uses the statistics of the batch, and
            dropout drops.
        axis_name: see `Network`.
        epsilon: what norms add to the variance.
        momentum: the share of the running statistics of batch norm that a step keeps.
        tensorflow_padding: whether convolutions are padded like TensorFlow's "SAME": of an odd
            number of zeros, one more is after the image.
        kernel_init: the initial kernels; None for He's normals by fan-out in convolutions, and
            LeCun's in matrix products.
    """

    dtype: DTypeLike
    train: bool
    axis_name: str | None
    epsilon: float = 1e-5
    momentum: float = 0.9
    tensorflow_padding: bool = False
    kernel_init: nn.initializers.Initializer | None = None

    def conv(
        self,
        inputs: jax.Array,
        channels: int,
        size: Size,
        *,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        use_bias: bool = False,
        name: str | None = None,
    ) -> jax.Array:
        """A convolution.

        Args:
            inputs: [n, height, width, c].
            channels: the channels of the output.
            size: the rows and columns of the kernel.
            stride: the stride of rows and columns.
            padding: the zeros on either side; by default half the size, as PyTorch's networks have
                it, or TensorFlow's padding.
            groups: the groups of channels that are convolved apart; `c` for a depthwise one.
            use_bias: whether it has a bias.
            name: the name of the module.
        """
        rows, columns = (size, size) if isinstance(size, int) else size
        usual = "SAME" if self.tensorflow_padding else (rows // 2, columns // 2)
        return nn.Conv(
            channels,
            (rows, columns),
            strides=stride,
            padding=usual if padding is None else padding,
            feature_group_count=groups,
            use_bias=use_bias,
            kernel_init=self.kernel_init or _he_normal,
            conv_general_dilated=convolve,
            dtype=self.dtype,
            name=name,
        )(inputs)

    def dense(
        self, inputs: jax.Array, features: int, *, use_bias: bool = True, name: str | None = None
    ) -> jax.Array:
        """An affine function of the last axis."""
        return nn.Dense(
            features,
            use_bias=use_bias,
            kernel_init=self.kernel_init or nn.linear.default_kernel_init,
            dtype=self.dtype,
            name=name,
        )(inputs)

    def batch_norm(self, inputs: jax.Array, *, name: str | None = None) -> jax.Array:
        """Batch norm by the statistics of the batch, or, without `train`, by the running ones.

        The running variance averages the biased variance of each batch, PyTorch's the unbiased one.
        """
        # Cast before and after: Linen would promote in the same way, but implicitly.
        normalized = nn.BatchNorm(
            use_running_average=not self.train,
            momentum=self.momentum,
            epsilon=self.epsilon,
            axis_name=self.axis_name,
            name=name,
        )(inputs.astype(jnp.float32))
        return normalized.astype(self.dtype)

    def layer_norm(self, inputs: jax.Array, *, name: str | None = None) -> jax.Array:
        """Layer norm over the last axis."""
        normalized = nn.LayerNorm(epsilon=self.epsilon, name=name)(inputs.astype(jnp.float32))
        return normalized.astype(self.dtype)

    def conv_norm(
        self,
        inputs: jax.Array,
        channels: int,
        size: Size,
        *,
        name: str,
        activation: Activation | None = nn.relu,
        **options: Any,
    ) -> jax.Array:
        """A convolution, batch norm and an activation, or none.

        The modules are `{name}_conv` and `{name}_bn`; the options are passed to `conv`.
        """
        hidden = self.conv(inputs, channels, size, name=f"{name}_conv", **options)
        hidden = self.batch_norm(hidden, name=f"{name}_bn")
        return hidden if activation is None else activation(hidden)

    def dropout(self, inputs: jax.Array, rate: float, *, of_example: bool = False) -> jax.Array:
        """In training, replaces numbers, or all numbers of an example, by zeros; scales others."""
        if rate == 0:
            return inputs
        alike = tuple(range(1, inputs.ndim)) if of_example else ()
        return nn.Dropout(rate, broadcast_dims=alike)(inputs, deterministic=not self.train)

    def keep(self, outputs: jax.Array) -> jax.Array:
        """The outputs of a block, which `config.model.remat` keeps for the backward pass."""
        # Without a mark in evaluation: not every format of exported programs has one.
        return kept_by_remat(outputs) if self.train else outputs


class Network(nn.Module, kw_only=True):
    """A network without its head: its call takes inputs and `train`, and gives float32 features.

    Attributes:
        axis_name: the axis over devices over which batch norm averages; None to normalise by the
            share of each device. Networks without batch norm do not use it.
        dtype: the type in which convolutions and matrix products compute.
    """

    axis_name: str | None
    dtype: DTypeLike = jnp.float32

    def make_layers(self, train: bool, **settings: Any) -> Layers:
        """The layers of one call; the settings are those of `Layers`."""
        return Layers(self.dtype, train, self.axis_name, **settings)


class LayerScale(nn.Module):
    """A learned factor for each channel.

    Attributes:
        initial: the factors at first.
    """

    initial: float

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Numbers [..., c] to numbers [..., c]."""
        start = nn.initializers.constant(self.initial)
        gamma = self.param("gamma", start, (inputs.shape[-1],))
        # A product of [c] and [..., c], without the promotion of ranks or types.
        return jnp.einsum("...c,c->...c", inputs, gamma.astype(inputs.dtype))


def rates_of_blocks(last: float, num_blocks: int) -> list[float]:
    """Rates of stochastic depth that grow evenly, from 0 at the first block."""
    return [last * index / max(num_blocks - 1, 1) for index in range(num_blocks)]


def max_pool(
    inputs: jax.Array, size: int, *, stride: int, padding: int = 0, ceil: bool = False
) -> jax.Array:
    """The largest of each window.

    Args:
        inputs: [n, height, width, c].
        size: the rows and columns of a window.
        stride: from one window to the next.
        padding: the pixels on either side that are less than all others.
        ceil: whether a window at the end may reach beyond the image, as PyTorch's `ceil_mode`.
    """
    # The last window reaches beyond an image by less than a stride, and starts inside it.
    pads = [
        (padding, padding + (-(length + 2 * padding - size) % stride if ceil else 0))
        for length in inputs.shape[1:3]
    ]
    return nn.max_pool(inputs, (size, size), strides=(stride, stride), padding=pads)


def avg_pool(
    inputs: jax.Array, size: int, *, stride: int, padding: int = 0, counts_padding: bool = True
) -> jax.Array:
    """The mean of each window; zeros of the padding count, unless `counts_padding` is False."""
    pads = [(padding, padding)] * 2
    # Not nn.avg_pool, which divides by a NumPy integer: the tests refuse to promote it.
    sums = nn.pool(inputs, 0.0, jax.lax.add, (size, size), (stride, stride), pads)
    if counts_padding or padding == 0:
        return sums / (size * size)
    ones = jnp.ones((1, *inputs.shape[1:3], 1), inputs.dtype)
    return sums / nn.pool(ones, 0.0, jax.lax.add, (size, size), (stride, stride), pads)


def adaptive_mean(inputs: jax.Array, size: int) -> jax.Array:
    """Activations [n, height, width, c] to their means over size by size windows.

    The windows are the same as in PyTorch's AdaptiveAvgPool2d: as equal as full pixels allow. They
    overlap if the size does not divide the height or the width.
    """
    for axis in (1, 2):
        length = inputs.shape[axis]
        means = [
            jax.lax.slice_in_dim(
                inputs, index * length // size, -(-(index + 1) * length // size), axis=axis
            ).mean(axis=axis, keepdims=True)
            for index in range(size)
        ]
        inputs = jnp.concatenate(means, axis=axis)
    return inputs


def channels_first(inputs: jax.Array) -> jax.Array:
    """Activations [n, height, width, c] to vectors [n, c · height · width], as PyTorch has them."""
    return inputs.transpose(0, 3, 1, 2).reshape(inputs.shape[0], -1)


def mean_over_image(inputs: jax.Array) -> jax.Array:
    """Activations [n, height, width, channels] to float32 features [n, channels]."""
    return inputs.mean(axis=(1, 2), dtype=jnp.float32)
