"""Which fields of a configuration fit each other."""

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

from train.configuration.datasets import labels_of
from train.configuration.groups import Config
from train.data import DatasetSpec
from train.data.truths import ONE, VOTES
from train.foundation import kinds
from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.models import MODELS, published
from train.models import find as find_network
from train.reports import metric
from train.training.losses import LOSSES, find_loss

_Entry = TypeVar("_Entry")
# A field to change, and what it must be, and why.
_Broken = Iterator[tuple[str, str]]


def check(config: Config, data: DatasetSpec) -> None:
    """Raises `UserError` for the first rule that a configuration breaks.

    Args:
        config: the configuration.
        data: its data set.
    """
    for rules in (_of_network, _of_head, _of_start, _of_loss, _of_training, _of_data):
        for field, must_be in rules(config, data):
            got = dict(flatten(config.to_plain())).get(field)
            raise UserError(field=f"config.{field}", must_be=must_be, got=got)
    if config.model.pretrained is not None:
        published(config.model.name)
    if data.num_classes is not None:
        check_classes(config, data.num_classes)


def check_classes(config: Config, num_classes: int) -> None:
    """Raises `UserError` for the first field that the number of classes does not allow.

    The opened data set may be the first to know that number.
    """
    size = config.class_devices
    if size is not None and num_classes % size:
        must_be = f"a number that divides the {num_classes} classes"
        raise UserError(field="config.class_devices", must_be=must_be, got=size)
    for name, kind in find_loss(config.loss.name).parameters.items():
        most = {kinds.SET_SIZE: num_classes, kinds.SMALLER_SET: num_classes - 1}.get(kind)
        got = config.loss.parameters[name]
        if most is not None and got > most:
            must_be = f"at most {most} with {num_classes} classes"
            raise UserError(field=f"config.loss.{name}", must_be=must_be, got=got)


def _having(entries: Mapping[str, _Entry], fits: Callable[[_Entry], Any]) -> str:
    """The names of the entries that fit."""
    return ", ".join(name for name, entry in entries.items() if fits(entry))


def _of_network(config: Config, data: DatasetSpec) -> _Broken:
    model, network = config.model, find_network(config.model.name)
    if data.inputs not in network.inputs:
        having = _having(MODELS, lambda spec: data.inputs in spec.inputs)
        yield "model.name", f"one of {having} for {data.inputs}"
    for option in model.options.keys() - set(network.options):
        having = ", ".join(name for name, spec in MODELS.items() if option in spec.options)
        yield f"model.{option}", f"None with {model.name}; it is for {having}"
    if model.remat and not network.has_blocks:
        having = _having(MODELS, lambda spec: not spec.has_blocks)
        yield (
            "model.remat",
            f"False with {model.name}; it is for networks with blocks, which these do not have: "
            f"{having}",
        )
    if model.remat and model.freeze:
        why = "the blocks of a frozen network have no backward pass"
        yield "model.remat", f"False with config.model.freeze: {why}"


def _of_head(config: Config, _data: DatasetSpec) -> _Broken:
    model, loss = config.model, find_loss(config.loss.name)
    is_cosine = (model.head or loss.head) == "cosine"
    # Another loss may have a parameter of this name that means something else.
    is_scaled = loss.head == "cosine" and config.loss.parameters.get("scale", 1) != 1
    if model.head and loss.head not in ("linear", "cosine"):
        yield "model.head", f"None with {config.loss.name}, whose head is of the kind {loss.head}"
    if model.scale is not None and not is_cosine:
        yield "model.scale", "None without a cosine head"
    if is_scaled and not is_cosine:
        yield (
            "loss.scale",
            "1 with a linear head, whose logits have any scale: margins and noise are then in "
            "units of the logits",
        )
    if is_cosine and loss.head != "cosine" and model.scale is None:
        yield (
            "model.scale",
            f"a number with {config.loss.name} and a cosine head, the factor of the cosines, such "
            "as 20",
        )
    if is_scaled and model.scale is not None:
        why = "which scales the cosines before the loss"
        yield "loss.scale", f"1 with config.model.scale, {model.scale}, {why}"
    if model.learn_scale and model.scale is None:
        yield "model.learn_scale", "False without config.model.scale, which training starts from"


