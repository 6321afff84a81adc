"""Files of publishers other than torchvision's ResNets and timm are read: names, and what follows.

Each is written by the publisher's own code, at a small size, and the features are compared with the
features of that code. OpenCLIP's names are written down here; timm's translation is the oracle.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.torch
import torch

from benchmarks.published_networks import torchvision
from tests.peers.networks.comparison import computed, difference
from train.models import ModelSpec, pretrained
from train.models.classifier import Classifier
from train.models.heads import LinearHead
from train.models.networks.convnext import NETWORKS as CONVNEXTS
from train.models.networks.convnext import ConvNeXt
from train.models.networks.vit import NETWORKS as VITS
from train.models.networks.vit import VisionTransformer

# After `peers`, which explains why.
import timm.models.vision_transformer as timms  # isort: skip
import transformers  # isort: skip

NUM_CLASSES = 5
IMAGES = np.random.default_rng(0).normal(size=(2, 42, 42, 3)).astype(np.float32)
# In float32, through two blocks.
BOUND = 1e-5

_SMALL: dict[str, Any] = {"patch_size": 14, "grid_size": 3, "width": 24, "depth": 2, "num_heads": 3}
_vit = functools.partial(VisionTransformer, axis_name=None, **_SMALL)
_tower = functools.partial(_vit, projection=7)
_OF_TIMM = {"img_size": 42, "patch_size": 14, "embed_dim": 24, "depth": 2, "num_heads": 3}
_OF_HUGGING_FACE = {
    "image_size": 42,
    "patch_size": 14,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
}


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
    networks = {"small": ModelSpec(network.clone, names=names)}
    found = pretrained.load(
        str(path), variables["params"], {}, model_name="small", networks=networks
    )
    return model, {"params": found.params}, found


def features(path, network, names=VITS["vit_base_patch16_224"].names):
    model, variables, found = read(path, network, names)
    return computed(functools.partial(model.apply, method="embed"), variables, IMAGES), found


def logits(path, network, names=VITS["vit_base_patch16_224"].names):
    model, variables, found = read(path, network, names)
    assert found.head_is_read
    return computed(functools.partial(model.apply, train=False), variables, IMAGES)


_HUGGING_FACES = {
    "ViTModel": ("ViTConfig", _vit),
    "ViTForImageClassification": ("ViTConfig", _vit),
    "Dinov2Model": ("Dinov2Config", functools.partial(_vit, layer_scale=1.0)),
    "Dinov2WithRegistersModel": (
        "Dinov2WithRegistersConfig",
        functools.partial(_vit, layer_scale=1.0, registers=4),
    ),
    "CLIPVisionModelWithProjection": ("CLIPVisionConfig", _tower),
}


@pytest.mark.parametrize("architecture", _HUGGING_FACES)
def test_hugging_face(architecture, tmp_path):
    config, build = _HUGGING_FACES[architecture]
    fields = _OF_HUGGING_FACE | {"num_labels": NUM_CLASSES}
    if "CLIP" in architecture:
        fields |= {"projection_dim": 7, "hidden_act": "gelu"}
    network = made_random(
        getattr(transformers, architecture)(getattr(transformers, config)(**fields))
    )
    network.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    if architecture == "ViTForImageClassification":
        expected = outputs(network, lambda outputs: outputs.logits)
        assert difference(logits(path, build()), expected) < BOUND
        return
    if "CLIP" in architecture:
        expected = outputs(network, lambda outputs: outputs.image_embeds)
    else:
        expected = outputs(network, lambda outputs: outputs.last_hidden_state[:, 0])
    found, read = features(path, build())
    assert difference(found, expected) < BOUND
    assert ("left out: 'pooler.dense.bias'" in read.message) == (architecture == "ViTModel")
    assert ("left out: 'mask_token'" in read.message) == ("Dinov2" in architecture)


@pytest.mark.parametrize("is_published", [True, False])
def test_torchvisions_vision_transformer(is_published, tmp_path):
    network = made_random(
        torchvision.models.VisionTransformer(
            42, 14, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=96, num_classes=NUM_CLASSES
        )
    )
    tensors = network.state_dict()
    if is_published:
        # The published files are older than the names of the module.
        for new, old in (("mlp.0.", "mlp.linear_1."), ("mlp.3.", "mlp.linear_2.")):
            tensors = {name.replace(new, old): one for name, one in tensors.items()}
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path)
    assert difference(logits(path, _vit()), outputs(network)) < BOUND


def test_torchvisions_convnext(tmp_path):
    sizes = (4, 8, 16, 32)
    settings = [
        torchvision.models.convnext.CNBlockConfig(size, following, number)
        for size, following, number in zip(sizes, (*sizes[1:], None), (1, 2, 1, 1), strict=True)
    ]
    network = made_random(torchvision.models.ConvNeXt(settings, num_classes=NUM_CLASSES))
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(network.state_dict(), path)
    here = ConvNeXt(None, stage_sizes=(1, 2, 1, 1), width=4, stochastic_depth=0.0)
    found = logits(path, here, CONVNEXTS["convnext_tiny"].names)
    assert difference(found, outputs(network)) < BOUND


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
        name: torch.tensor(rng.normal(0, 0.3, shape).astype(np.float32))
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


@pytest.mark.parametrize("form", ["whole", "tower", "timm"])
@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_open_clip(form, activation, tmp_path):
    tower = open_clips_tower()
    whole = {**TEXTS, **{f"visual.{name}": tensor for name, tensor in tower.items()}}
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
    tensors = {"whole": whole, "tower": tower, "timm": peer.state_dict()}[form]
    safetensors.torch.save_file(tensors, path)
    spec = VITS["vit_base_patch16_clip_224"]
    if activation == "quick_gelu":
        spec = VITS["vit_base_patch16_clip_quickgelu_224"]
    found, read = features(path, spec.build(axis_name=None, projection=7, **_SMALL))
    assert difference(found, outputs(peer)) < BOUND
    assert "its head starts from random weights: the file has none" in read.message
    assert ("left out: 'text.ln_final.weight', " in read.message) == (form == "whole")
