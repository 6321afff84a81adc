"""What the recipes of the papers share."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict, config_dict


def complete(config: Mapping[str, Any]) -> ConfigDict:
    """The configuration with the fields that it does not name, and few recipes do."""
    result = ConfigDict(
        {
            "model": {
                # A file of ResNet weights under torchvision's or timm's names; None for none.
                "pretrained": config_dict.placeholder(str),
                # Whether batch norm sees the batch of all devices, or each device its own share.
                "sync_batch_norm": True,
                # Compute in bfloat16; parameters, statistics and losses stay float32.
                "half_precision": False,
            },
            "optimizer": {
                # sgd, adamw, lamb, lars, lion or rmsprop.
                "name": "sgd",
                # The decay of the first moment, for the optimizers of Adam's kind too.
                "momentum": 0.9,
                # For sgd, lars and rmsprop.
                "nesterov": True,
                # The decay of the second moment, for adamw, lamb, lion and rmsprop; None for the
                # default of the optimizer.
                "beta2": config_dict.placeholder(float),
                # "step": times decay_factor at decay_epochs; "cosine": down to 0 at the end.
                "schedule": "step",
                "decay_epochs": (),
                "decay_factor": 0.1,
                # Epochs, also a fraction of one, in which the rate rises from almost 0.
                "warmup_epochs": 0.0,
                # The largest norm of the gradient; None for any.
                "clip_norm": config_dict.placeholder(float),
                # Parts that a batch is computed in, one after another, to save memory; 1 with the
                # losses of a whole batch: average_k, expected_positive_regularization, role.
                "accumulation_steps": 1,
                # The decay of a moving average of the parameters, which is then what is evaluated;
                # None for none.
                "average_decay": config_dict.placeholder(float),
            },
            # Epochs without improvement after which training stops; None for never.
            "stop_after": config_dict.placeholder(int),
            # "sigmoid", with the multi-label losses: each class has a probability of its own.
            "eval": {"scores": "softmax"},
            # Beside the checkpoint at the end of each epoch; every_steps may be None.
            "checkpoint": {"every_steps": config_dict.placeholder(int), "every_minutes": 10.0},
            "parallel": "pmap",
            # Whether compiled programs are kept in the user's cache folder for later runs.
            "compilation_cache": True,
        }
    )
    result.update(ConfigDict(config))
    return result


def for_loss(
    config: Mapping[str, Any], losses: Mapping[str, Mapping[str, Any]], name: str
) -> ConfigDict:
    """The recipe with one of its losses.

    Args:
        config: the fields that all losses of the recipe share, nested.
        losses: the losses by name, each with the fields that it has in `loss`, or changes elsewhere
            by their dotted names.
        name: what follows the colon in `--config=configs/x.py:name`.

    Raises:
        ValueError: the recipe has no such loss.
    """
    if name not in losses:
        known = ", ".join(losses)
        raise ValueError(f"the recipe has no loss {name!r}; after the colon may stand {known}")
    result = complete(config)
    result.loss = ConfigDict({"name": name})
    for field, value in losses[name].items():
        if "." in field or field in config:
            result.update_from_flattened_dict({field: value})
        else:
            result.loss[field] = value
    return result
