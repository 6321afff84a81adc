"""Files of DINOv2 and OpenCLIP are read, with the features of timm's networks at a small size.

Their names are written down here. For OpenCLIP's, timm's translation is the oracle.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.torch
import torch

from tests.peers.networks.comparison import computed, difference
from train.models import pretrained
from train.models.classifier import Classifier
from train.models.heads import LinearHead
from train.models.networks.vit import NETWORKS as VITS
from train.models.networks.vit import VisionTransformer

# After `peers`, which explains why.
import timm.models.vision_transformer as timms  # isort: skip

NUM_CLASSES = 5
IMAGES = np.random.default_rng(0).normal(size=(2, 42, 42, 3)).astype(np.float32)
# In float32, through two blocks.
BOUND = 1e-5

_SMALL: dict[str, Any] = {"patch_size": 14, "grid_size": 3, "width": 24, "depth": 2, "num_heads": 3}
_vit = functools.partial(VisionTransformer, axis_name=None, **_SMALL)
_OF_TIMM = {"img_size": 42, "patch_size": 14, "embed_dim": 24, "depth": 2, "num_heads": 3}


def made_random(network):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.3)
    return network.eval()


def outputs(network, pick=lambda outputs: outputs):
    with torch.no_grad():
        return pick(network(torch.tensor(IMAGES.transpose(0, 3, 1, 2)))).numpy()


def read(path, network, names):
    """The network and its variables as read, with a head, and the message about the file."""
    model = Classifier(network, LinearHead(NUM_CLASSES))
    images = jax.ShapeDtypeStruct(IMAGES.shape, np.float32)
    shapes = jax.eval_shape(functools.partial(model.init, train=False), jax.random.key(0), images)
    variables = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), shapes)
    found = pretrained.load(str(path), variables["params"], {}, model_name="small", published=names)
    return model, {"params": found.params}, found


def features(path, network, names=VITS["vit_base_patch16_224"].names):
    model, variables, found = read(path, network, names)
    return computed(functools.partial(model.apply, method="embed"), variables, IMAGES), found


@pytest.mark.parametrize("registers", [0, 4])
def test_dinov2s_hub(registers, tmp_path):
    """DINOv2's own names, from timm's; the position of the class token is on its own there."""
    network = made_random(
        timms.VisionTransformer(
            **_OF_TIMM,
            num_classes=0,
            init_values=1.0,
            reg_tokens=registers,
            no_embed_class=registers > 0,
        )
    )
    tensors = network.state_dict() | {"mask_token": torch.ones(1, 24)}
    if registers:
        tensors["register_tokens"] = tensors.pop("reg_token")
        position = torch.randn(1, 1, 24)
        tensors["cls_token"] = tensors["cls_token"] - position
        tensors["pos_embed"] = torch.cat([position, tensors["pos_embed"]], dim=1)
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path)
    found, read = features(path, _vit(layer_scale=1.0, registers=registers))
    assert difference(found, outputs(network)) < BOUND
    assert read.message.endswith(
        "but its head starts from random weights: the file has none; left out: 'mask_token'"
    )


def open_clips_tower():
    """The names and shapes of an image tower in OpenCLIP, written down from its code."""
    block = {
        "ln_1.weight": (24,),
        "ln_1.bias": (24,),
        "attn.in_proj_weight": (72, 24),
        "attn.in_proj_bias": (72,),
        "attn.out_proj.weight": (24, 24),
        "attn.out_proj.bias": (24,),
        "ln_2.weight": (24,),
        "ln_2.bias": (24,),
        "mlp.c_fc.weight": (96, 24),
        "mlp.c_fc.bias": (96,),
        "mlp.c_proj.weight": (24, 96),
        "mlp.c_proj.bias": (24,),
    }
    shapes = {
        "class_embedding": (24,),
        "positional_embedding": (10, 24),
        "proj": (24, 7),
        "conv1.weight": (24, 3, 14, 14),
        **{f"ln_{one}.{leaf}": (24,) for one in ("pre", "post") for leaf in ("weight", "bias")},
        **{
            f"transformer.resblocks.{index}.{name}": shape
            for index in range(2)
            for name, shape in block.items()
        },
    }
    rng = np.random.default_rng(0)
    return {
        f"visual.{name}": torch.tensor(rng.normal(0, 0.3, shape).astype(np.float32))
        for name, shape in shapes.items()
    }


TEXTS = {
    "positional_embedding": torch.ones(4, 6),
    "text_projection": torch.ones(6, 7),
    "logit_scale": torch.tensor(1.0),
    "token_embedding.weight": torch.ones(8, 6),
    "ln_final.weight": torch.ones(6),
    "transformer.resblocks.0.ln_1.weight": torch.ones(6),
}


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_open_clip(activation, tmp_path):
    whole = {**TEXTS, **open_clips_tower()}
    peer = timms.VisionTransformer(
        **_OF_TIMM,
        num_classes=7,
        pre_norm=True,
        act_layer=activation,
        norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-5),
    ).eval()
    of_timm = timms.checkpoint_filter_fn(whole, peer)
    peer.load_state_dict(of_timm, strict=True)
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(whole, path)
    spec = VITS["vit_base_patch16_clip_224"]
    if activation == "quick_gelu":
        spec = VITS["vit_base_patch16_clip_quickgelu_224"]
    found, read = features(path, spec.build(axis_name=None, projection=7, **_SMALL))
    assert difference(found, outputs(peer)) < BOUND
    assert "its head starts from random weights: the file has none" in read.message
    assert "left out: 'ln_final.weight', " in read.message
