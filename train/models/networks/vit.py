"""Vision transformers for large images, as timm builds them: ViT, DINOv2 and CLIP's image towers.

Dosovitskiy et al. 2021, Oquab et al. 2024 with the registers of Darcet et al. 2024, and Radford et
al. 2021. The features are the features of the class token. The last layer, `head` in timm, is the
head here. The towers of CLIP end with their projection: the features are the embeddings that are
compared with embeddings of texts. timm has this projection as its head.

OpenAI's CLIP, and some after it, have a quick approximation of GELU. A file of weights does not
show it; `quick_gelu` in its publisher's `open_clip_config.json` does.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from train.models.layers import Activation, Layers, LayerScale, Network, rates_of_blocks
from train.models.model_spec import CLIP, HALVES, IMAGENET, ModelSpec, Normalization
from train.models.weights.names import Arrays, OtherNames, PublishedNames

_normal = nn.initializers.normal(0.02)
_gelu = functools.partial(nn.gelu, approximate=False)


def _quick_gelu(inputs: jax.Array) -> jax.Array:
    return inputs * nn.sigmoid(1.702 * inputs)


class Block(nn.Module):
    """Self-attention, then a network of two layers for each token, both beside a shortcut.

    Attributes:
        num_heads: the heads of the attention.
        activation: the activation of the hidden layer.
        layer_scale: the first factors of the two branches; None for branches without.
        dropout: the rate after each dense layer except the one for queries, keys and values.
        stochastic_depth: the rate at which an example skips a branch.
        layers: the layers of the network.
    """

    num_heads: int
    activation: Activation
    layer_scale: float | None
    dropout: float
    stochastic_depth: float
    layers: Layers

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Tokens [n, t, d] to tokens [n, t, d]."""
        branch = self._attention(self.layers.layer_norm(tokens, name="norm1"))
        tokens = tokens + self._scale_and_drop(branch, "ls1")
        branch = self._mlp(self.layers.layer_norm(tokens, name="norm2"))
        return self.layers.keep(tokens + self._scale_and_drop(branch, "ls2"))

    def _attention(self, tokens: jax.Array) -> jax.Array:
        n, t, d = tokens.shape
        size = d // self.num_heads
        of_heads = self.layers.dense(tokens, 3 * d, name="attn_qkv")
        of_heads = of_heads.reshape(n, t, 3, self.num_heads, size)
        queries, keys, values = (of_heads[:, :, index] for index in range(3))
        scores = jnp.einsum("nqhc,nkhc->nhqk", queries * size**-0.5, keys)
        # A sum over all tokens: in float32.
        weights = nn.softmax(scores.astype(jnp.float32)).astype(tokens.dtype)
        mixed = jnp.einsum("nhqk,nkhc->nqhc", weights, values).reshape(n, t, d)
        return self.layers.dropout(self.layers.dense(mixed, d, name="attn_proj"), self.dropout)

    def _mlp(self, tokens: jax.Array) -> jax.Array:
        d = tokens.shape[-1]
        hidden = self.activation(self.layers.dense(tokens, 4 * d, name="mlp_fc1"))
        hidden = self.layers.dropout(hidden, self.dropout)
        return self.layers.dropout(self.layers.dense(hidden, d, name="mlp_fc2"), self.dropout)

    def _scale_and_drop(self, branch: jax.Array, name: str) -> jax.Array:
        if self.layer_scale is not None:
            branch = LayerScale(self.layer_scale, name=name)(branch)
        return self.layers.dropout(branch, self.stochastic_depth, of_example=True)


