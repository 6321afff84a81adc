"""Which fields of a configuration fit each other: a row for each rule."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from train.configuration.groups import MODEL_OPTIONS, Config
from train.data import DatasetSpec
from train.evaluation import metric
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.foundation.nested import flatten
from train.models import MODELS, ModelSpec, published
from train.models import find as find_network
from train.training.losses import LOSSES, find_loss
from train.training.objectives import LossSpec
from train.training.optimizer import NEED_WHOLE_LAYERS, OPTIMIZERS

_Entry = TypeVar("_Entry")

# What these fields may hold depends on other fields.
DEPENDENT = frozenset({"eval.ks", "eval.scores", "select_by"})
# Of numbers of devices that a message names.
_MOST_SHOWN = 256


@dataclass(frozen=True)
class _Run:
    """A configuration whose fields are checked together.

    Attributes:
        config: the configuration.
        values: its fields by dotted names, as they were given.
        spec: its data set.
        num_classes: the number of classes, if it is known.
    """

    config: Config
    values: Mapping[str, Any]
    spec: DatasetSpec
    num_classes: int | None

    @property
    def network(self) -> ModelSpec:
        """The network."""
        return find_network(self.config.model.name)

    @property
    def loss(self) -> LossSpec:
        """The loss."""
        return find_loss(self.config.loss.name)

    @property
    def has_cosine_head(self) -> bool:
        """Whether the head computes cosines."""
        return (self.config.model.head or self.loss.head) == "cosine"

    @property
    def has_scale_in_loss(self) -> bool:
        """Whether the loss scales the cosines of its head, by another factor than 1."""
        # Another loss may have a parameter of this name that means something else.
        is_factor = self.loss.head == "cosine" and "scale" in self.loss.parameters
        return is_factor and self.config.loss.parameters["scale"] != 1

    @property
    def may_split_classes(self) -> bool:
        """Whether devices may share the classes."""
        config = self.config
        return config.class_devices != 1 and (
            config.class_devices is not None or config.parallel == "mesh"
        )


class _Rule(NamedTuple):
    """A rule that a configuration keeps.

    Attributes:
        field: the field that has to be another one if the configuration breaks the rule.
        is_broken: whether it does.
        words: what the field must be, and why; in front of what it is.
    """

    field: str
    is_broken: Callable[[_Run], bool]
    words: Callable[[_Run], str]


def _among(field: Field, num_classes: int | None) -> Field:
    """The field for that number of classes, if it is known and the field depends on it."""
    if num_classes is None or not isinstance(field, fields.SetSize):
        return field
    return field.among(num_classes)


def _may_be(name: str, field: Callable[[_Run], Field]) -> _Rule:
    """The rule for a field that may hold what depends on other fields."""
    return _Rule(
        name,
        lambda run: field(run)(run.values[name]) is not None,
        lambda run: f"must be {field(run)(run.values[name])}; got {run.values[name]!r}",
    )


def _with_option(option: str) -> _Rule:
    """The rule for a field that some networks have."""
    return _Rule(
        f"model.{option}",
        lambda run: option in run.config.model.options and option not in run.network.options,
        lambda run: (
            f"is for {_listed(MODELS, lambda spec: option in spec.options)}; config.model.name is "
            f"{run.config.model.name!r}"
        ),
    )


def _of_single_examples(field: str, value: Any) -> _Rule:
    """The rule for a field that treats the examples of a batch singly."""
    return _Rule(
        field,
        lambda run: run.loss.of_batch and run.values[field] != value,
        lambda run: (
            f"must be {value} with {run.config.loss.name}, a loss of the whole batch; got "
            f"{run.values[field]}"
        ),
    )


def _of_trained_layers(field: str) -> _Rule:
    """The rule for a rate of layers of which only the head is trained if the others are frozen."""
    return _Rule(
        field,
        lambda run: run.config.model.freeze and run.values[field] is not None,
        lambda run: (
            "must be None with config.model.freeze, where the head alone is trained, with "
            f"config.optimizer.learning_rate; got {run.values[field]!r}"
        ),
    )


def _listed(entries: Mapping[str, _Entry], fits: Callable[[_Entry], bool]) -> str:
    """The names of the entries that fit."""
    return ", ".join(name for name, entry in entries.items() if fits(entry))


_RULES = (
    _Rule(
        "model.name",
        lambda run: run.spec.inputs not in run.network.inputs,
        lambda run: (
            f"must be one of {_listed(MODELS, lambda spec: run.spec.inputs in spec.inputs)} for "
            f"{run.spec.inputs}; got {run.config.model.name!r}"
        ),
    ),
    *map(_with_option, MODEL_OPTIONS),
    _Rule(
        "loss.label_smoothing",
        lambda run: (
            run.config.loss.label_smoothing != 0 and "label_smoothing" not in run.loss.parameters
        ),
        lambda run: (
            f"must be 0 with {run.config.loss.name}; it is for "
            f"{_listed(LOSSES, lambda loss: 'label_smoothing' in loss.parameters)}; got "
            f"{run.config.loss.label_smoothing}"
        ),
    ),
    _Rule(
        "model.head",
        lambda run: run.config.model.head is not None and run.loss.head not in ("linear", "cosine"),
        lambda run: (
            f"must be None with {run.config.loss.name}, whose head is of the kind "
            f"{run.loss.head}; got {run.config.model.head!r}"
        ),
    ),
    _Rule(
        "model.scale",
        lambda run: not run.has_cosine_head and run.config.model.scale is not None,
        lambda run: f"must be None without a cosine head; got {run.config.model.scale}",
    ),
    _Rule(
        "loss.scale",
        lambda run: not run.has_cosine_head and run.has_scale_in_loss,
        lambda run: (
            "must be 1 with a linear head, whose logits have any scale: margins and noise are then "
            f"in units of the logits; got {run.values['loss.scale']}"
        ),
    ),
    _Rule(
        "model.scale",
        lambda run: (
            run.has_cosine_head and run.loss.head != "cosine" and run.config.model.scale is None
        ),
        lambda run: (
            f"must be a number with {run.config.loss.name} and a cosine head, the factor of the "
            "cosines, such as 20; got None"
        ),
    ),
    _Rule(
        "loss.scale",
        lambda run: run.config.model.scale is not None and run.has_scale_in_loss,
        lambda run: (
            f"must be 1 with config.model.scale, {run.config.model.scale}, which scales the "
            f"cosines before the loss; got {run.values['loss.scale']}"
        ),
    ),
    _Rule(
        "model.learn_scale",
        lambda run: run.config.model.learn_scale and run.config.model.scale is None,
        lambda _run: "must be False without config.model.scale, which training starts from",
    ),
    _Rule(
        "eval.scores",
        lambda run: run.config.eval.scores == "sigmoid" and "sigmoid" not in run.loss.scores,
        lambda run: (
            "may be 'sigmoid' with the multi-label losses alone, "
            f"{_listed(LOSSES, lambda loss: 'sigmoid' in loss.scores)}; config.loss.name is "
            f"{run.config.loss.name!r}"
        ),
    ),
    _may_be("eval.scores", lambda run: fields.one_of(run.loss.scores)),
    _Rule(
        "eval.temperature",
        lambda run: run.config.eval.temperature and run.config.eval.scores != "softmax",
        lambda run: (
            f"must be False with config.eval.scores={run.config.eval.scores}: the temperature is "
            "fitted to probabilities that add up to 1"
        ),
    ),
    _Rule(
        "model.start_from",
        lambda run: None not in (run.config.model.start_from, run.config.model.pretrained),
        lambda _run: (
            "must be None with config.model.pretrained: a network starts from an earlier run or "
            "from a file of weights"
        ),
    ),
    _Rule(
        "model.new_head",
        lambda run: (
            run.config.model.new_head
            and run.config.model.start_from is None
            and run.config.model.pretrained is None
        ),
        lambda _run: (
            "must be False without config.model.start_from and config.model.pretrained, where all "
            "layers start anew"
        ),
    ),
    _of_trained_layers("optimizer.head_learning_rate"),
    _of_trained_layers("optimizer.layer_decay"),
    _of_single_examples("optimizer.accumulation_steps", 1),
    _of_single_examples("dataset.mixup", 0),
    _of_single_examples("loss.class_weights", "none"),
    _Rule(
        "loss.class_weights_from",
        lambda run: (
            run.config.loss.class_weights == "none" and run.config.loss.class_weights_from != 0
        ),
        lambda run: (
            "must be 0 with config.loss.class_weights=none; got "
            f"{run.config.loss.class_weights_from}"
        ),
    ),
    _Rule(
        "class_devices",
        lambda run: run.may_split_classes and run.config.parallel != "mesh",
        lambda run: (
            f"must be 1 with config.parallel={run.config.parallel}; it is for mesh; got "
            f"{run.config.class_devices}"
        ),
    ),
    _Rule(
        "class_devices",
        lambda run: run.may_split_classes and not run.loss.splits_classes,
        lambda run: (
            f"must be 1 with {run.config.loss.name}, which needs all classes on each device; more "
            f"are for {_listed(dict(sorted(LOSSES.items())), lambda loss: loss.splits_classes)}; "
            f"got {run.config.class_devices}"
        ),
    ),
    _Rule(
        "optimizer.name",
        lambda run: run.may_split_classes and run.config.optimizer.name in NEED_WHOLE_LAYERS,
        lambda run: (
            f"must be one of {', '.join(sorted(OPTIMIZERS.keys() - set(NEED_WHOLE_LAYERS)))} with "
            "config.parallel=mesh, unless config.class_devices is 1: else no device has the norm "
            f"of the head; got {run.config.optimizer.name!r}"
        ),
    ),
    _Rule(
        "dataset.mixup",
        lambda run: run.spec.inputs == "names" and run.config.dataset.mixup != 0,
        lambda run: (
            f"must be 0 for names, whose characters cannot be mixed; got {run.config.dataset.mixup}"
        ),
    ),
)
_KS = _may_be(
    "eval.ks",
    lambda run: fields.several(_among(fields.SetSize(), run.num_classes), increasing=True),
)
# The rules that the number of classes is part of, which the opened data set may be the first to
# know.
_SHARES = _Rule(
    "class_devices",
    lambda run: bool((run.num_classes or 0) % (run.config.class_devices or 1)),
    lambda run: (
        f"must divide the number of classes, {run.num_classes}, such as {_divisors(run)}; got "
        f"{run.config.class_devices}"
    ),
)
_SELECT_BY = _may_be(
    "select_by",
    lambda run: fields.one_of([one.name for one in metric.selectable(run.config.eval.ks)]),
)


def check(config: Config, spec: DatasetSpec, values: Mapping[str, Any]) -> None:
    """Raises `UserError` for the first rule that a configuration breaks.

    Args:
        config: the configuration.
        spec: its data set.
        values: its fields by dotted names, as they were given.
    """
    run = _Run(config, values, spec, spec.num_classes)
    _check(run, (*_of_parameters(run), *_RULES, _SHARES, _KS, _SELECT_BY))
    if config.model.pretrained is not None:
        published(config.model.name)


def check_classes(config: Config, spec: DatasetSpec, num_classes: int) -> None:
    """Raises `UserError` for the first size of sets that the number of classes does not allow.

    The opened data set may be the first to know that number.
    """
    run = _Run(config, dict(flatten(config.to_plain())), spec, num_classes)
    _check(run, (_SHARES,))
    try:
        _check(run, (*_of_parameters(run), _KS))
    except UserError as error:
        raise UserError(f"{error}; {_fitting(run, num_classes)}") from error


def check_field(values: Mapping[str, Any], name: str, field: Field) -> None:
    """Raises `UserError` if a field is missing, or holds what it may not."""
    if name not in values:
        raise UserError(f"config.{name} is missing")
    if (wrong := field(values[name])) is not None:
        raise UserError(f"config.{name} must be {wrong}; got {values[name]!r}")


def _check(run: _Run, rules: Iterable[_Rule]) -> None:
    for rule in rules:
        if rule.is_broken(run):
            raise UserError(f"config.{rule.field} {rule.words(run)}")


def _of_parameters(run: _Run) -> Iterator[_Rule]:
    """The rules for the parameters of the loss."""
    for name, field in run.loss.parameters.items():
        yield _may_be(f"loss.{name}", partial(_parameter, field))


def _parameter(field: Field, run: _Run) -> Field:
    return _among(field, run.num_classes)


def _divisors(run: _Run) -> str:
    """The first numbers of devices that can share the classes."""
    num_classes, most = run.num_classes or 1, min(run.config.class_devices or 1, _MOST_SHOWN)
    return ", ".join(str(one) for one in range(1, most + 1) if num_classes % one == 0)


def _fitting(run: _Run, num_classes: int) -> str:
    """The flags of sets that are not too large for the number of classes."""
    ks = [k for k in run.config.eval.ks if k < num_classes] or [1]
    listed = f"({ks[0]},)" if len(ks) == 1 else f"({','.join(map(str, ks))})"
    given = [f"--config.eval.ks='{listed}'", f"--config.select_by=top_{ks[-1]}_accuracy"]
    if run.values.get("loss.k", 0) >= num_classes:
        given.insert(0, f"--config.loss.k={num_classes - 1}")
    return f"for {num_classes} classes give {' '.join(given)}"
