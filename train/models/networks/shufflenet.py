"""ShuffleNet V2 for large images, as torchvision builds it (Ma et al. 2018).

The last layer, `fc` in torchvision, is the head here.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Layers, Network, max_pool, mean_over_image
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames


class ShuffleUnit(nn.Module):
    """Convolutions of half of the channels beside the other half, then the halves interleaved.

    Attributes:
        channels: the channels of the unit.
        stride: 1, or 2: then both branches have convolutions, and both get all channels.
        layers: the layers of the network.
    """

    channels: int
    stride: int
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / stride, w / stride, channels]."""
        conv_norm, half = self.layers.conv_norm, self.channels // 2
        if self.stride == 1:
            beside, hidden = jnp.split(inputs, 2, axis=-1)
        else:
            beside = conv_norm(self._depthwise(inputs, "branch1"), half, 1, name="branch1")
            hidden = inputs
        hidden = conv_norm(hidden, half, 1, name="branch2_before")
        hidden = conv_norm(self._depthwise(hidden, "branch2"), half, 1, name="branch2")
        # Each pair of channels has one from each branch.
        pairs = jnp.stack([beside, hidden], axis=-1)
        return self.layers.keep(pairs.reshape(*hidden.shape[:-1], self.channels))

    def _depthwise(self, inputs: jax.Array, branch: str) -> jax.Array:
        channels = inputs.shape[-1]
        return self.layers.conv_norm(
            inputs,
            channels,
            3,
            stride=self.stride,
            groups=channels,
            activation=None,
            name=f"{branch}_depthwise",
        )


class ShuffleNet(Network):
    """A 3 by 3 convolution and a pooling, three stages of units, and a 1 by 1 convolution.

    Attributes:
        stage_sizes: the number of units of each stage.
        widths: the channels of the first convolution, of each stage and of the features.
    """

    stage_sizes: tuple[int, int, int] = (4, 8, 4)
    widths: tuple[int, int, int, int, int] = (24, 116, 232, 464, 1024)

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, widths[-1]]."""
        layers = self.make_layers(train)
        first, *of_stages, last = self.widths
        hidden = layers.conv_norm(images, first, 3, stride=2, name="conv1")
        hidden = max_pool(hidden, 3, stride=2, padding=1)
        # The paper counts the first convolution as a stage too.
        for stage, (size, width) in enumerate(
            zip(self.stage_sizes, of_stages, strict=True), start=2
        ):
            for index in range(size):
                stride = 2 if index == 0 else 1
                hidden = ShuffleUnit(width, stride, layers, name=f"stage{stage}_{index}")(hidden)
        return mean_over_image(layers.conv_norm(hidden, last, 1, name="conv5"))


_NAMES = PublishedNames(
    {
        "conv{}_conv": "conv{}.0",
        "conv{}_bn": "conv{}.1",
        "stage{}_{}/branch1_depthwise_conv": "stage{}.{}.branch1.0",
        "stage{}_{}/branch1_depthwise_bn": "stage{}.{}.branch1.1",
        "stage{}_{}/branch1_conv": "stage{}.{}.branch1.2",
        "stage{}_{}/branch1_bn": "stage{}.{}.branch1.3",
        "stage{}_{}/branch2_before_conv": "stage{}.{}.branch2.0",
        "stage{}_{}/branch2_before_bn": "stage{}.{}.branch2.1",
        "stage{}_{}/branch2_depthwise_conv": "stage{}.{}.branch2.3",
        "stage{}_{}/branch2_depthwise_bn": "stage{}.{}.branch2.4",
        "stage{}_{}/branch2_conv": "stage{}.{}.branch2.5",
        "stage{}_{}/branch2_bn": "stage{}.{}.branch2.6",
    },
    head="fc",
)

# By the name that the authors of Pl@ntNet-300K have for torchvision's `shufflenet_v2_x1_0`, with
# the parameters below the head.
NETWORKS = {
    "shufflenet": ModelSpec(ShuffleNet, names=_NAMES, num_parameters=1_253_604, has_blocks=True)
}