class VisionTransformer(Network):
    """Patches of an image as tokens, blocks of self-attention, and the class token at their end.

    Attributes:
        patch_size: the height and width of a patch.
        grid_size: the rows and columns of patches that have a learned position. For images of
            another size the positions are interpolated.
        width: the features of a token.
        depth: the number of blocks.
        num_heads: the heads of each attention.
        registers: the number of tokens that do not stand for a patch.
        layer_scale: the first factors of the branches; None for branches without.
        projection: the features of the embedding that a tower of CLIP ends with. Such a tower has
            a norm before its blocks too, and patches without a bias. None for other networks.
        activation: the activation of the hidden layers.
        dropout: the rate after the positions are added, and after each dense layer except
            the one for queries, keys and values.
        stochastic_depth: the rate at which an example skips a branch of the last block.
    """

    patch_size: int
    grid_size: int
    width: int
    depth: int
    num_heads: int
    registers: int = 0
    layer_scale: float | None = None
    projection: int | None = None
    activation: Activation = _gelu
    dropout: float = 0.0
    stochastic_depth: float = 0.0

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to `projection` features, or `width` without one."""
        is_tower = self.projection is not None
        epsilon = 1e-5 if is_tower else 1e-6
        layers = self.make_layers(train, epsilon=epsilon, kernel_init=_normal)
        patches = layers.conv(
            images,
            self.width,
            self.patch_size,
            stride=self.patch_size,
            padding=0,
            use_bias=not is_tower,
            name="patch_embed",
        )
        tokens = layers.dropout(self._with_positions(patches), self.dropout)
        if is_tower:
            tokens = layers.layer_norm(tokens, name="norm_pre")
        for index, rate in enumerate(rates_of_blocks(self.stochastic_depth, self.depth)):
            settings = (self.num_heads, self.activation, self.layer_scale, self.dropout, rate)
            tokens = Block(*settings, layers, name=f"blocks_{index}")(tokens)
        features = layers.layer_norm(tokens[:, 0], name="norm")
        if self.projection is not None:
            features = layers.dense(features, self.projection, use_bias=False, name="proj")
        return features.astype(jnp.float32)

    def _with_positions(self, patches: jax.Array) -> jax.Array:
        """Patches [n, rows, columns, d] to tokens [n, t, d], the class token first."""
        n, rows, columns, d = patches.shape
        # As in timm: with registers, the class token does not have a position.
        with_class = 0 if self.registers else 1
        class_token = self.param("cls_token", nn.initializers.normal(1e-6), (1, 1, d))
        positions = self.param("pos_embed", _normal, (1, with_class + self.grid_size**2, d))
        of_patches = resized(positions[:, with_class:], self.grid_size, (rows, columns))
        first = [class_token + positions[:, :1] if with_class else class_token]
        if self.registers:
            shape = (1, self.registers, d)
            first.append(self.param("reg_token", nn.initializers.normal(1e-6), shape))
        dtype = patches.dtype
        first = [jnp.broadcast_to(token.astype(dtype), (n, *token.shape[1:])) for token in first]
        tokens = patches.reshape(n, rows * columns, d) + of_patches.astype(dtype)
        return jnp.concatenate([*first, tokens], axis=1)


def resized(positions: jax.Array, old: int, new: tuple[int, int]) -> jax.Array:
    """Positions [1, old * old, d] of a square of patches to [1, rows * columns, d], as in timm."""
    if new == (old, old):
        return positions
    d = positions.shape[-1]
    # Cubic, with wider kernels for fewer positions: PyTorch's bicubic with antialias.
    grid = jax.image.resize(positions.reshape(old, old, d), (*new, d), "cubic")
    return grid.reshape(1, -1, d)


def _add_class_position(arrays: Arrays) -> Arrays:
    """With registers, timm adds the position of the class token to that token."""
    # In half precision the sum would be rounded.
    cls_token, pos_embed = (arrays[name].astype(np.float32) for name in ("cls_token", "pos_embed"))
    return arrays | {"cls_token": cls_token + pos_embed[:, :1], "pos_embed": pos_embed[:, 1:]}


# Without registers, DINOv2's own names are timm's.
_DINOV2 = OtherNames(
    sign="register_tokens",
    renames={"register_tokens": "reg_token"},
    arrange=_add_class_position,
)
_BLOCK = "visual.transformer.resblocks.{}"
_OPEN_CLIP = OtherNames(
    sign="visual.class_embedding",
    renames={
        "visual.class_embedding": "cls_token",
        "visual.positional_embedding": "pos_embed",
        "visual.conv1": "patch_embed.proj",
        "visual.ln_pre": "norm_pre",
        f"{_BLOCK}.ln_{{}}": "blocks.{}.norm{}",
        f"{_BLOCK}.attn.in_proj_{{}}": "blocks.{}.attn.qkv.{}",
        f"{_BLOCK}.attn.out_proj": "blocks.{}.attn.proj",
        f"{_BLOCK}.mlp.c_fc": "blocks.{}.mlp.fc1",
        f"{_BLOCK}.mlp.c_proj": "blocks.{}.mlp.fc2",
        "visual.ln_post": "norm",
        "visual.proj": "proj.weight",
    },
    # The projection is a bare matrix, [in, out]; PyTorch's layout is [out, in].
    arrange=lambda arrays: arrays | {"proj.weight": arrays["proj.weight"].T},
)
# The text tower of a CLIP.
_TEXTS = ("text", "token_embedding", "positional_embedding", "transformer", "ln_final", "logit_")
_NAMES = PublishedNames(
    {
        "patch_embed": "patch_embed.proj",
        "blocks_{}/attn_{}": "blocks.{}.attn.{}",
        "blocks_{}/mlp_{}": "blocks.{}.mlp.{}",
        "blocks_{}/{}": "blocks.{}.{}",
    },
    publisher="timm",
    head="head",
    # DINOv2's token for hidden patches too.
    left_out=("mask_token", *_TEXTS),
    others=(_DINOV2, _OPEN_CLIP),
    sized=("pos_embed",),
)

# The width, the blocks and the heads, by the word in the names.
_SIZES = {"small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}


def _vit(
    size: str,
    patch_size: int,
    image_size: int,
    num_parameters: int,
    normalization: Normalization,
    **fields: Any,
) -> ModelSpec:
    width, depth, num_heads = _SIZES[size]
    return ModelSpec(
        functools.partial(
            VisionTransformer,
            patch_size=patch_size,
            grid_size=image_size // patch_size,
            width=width,
            depth=depth,
            num_heads=num_heads,
            **fields,
        ),
        options=("dropout", "stochastic_depth"),
        names=_NAMES,
        num_parameters=num_parameters,
        has_blocks=True,
        normalization=normalization,
        image_size=image_size,
        smallest=patch_size,
        multiple_of=patch_size,
    )


_plain = functools.partial(_vit, patch_size=16, image_size=224, normalization=HALVES)
_dinov2 = functools.partial(
    _vit, patch_size=14, image_size=518, normalization=IMAGENET, layer_scale=1e-5
)
_clip = functools.partial(_vit, image_size=224, normalization=CLIP)
_clip_base = functools.partial(
    _clip, "base", patch_size=16, num_parameters=86_041_344, projection=512
)
_clip_large = functools.partial(
    _clip, "large", patch_size=14, num_parameters=303_703_040, projection=768
)

# By timm's names, with the parameters below the head and beside the positions.
NETWORKS = {
    "vit_small_patch16_224": _plain("small", num_parameters=21_590_016),
    "vit_base_patch16_224": _plain("base", num_parameters=85_647_360),
    "vit_large_patch16_224": _plain("large", num_parameters=303_099_904),
    "vit_small_patch14_dinov2": _dinov2("small", num_parameters=21_530_112),
    "vit_base_patch14_dinov2": _dinov2("base", num_parameters=85_527_552),
    "vit_large_patch14_dinov2": _dinov2("large", num_parameters=302_964_736),
    "vit_small_patch14_reg4_dinov2": _dinov2("small", num_parameters=21_531_648, registers=4),
    "vit_base_patch14_reg4_dinov2": _dinov2("base", num_parameters=85_530_624, registers=4),
    "vit_large_patch14_reg4_dinov2": _dinov2("large", num_parameters=302_968_832, registers=4),
    "vit_base_patch16_clip_224": _clip_base(),
    "vit_large_patch14_clip_224": _clip_large(),
    "vit_base_patch16_clip_quickgelu_224": _clip_base(activation=_quick_gelu),
    "vit_large_patch14_clip_quickgelu_224": _clip_large(activation=_quick_gelu),
}
