"""Which fields of a configuration fit each other: a row for each rule."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from train.configuration.datasets import labels_of
from train.configuration.groups import MODEL_OPTIONS, Config
from train.data import DatasetSpec
from train.data.truths import ONE, VOTES
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.foundation.nested import flatten
from train.models import MODELS, published
from train.models import find as find_network
from train.reports import metric
from train.training.losses import LOSSES, find_loss
from train.training.optimizer import NEED_WHOLE_LAYERS, OPTIMIZERS

_Entry = TypeVar("_Entry")
# The most numbers of devices that a message names.
_MOST_SHOWN = 256


class _Run:
    """A configuration whose fields are checked together; messages name its attributes."""

    def __init__(
        self, config: Config, values: Mapping[str, Any], data: DatasetSpec, num_classes: int | None
    ) -> None:
        self.config, self.values = config, values
        self.model, self.loss = config.model, config.loss
        self.optimizer, self.eval = config.optimizer, config.eval
        self.data, self.num_classes = data, num_classes
        self.labels = labels_of(config.dataset)
        self.network = find_network(config.model.name)
        self.objective = find_loss(config.loss.name)
        self.takes = " or ".join(self.objective.truths)
        self.has_cosine_head = (config.model.head or self.objective.head) == "cosine"
        takes_cosines = self.objective.head == "cosine"
        # Another loss may have a parameter of this name that means something else.
        of_loss = config.loss.parameters.get("scale")
        self.scale = of_loss if takes_cosines and "scale" in self.objective.parameters else 1
        size = config.class_devices
        self.may_split_classes = size != 1 and (size is not None or config.parallel == "mesh")

    @cached_property
    def fewest_for_quantile(self) -> int:
        """The smallest batch for the error of the loss, which is in range."""
        if self.loss.name != "conformal_training":
            return 0
        # The rank ceil((m + 1) (1 - error)) of m examples is at most m.
        return 2 * math.ceil(1 / Fraction(str(self.loss.of_losses["error"])) - 1)


class _Rule(NamedTuple):
    """A rule that a configuration keeps.

    Attributes:
        field: the field to change if the configuration breaks the rule.
        is_broken: whether it does.
        must_be: what the field must be, and why; with attributes of the run in braces.
    """

    field: str
    is_broken: Callable[[_Run], Any]
    must_be: str


def _listed(entries: Mapping[str, _Entry], fits: Callable[[_Entry], Any]) -> str:
    """The names of the entries that fit."""
    return ", ".join(name for name, entry in entries.items() if fits(entry))


_SMOOTHING = _listed(LOSSES, lambda loss: "label_smoothing" in loss.parameters)
_MULTI_LABEL = _listed(LOSSES, lambda loss: "sigmoid" in loss.scores)
_SPLITTING = _listed(dict(sorted(LOSSES.items())), lambda loss: loss.splits_classes)
_WITHOUT_BLOCKS = _listed(MODELS, lambda spec: not spec.has_blocks)
_AT_RANKS = _listed(LOSSES, lambda loss: loss.has_ranks)
_OF_PARTS = ", ".join(sorted(OPTIMIZERS.keys() - set(NEED_WHOLE_LAYERS)))


def _with_option(option: str) -> _Rule:
    """The rule for a field that some networks have."""
    return _Rule(
        f"model.{option}",
        lambda run: option in run.model.options and option not in run.network.options,
        "None with {model.name}; it is for " + _listed(MODELS, lambda spec: option in spec.options),
    )


def _for_inputs(inputs: str) -> _Rule:
    """The rule for the networks on examples of a kind."""
    return _Rule(
        "model.name",
        lambda run: inputs == run.data.inputs and inputs not in run.network.inputs,
        f"one of {_listed(MODELS, lambda spec: inputs in spec.inputs)} for {inputs}",
    )


def _of_single_examples(field: str, value: Any) -> _Rule:
    """The rule for a field that treats the examples of a batch singly."""
    return _Rule(
        field,
        lambda run: run.objective.of_batch and run.values[field] != value,
        f"{value} with {{loss.name}}, a loss of the whole batch",
    )


def _for_labels(field: str, usual: Any, labels: str) -> _Rule:
    """The rule for a field of one kind of labels, which not every data set has."""
    return _Rule(
        field,
        lambda run: run.labels != labels and run.values.get(field, usual) != usual,
        f"{usual} with config.dataset.labels={{labels}}",
    )


def _of_trained_layers(field: str) -> _Rule:
    """The rule for a rate of layers: it has no effect if the layers below the head are frozen."""
    return _Rule(
        field,
        lambda run: run.model.freeze and run.values[field] is not None,
        "None with config.model.freeze, which trains only the head, with "
        "config.optimizer.learning_rate",
    )


_RULES = (
    *map(_for_inputs, ("images", "features")),
    *map(_with_option, MODEL_OPTIONS),
    _Rule(
        "loss.label_smoothing",
        lambda run: (
            run.loss.label_smoothing != 0 and "label_smoothing" not in run.objective.parameters
        ),
        f"0 with {{loss.name}}; it is for {_SMOOTHING}",
    ),
    _Rule(
        "model.head",
        lambda run: run.model.head and run.objective.head not in ("linear", "cosine"),
        "None with {loss.name}, whose head is of the kind {objective.head}",
    ),
    _Rule(
        "model.scale",
        lambda run: not run.has_cosine_head and run.model.scale is not None,
        "None without a cosine head",
    ),
    _Rule(
        "loss.scale",
        lambda run: not run.has_cosine_head and run.scale != 1,
        "1 with a linear head, whose logits have any scale: margins and noise are then in units of "
        "the logits",
    ),
    _Rule(
        "model.scale",
        lambda run: (
            run.has_cosine_head and run.objective.head != "cosine" and run.model.scale is None
        ),
        "a number with {loss.name} and a cosine head, the factor of the cosines, such as 20",
    ),
    _Rule(
        "loss.scale",
        lambda run: run.model.scale is not None and run.scale != 1,
        "1 with config.model.scale, {model.scale}, which scales the cosines before the loss",
    ),
    _Rule(
        "model.learn_scale",
        lambda run: run.model.learn_scale and run.model.scale is None,
        "False without config.model.scale, which training starts from",
    ),
    _Rule(
        "eval.scores",
        lambda run: run.eval.scores == "sigmoid" and "sigmoid" not in run.objective.scores,
        f"softmax with {{loss.name}}; sigmoid is for the multi-label losses, {_MULTI_LABEL}",
    ),
    _Rule(
        "eval.temperature",
        lambda run: run.eval.temperature and run.eval.scores == "sigmoid",
        "False with config.eval.scores={eval.scores}: the temperature is fitted to probabilities "
        "that add up to 1",
    ),
    _Rule(
        "model.remat",
        lambda run: run.model.remat and not run.network.has_blocks,
        "False with {model.name}; it is for networks with blocks, which these do not have: "
        + _WITHOUT_BLOCKS,
    ),
    _Rule(
        "model.remat",
        lambda run: run.model.remat and run.model.freeze,
        "False with config.model.freeze: the blocks of a frozen network have no backward pass",
    ),
    _Rule(
        "model.start_from",
        lambda run: run.model.start_from and run.model.pretrained,
        "None with config.model.pretrained: a network starts from an earlier run or from a file of "
        "weights",
    ),
    _Rule(
        "model.new_head",
        lambda run: run.model.new_head and not (run.model.start_from or run.model.pretrained),
        "False without config.model.start_from and config.model.pretrained: all layers start from "
        "random weights",
    ),
    _of_trained_layers("optimizer.head_learning_rate"),
    _of_trained_layers("optimizer.layer_decay"),
    _Rule(
        "dataset.batch_size",
        lambda run: run.config.dataset.batch_size < run.fewest_for_quantile,
        "at least {fewest_for_quantile} with {loss.name} and config.loss.error="
        "{loss.of_losses[error]}: half of a batch has to have a quantile at this error",
    ),
    _of_single_examples("optimizer.accumulation_steps", 1),
    _of_single_examples("dataset.mixup", 0),
    _of_single_examples("loss.class_weights", "none"),
    _Rule(
        "loss.rank_weights",
        lambda run: run.loss.rank_weights and not run.objective.has_ranks,
        f"() with {{loss.name}}; it is for {_AT_RANKS}",
    ),
    _Rule(
        "loss.class_weights_from",
        lambda run: run.loss.class_weights == "none" and run.loss.class_weights_from != 0,
        "0 with config.loss.class_weights=none",
    ),
    _Rule(
        "class_devices",
        lambda run: run.may_split_classes and run.config.parallel not in ("mesh", "fsdp"),
        "1 with config.parallel={config.parallel}; it is for mesh and fsdp",
    ),
    _Rule(
        "class_devices",
        lambda run: run.may_split_classes and not run.objective.splits_classes,
        "1 with {loss.name}, which needs all classes on each device; more are for " + _SPLITTING,
    ),
    _Rule(
        "class_devices",
        lambda run: run.may_split_classes and run.loss.rank_weights,
        "1 with config.loss.rank_weights, which need all classes on each device",
    ),
    _Rule(
        "optimizer.name",
        lambda run: run.may_split_classes and run.optimizer.name in NEED_WHOLE_LAYERS,
        f"one of {_OF_PARTS} with config.parallel=mesh, unless config.class_devices is 1: others "
        "need the norm of the head, which is split",
    ),
    _Rule(
        "optimizer.name",
        lambda run: run.config.parallel == "fsdp" and run.optimizer.name in NEED_WHOLE_LAYERS,
        f"one of {_OF_PARTS} with config.parallel=fsdp: others need the norms of layers, which are "
        "split",
    ),
    _Rule(
        "loss.name",
        lambda run: run.labels not in run.objective.truths,
        "a loss for config.dataset.labels={labels}; {loss.name} is for {takes}",
    ),
    _for_labels("dataset.label_noise", 0, ONE),
    _for_labels("dataset.votes", "shares", VOTES),
    _for_labels("dataset.annotator", None, VOTES),
)
# The allowed values of these fields depend on other fields, and on the number of classes.
DEPENDENT: Mapping[str, Callable[[_Run], Field]] = {
    "eval.scores": lambda run: fields.one_of(run.objective.scores),
    "eval.ks": lambda run: fields.several(_among(fields.SetSize(), run), increasing=True),
    "select_by": lambda run: fields.one_of(
        [one.name for one in metric.selectable(run.config.eval.ks)]
    ),
}


def check(config: Config, data: DatasetSpec, values: Mapping[str, Any]) -> None:
    """Raises `UserError` for the first rule that a configuration breaks.

    Args:
        config: the configuration.
        data: its data set.
        values: its fields by dotted names, as they were given.
    """
    run = _Run(config, values, data, data.num_classes)
    _check_parameters(run)
    for rule in _RULES:
        if rule.is_broken(run):
            must_be = rule.must_be.format_map(vars(run))
            raise UserError(
                field=f"config.{rule.field}", must_be=must_be, got=values.get(rule.field)
            )
    if run.model.pretrained is not None:
        published(run.model.name)
    _check_shares(run)
    for name, field in DEPENDENT.items():
        check_field(values, name, field(run))


def check_classes(config: Config, data: DatasetSpec, num_classes: int) -> None:
    """Raises `UserError` for the first size of sets that the number of classes does not allow.

    The opened data set may be the first to know that number.
    """
    run = _Run(config, dict(flatten(config.to_plain())), data, num_classes)
    _check_shares(run)
    try:
        _check_parameters(run)
        check_field(run.values, "eval.ks", DEPENDENT["eval.ks"](run))
    except UserError as error:
        raise error.within(after=f"; {_fitting(run, num_classes)}") from error


def check_field(values: Mapping[str, Any], name: str, field: Field) -> None:
    """Raises `UserError` if a field is missing, or holds what it may not."""
    if name not in values:
        raise UserError(f"config.{name} is missing")
    if (wrong := field(values[name])) is not None:
        raise UserError(field=f"config.{name}", must_be=wrong, got=values[name])


def _check_parameters(run: _Run) -> None:
    """Raises `UserError` for the first parameter of the loss that is out of range."""
    for name, field in run.objective.parameters.items():
        check_field(run.values, f"loss.{name}", _among(field, run))


def _among(field: Field, run: _Run) -> Field:
    """The field for the number of classes, if that is known and the field depends on it."""
    if run.num_classes is None or not isinstance(field, fields.SetSize):
        return field
    return field.among(run.num_classes)


def _check_shares(run: _Run) -> None:
    """Raises `UserError` unless the devices can share the classes, if known, equally."""
    size, num_classes = run.config.class_devices, run.num_classes
    if num_classes is not None and size is not None and num_classes % size:
        fewer = range(1, min(size, _MOST_SHOWN + 1))
        dividing = ", ".join(str(one) for one in fewer if num_classes % one == 0)
        raise UserError(
            f"config.class_devices must divide the number of classes, {num_classes}, such as "
            f"{dividing}; got {size}"
        )


def _fitting(run: _Run, num_classes: int) -> str:
    """The flags of sets that are not too large for the number of classes."""
    ks = [k for k in run.eval.ks if k < num_classes] or [1]
    listed = f"({ks[0]},)" if len(ks) == 1 else f"({','.join(map(str, ks))})"
    given = [f"--config.eval.ks='{listed}'", f"--config.select_by=top_{ks[-1]}_accuracy"]
    if run.loss.parameters.get("k", 0) >= num_classes:
        given.insert(0, f"--config.loss.k={num_classes - 1}")
    return f"for {num_classes} classes give {' '.join(given)}"
