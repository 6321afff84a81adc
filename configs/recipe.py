"""The fields that the recipes of the papers share."""

from collections.abc import Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict, config_dict

_Entry = TypeVar("_Entry")


def complete(config: Mapping[str, Any]) -> ConfigDict:
    """Adds the less common fields with their defaults to a configuration."""
    result = ConfigDict(
        {
            "dataset": {
                # Training examples are mixed in pairs, with shares from Beta(mixup, mixup); 0 for
                # no mixup.
                "mixup": 0.0,
                # "class_balanced" draws every class as often; "uniform" every example.
                "sampling": "uniform",
                # The largest file of an image of your own that is read, in MiB.
                "max_image_mb": 256,
            },
            "model": {
                # A file of weights with the names of one of its publishers, or None.
                "pretrained": config_dict.placeholder(str),
                # The workdir of a finished run of the same network to start from, or None.
                "start_from": config_dict.placeholder(str),
                # How images are normalized: "dataset" for the mean and deviation of the data set,
                # "imagenet", "halves" (values from -1 to 1) or "clip". None for what the weights
                # of pretrained or start_from expect, and for "dataset" without weights.
                "normalization": config_dict.placeholder(str),
                # Whether the network below the head stays as it is, and the head alone is trained.
                "freeze": False,
                # Whether the features of a frozen network are normalized below a new linear head,
                # so that one rate fits every network.
                "normalize_features": True,
                # Whether the head starts anew, also where pretrained or start_from has one.
                "new_head": False,
                # "linear" or "cosine"; None for the head that the loss usually has.
                "head": config_dict.placeholder(str),
                # The factor of the cosines of a cosine head; None for ldam and the imbalanced
                # losses, where loss.scale is it.
                "scale": config_dict.placeholder(float),
                # Whether that factor is trained.
                "learn_scale": False,
                # Whether batch norm uses the batch of all devices, or the share of each device.
                "sync_batch_norm": True,
                # Compute in bfloat16; parameters, statistics and losses stay float32.
                "half_precision": False,
                # For mlp: the units of each hidden layer, the number of hidden layers, and the
                # probability that a unit is set to 0 in training; None for 256, 2 and 0. ngram_bag
                # has a width, 64, and a dropout; networks with published weights have dropout too.
                "width": config_dict.placeholder(int),
                "depth": config_dict.placeholder(int),
                "dropout": config_dict.placeholder(float),
                # For networks with published weights: how often the last residual branch is left
                # out in training, those before it less often; None as they were published.
                "stochastic_depth": config_dict.placeholder(float),
            },
            "optimizer": {
                # sgd, adamw, lamb, lars, lion or rmsprop.
                "name": "sgd",
                # The decay of the first moment, also for optimizers like Adam.
                "momentum": 0.9,
                # For sgd, lars and rmsprop.
                "nesterov": True,
                # The decay of the second moment, for adamw, lamb, lion and rmsprop; None for the
                # default of the optimizer.
                "beta2": config_dict.placeholder(float),
                # The learning rate of the head; None for learning_rate.
                "head_learning_rate": config_dict.placeholder(float),
                # Each layer has the rate of the next layer towards the head times this number, in
                # (0, 1]; None for one rate.
                "layer_decay": config_dict.placeholder(float),
                # Whether the weight decay is also for biases and for the scales of norms.
                "decay_biases_and_norms": True,
                # "step" multiplies by decay_factor at decay_epochs; "cosine" decays to 0.
                "schedule": "step",
                "decay_epochs": (),
                "decay_factor": 0.1,
                # The epochs, possibly a fraction, in which the rate rises from almost 0.
                "warmup_epochs": 0.0,
                # The largest norm of the gradient; None for no limit.
                "clip_norm": config_dict.placeholder(float),
                # The number of parts of a batch that are computed one after another, to save
                # memory. It is 1 for losses that couple the batch: average_k,
                # expected_positive_regularization, role.
                "accumulation_steps": 1,
                # The decay of a moving average of the parameters, which is then evaluated; None
                # for no average.
                "average_decay": config_dict.placeholder(float),
            },
            "loss": {
                # For cross_entropy: the part of each label that is spread over all classes, in
                # [0, 1).
                "label_smoothing": 0.0,
                # "class_balanced" weights the training losses of rare classes more; "none".
                "class_weights": "none",
                # In [0, 1): 0 weights all classes alike, and towards 1 a class has the weight
                # 1 / its number of examples.
                "class_weights_beta": 0.9999,
                # The fraction of the epochs after which the weights apply; 0.8 is deferred
                # re-weighting.
                "class_weights_from": 0.0,
            },
            # Training stops after this many epochs without improvement; None to never stop.
            "stop_after": config_dict.placeholder(int),
            "eval": {
                # "sigmoid" is for the multi-label losses: each class has its own probability.
                "scores": "softmax",
                # Whether the logits are divided by a temperature that is fitted on validation, for
                # the probabilities of the finished run.
                "temperature": False,
            },
            # In addition to the checkpoint at the end of each epoch; every_steps may be None.
            "checkpoint": {"every_steps": config_dict.placeholder(int), "every_minutes": 10.0},
            # "pmap" or "shard_map", where all devices split the batch; "mesh", where they may also
            # split the classes.
            "parallel": "pmap",
            # For mesh: the devices that share the classes of the head; None for as many as divide
            # the devices of a process and the classes.
            "class_devices": config_dict.placeholder(int),
            # Whether compiled programs are cached in the user's cache folder for later runs.
            "compilation_cache": True,
        }
    )
    result.update(ConfigDict(config))
    return result


def for_loss(
    config: Mapping[str, Any], losses: Mapping[str, Mapping[str, Any]], name: str
) -> ConfigDict:
    """Returns the recipe with one of its losses.

    Args:
        config: the fields that all losses of the recipe share, nested.
        losses: the losses by name, each with its fields in `loss`, and changes to other fields by
            their dotted names.
        name: the text after the colon in `--config=configs/x.py:name`.

    Raises:
        ValueError: the recipe has no such loss.
    """
    changes = chosen(losses, name, "loss")
    result = complete(config)
    result.loss.name = name
    for field, value in changes.items():
        if "." in field or field in config:
            result.update_from_flattened_dict({field: value})
        else:
            result.loss[field] = value
    return result


def chosen(entries: Mapping[str, _Entry], name: str, kind: str) -> _Entry:
    """The entry that the text after the colon names.

    Args:
        entries: the entries of the recipe by name.
        name: the text after the colon.
        kind: what an entry is of, for the message.

    Raises:
        ValueError: the recipe has no such entry.
    """
    if name not in entries:
        known = ", ".join(entries)
        raise ValueError(f"the recipe has no {kind} {name!r}; after the colon may stand {known}")
    return entries[name]
