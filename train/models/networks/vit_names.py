"""The names of timm and other publishers for the variables of vision transformers."""

import re

import numpy as np

from train.models.weights.names import Arrays, OtherNames, PublishedNames

# The text tower of a complete CLIP is left out. These names are of the image tower.
_OF_TOWERS = ("patch_embed.", "cls_token", "pos_embed", "norm_pre.", "blocks.", "norm.", "proj.")


def _add_class_position(arrays: Arrays) -> Arrays:
    """With registers, timm adds the position of the class token to that token."""
    if "reg_token" not in arrays:
        return arrays
    # In half precision the sum would be rounded.
    cls_token, pos_embed = (arrays[name].astype(np.float32) for name in ("cls_token", "pos_embed"))
    return arrays | {
        "cls_token": cls_token + pos_embed[:, :1],
        "pos_embed": pos_embed[:, 1:],
    }


def _join_attention(arrays: Arrays) -> Arrays:
    """Queries, keys and values of Hugging Face's as one."""
    joined = {}
    for name, array in arrays.items():
        found = re.fullmatch(r"(blocks\.\d+\.attn\.)(query|key|value)(\..+)", name)
        if found is None:
            joined[name] = array
        elif found[2] == "query":
            parts = (f"{found[1]}{part}{found[3]}" for part in ("query", "key", "value"))
            joined[f"{found[1]}qkv{found[3]}"] = np.concatenate([arrays[part] for part in parts])
    return joined


def _keep_tower(arrays: Arrays) -> Arrays:
    tower = {
        name if name.startswith(_OF_TOWERS) else f"text.{name}": array
        for name, array in arrays.items()
    }
    return tower | {"pos_embed": tower["pos_embed"][None]}


def _hugging_face(prefix: str) -> OtherNames:
    """Hugging Face's names of ViT and of DINOv2: equal names have one meaning in both."""
    block = f"{prefix}encoder.layer.{{}}"
    return OtherNames(
        sign=f"{prefix}embeddings.cls_token",
        renames={
            f"{prefix}embeddings.cls_token": "cls_token",
            f"{prefix}embeddings.mask_token": "mask_token",
            f"{prefix}embeddings.register_tokens": "reg_token",
            f"{prefix}embeddings.position_embeddings": "pos_embed",
            f"{prefix}embeddings.patch_embeddings.projection": "patch_embed.proj",
            f"{block}.attention.attention": "blocks.{}.attn",
            f"{block}.attention.output.dense": "blocks.{}.attn.proj",
            f"{block}.layernorm_before": "blocks.{}.norm1",
            f"{block}.layernorm_after": "blocks.{}.norm2",
            f"{block}.intermediate.dense": "blocks.{}.mlp.fc1",
            f"{block}.output.dense": "blocks.{}.mlp.fc2",
            f"{block}.layer_scale{{}}.lambda1": "blocks.{}.ls{}.gamma",
            block: "blocks.{}",
            f"{prefix}layernorm": "norm",
            "classifier": "head",
        },
        arrange=lambda arrays: _add_class_position(_join_attention(arrays)),
    )


def _open_clip(prefix: str) -> OtherNames:
    block = f"{prefix}transformer.resblocks.{{}}"

    def arrange(arrays: Arrays) -> Arrays:
        # PyTorch's layout is [out, in]; this is a bare matrix, [in, out].
        return _keep_tower(arrays | {"proj.weight": arrays["proj.weight"].T})

    return OtherNames(
        sign=f"{prefix}class_embedding",
        renames={
            f"{prefix}class_embedding": "cls_token",
            f"{prefix}positional_embedding": "pos_embed",
            f"{prefix}conv1": "patch_embed.proj",
            f"{prefix}ln_pre": "norm_pre",
            f"{block}.ln_{{}}": "blocks.{}.norm{}",
            f"{block}.attn.in_proj_{{}}": "blocks.{}.attn.qkv.{}",
            f"{block}.attn.out_proj": "blocks.{}.attn.proj",
            f"{block}.mlp.c_fc": "blocks.{}.mlp.fc1",
            f"{block}.mlp.c_proj": "blocks.{}.mlp.fc2",
            f"{prefix}ln_post": "norm",
            f"{prefix}proj": "proj.weight",
        },
        arrange=arrange,
    )