def _of_start(config: Config, _data: DatasetSpec) -> _Broken:
    model, optimizer = config.model, config.optimizer
    if model.start_from and model.pretrained:
        why = "a network starts from an earlier run or from a file of weights"
        yield "model.start_from", f"None with config.model.pretrained: {why}"
    if model.new_head and not (model.start_from or model.pretrained):
        yield (
            "model.new_head",
            "False without config.model.start_from and config.model.pretrained: all layers start "
            "from random weights",
        )
    for name in ("head_learning_rate", "layer_decay"):
        if model.freeze and getattr(optimizer, name) is not None:
            why = "which trains only the head, with config.optimizer.learning_rate"
            yield f"optimizer.{name}", f"None with config.model.freeze, {why}"


def _of_loss(config: Config, _data: DatasetSpec) -> _Broken:
    loss, spec = config.loss, find_loss(config.loss.name)
    if loss.label_smoothing != 0 and "label_smoothing" not in spec.parameters:
        having = _having(LOSSES, lambda spec: "label_smoothing" in spec.parameters)
        yield "loss.label_smoothing", f"0 with {loss.name}; it is for {having}"
    if config.eval.scores not in spec.scores:
        having = _having(LOSSES, lambda spec: config.eval.scores in spec.scores)
        yield "eval.scores", f"{spec.scores[0]} with {loss.name}; others are for {having}"
    if config.eval.temperature and config.eval.scores == "sigmoid":
        why = "the temperature is fitted to probabilities that add up to 1"
        yield "eval.temperature", f"False with config.eval.scores=sigmoid: {why}"
    if loss.rank_weights and not spec.has_ranks:
        having = _having(LOSSES, lambda spec: spec.has_ranks)
        yield "loss.rank_weights", f"() with {loss.name}; it is for {having}"
    if loss.class_weights == "none" and loss.class_weights_from != 0:
        yield "loss.class_weights_from", "0 with config.loss.class_weights=none"
    if spec.of_batch:
        of_examples = (
            ("optimizer.accumulation_steps", config.optimizer.accumulation_steps, 1),
            ("dataset.mixup", config.dataset.mixup, 0),
            ("loss.class_weights", loss.class_weights, "none"),
        )
        for field, value, usual in of_examples:
            if value != usual:
                yield field, f"{usual} with {loss.name}, a loss of the whole batch"
    if loss.name == "conformal_training":
        # The rank ceil((m + 1) (1 - error)) of m examples is at most m.
        fewest = 2 * math.ceil(1 / Fraction(str(loss.of_losses["error"])) - 1)
        if config.dataset.batch_size < fewest:
            why = "half of a batch has to have a quantile at config.loss.error"
            yield "dataset.batch_size", f"at least {fewest} with {loss.name}: {why}"


def _of_training(config: Config, _data: DatasetSpec) -> _Broken:
    has_mesh, kind = config.parallel in ("mesh", "fsdp"), config.parallel
    if config.class_devices not in (None, 1) and not has_mesh:
        yield "class_devices", f"1 with config.parallel={kind}; it is for mesh and fsdp"
    if has_mesh and not config.model.sync_batch_norm:
        why = "whose batch norm uses the whole batch"
        yield "model.sync_batch_norm", f"True with config.parallel={kind}, {why}"
    increasing = {
        "eval.ks": config.eval.ks,
        "optimizer.decay_epochs": config.optimizer.decay_epochs,
    }
    for field, values in increasing.items():
        if any(one >= other for one, other in pairwise(values)):
            yield field, "a tuple of increasing elements"
    selectable = [one.name for one in metric.selectable(config.eval.ks)]
    if wrong := kinds.wrong(config.select_by, kinds.one_of(selectable)):
        yield "select_by", wrong


def _of_data(config: Config, _data: DatasetSpec) -> _Broken:
    labels, loss = labels_of(config.dataset), find_loss(config.loss.name)
    if labels not in loss.truths:
        is_for = f"{config.loss.name} is for {' or '.join(loss.truths)}"
        yield "loss.name", f"a loss for config.dataset.labels={labels}; {is_for}"
    usual = {"label_noise": (0, ONE), "votes": ("shares", VOTES), "annotator": (None, VOTES)}
    for field, (value, of) in usual.items():
        # Not every data set has them.
        if labels != of and getattr(config.dataset, field, value) != value:
            yield f"dataset.{field}", f"{value} with config.dataset.labels={labels}"
