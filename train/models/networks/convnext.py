"""ConvNeXts for large images, as timm builds them (Liu et al. 2022, "A ConvNet for the 2020s").

The last layer, `head.fc` in timm, is the head here. The rates of stochastic depth are the paper's
for ImageNet-1k, which torchvision has too; timm's default is 0.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Layers, LayerScale, Network, mean_over_image, rates_of_blocks
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames


class Block(nn.Module):
    """A depthwise convolution of 7 by 7 and two dense layers at each place, beside a shortcut.

    Attributes:
        stochastic_depth: the rate at which an example skips all but the shortcut.
        layers: the layers of the network.
    """

    stochastic_depth: float
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h, w, c]."""
        layers, channels = self.layers, inputs.shape[-1]
        hidden = layers.conv(inputs, channels, 7, groups=channels, use_bias=True, name="conv_dw")
        hidden = layers.layer_norm(hidden, name="norm")
        hidden = nn.gelu(layers.dense(hidden, 4 * channels, name="mlp_fc1"), approximate=False)
        hidden = layers.dense(hidden, channels, name="mlp_fc2")
        hidden = LayerScale(1e-6, name="scale")(hidden)
        hidden = layers.dropout(hidden, self.stochastic_depth, of_example=True)
        return layers.keep(inputs + hidden)


class ConvNeXt(Network):
    """Patches of 4 by 4, four stages of blocks that halve the image, and the mean over it.

    Attributes:
        stage_sizes: the number of blocks of each stage.
        width: the channels of the first stage; each further stage has twice as many.
        stochastic_depth: the rate at which an example skips the last block; the rates grow evenly.
    """

    stage_sizes: tuple[int, int, int, int]
    width: int
    stochastic_depth: float

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to 8 · width features."""
        layers = self.make_layers(train, epsilon=1e-6, kernel_init=nn.initializers.normal(0.02))
        rates = iter(rates_of_blocks(self.stochastic_depth, sum(self.stage_sizes)))
        patches = functools.partial(layers.conv, padding=0, use_bias=True)
        hidden = patches(images, self.width, 4, stride=4, name="stem_conv")
        hidden = layers.layer_norm(hidden, name="stem_norm")
        for stage, num_blocks in enumerate(self.stage_sizes):
            if stage > 0:
                hidden = layers.layer_norm(hidden, name=f"downsample{stage}_norm")
                hidden = patches(
                    hidden, self.width * 2**stage, 2, stride=2, name=f"downsample{stage}_conv"
                )
            for index in range(num_blocks):
                hidden = Block(next(rates), layers, name=f"stage{stage}_{index}")(hidden)
        return layers.layer_norm(mean_over_image(hidden), name="norm").astype(jnp.float32)


_NAMES = PublishedNames(
    {
        "stem_conv": "stem.0",
        "stem_norm": "stem.1",
        "downsample{}_norm": "stages.{}.downsample.0",
        "downsample{}_conv": "stages.{}.downsample.1",
        "stage{}_{}/scale/gamma": "stages.{}.blocks.{}.gamma",
        "stage{}_{}/mlp_{}": "stages.{}.blocks.{}.mlp.{}",
        "stage{}_{}/{}": "stages.{}.blocks.{}.{}",
        "norm": "head.norm",
    },
    publisher="timm",
    head="head.fc",
)


def _convnext(
    stage_sizes: tuple[int, int, int, int],
    width: int,
    stochastic_depth: float,
    num_parameters: int,
) -> ModelSpec:
    return ModelSpec(
        functools.partial(
            ConvNeXt, stage_sizes=stage_sizes, width=width, stochastic_depth=stochastic_depth
        ),
        options=("stochastic_depth",),
        names=_NAMES,
        num_parameters=num_parameters,
        has_blocks=True,
        smallest=32,
    )


# By timm's names, with the parameters below the head.
NETWORKS = {
    "convnext_tiny": _convnext((3, 3, 9, 3), 96, 0.1, 27_820_128),
    "convnext_small": _convnext((3, 3, 27, 3), 96, 0.4, 49_454_688),
    "convnext_base": _convnext((3, 3, 27, 3), 128, 0.5, 87_566_464),
}