_HUGGING_FACES_CLIP = OtherNames(
    sign="vision_model.embeddings.class_embedding",
    renames={
        "vision_model.embeddings.class_embedding": "cls_token",
        "vision_model.embeddings.position_embedding.weight": "pos_embed",
        "vision_model.embeddings.patch_embedding": "patch_embed.proj",
        # Spelled in this way there.
        "vision_model.pre_layrnorm": "norm_pre",
        "vision_model.encoder.layers.{}.layer_norm{}": "blocks.{}.norm{}",
        "vision_model.encoder.layers.{}.self_attn.q_proj": "blocks.{}.attn.query",
        "vision_model.encoder.layers.{}.self_attn.k_proj": "blocks.{}.attn.key",
        "vision_model.encoder.layers.{}.self_attn.v_proj": "blocks.{}.attn.value",
        "vision_model.encoder.layers.{}.self_attn.out_proj": "blocks.{}.attn.proj",
        "vision_model.encoder.layers.{}.mlp": "blocks.{}.mlp",
        "vision_model.post_layernorm": "norm",
        "visual_projection": "proj",
    },
    arrange=lambda arrays: _keep_tower(_join_attention(arrays)),
)


def _project_without_bias(arrays: Arrays) -> Arrays:
    """The projection of a tower, which timm has as its head, with a bias of 0."""
    if "proj.weight" in arrays or np.any(arrays.get("head.bias", 1)):
        return arrays
    others = {name: array for name, array in arrays.items() if not name.startswith("head.")}
    return others | {"proj.weight": arrays["head.weight"]}


_TIMMS_CLIP = OtherNames(sign="norm_pre.weight", arrange=_project_without_bias)

_TORCHVISION = OtherNames(
    sign="class_token",
    renames={
        "class_token": "cls_token",
        "encoder.pos_embedding": "pos_embed",
        "conv_proj": "patch_embed.proj",
        "encoder.layers.encoder_layer_{}.ln_{}": "blocks.{}.norm{}",
        "encoder.layers.encoder_layer_{}.self_attention.in_proj_{}": "blocks.{}.attn.qkv.{}",
        "encoder.layers.encoder_layer_{}.self_attention.out_proj": "blocks.{}.attn.proj",
        # The names in the published files, then the names that its module has had since.
        "encoder.layers.encoder_layer_{}.mlp.linear_{}": "blocks.{}.mlp.fc{}",
        "encoder.layers.encoder_layer_{}.mlp.0": "blocks.{}.mlp.fc1",
        "encoder.layers.encoder_layer_{}.mlp.3": "blocks.{}.mlp.fc2",
        "encoder.ln": "norm",
        "heads.head": "head",
    },
)

# Without registers, DINOv2's own names are timm's.
_DINOV2 = OtherNames(
    sign="register_tokens",
    renames={"register_tokens": "reg_token"},
    arrange=_add_class_position,
)

NAMES = PublishedNames(
    {
        "patch_embed": "patch_embed.proj",
        "blocks_{}/attn_{}": "blocks.{}.attn.{}",
        "blocks_{}/mlp_{}": "blocks.{}.mlp.{}",
        "blocks_{}/{}": "blocks.{}.{}",
    },
    publisher="timm",
    head="head",
    # DINOv2's token for hidden patches, a layer of Hugging Face's that no published classifier
    # has, and the text towers of complete CLIPs.
    left_out=("mask_token", "pooler.", "text."),
    others=(
        _TORCHVISION,
        _DINOV2,
        *map(_hugging_face, ("", "vit.", "dinov2.", "dinov2_with_registers.")),
        *map(_open_clip, ("", "visual.")),
        _HUGGING_FACES_CLIP,
        _TIMMS_CLIP,
    ),
    sized=("pos_embed",),
)
