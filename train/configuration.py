"""The fields of a configuration, what each may hold, and the check of all of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from train.data import DATASET_NAME, dataset_spec, find
from train.data.batches import SAMPLINGS
from train.devices import parallel
from train.evaluation import metric
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.models import MODEL_NAME, MODEL_OPTIONS, MODELS, NORMALIZATIONS, published
from train.models import find as find_network
from train.training import class_weights
from train.training.losses import LABEL_SMOOTHING, LOSS_NAME, LOSSES, find_loss
from train.training.optimizer import NEED_WHOLE_LAYERS, OPTIMIZERS, SCHEDULES
from train.workdir import extensions, runs

# Of numbers of devices that a message names.
_MOST_SHOWN = 256
# Fields that every configuration has. Others depend on the loss and the data set: see below.
_FIELDS: dict[str, fields.Field] = {
    "seed": fields.integer(0, 2**32 - 1),
    "num_epochs": fields.integer(1),
    "dataset.batch_size": fields.integer(1),
    "dataset.data_dir": fields.text(optional=True),
    "dataset.sampling": fields.one_of(SAMPLINGS),
    "dataset.max_image_mb": fields.integer(1),
    "dataset.mixup": fields.Number(at_least=0, at_most=1000),
    "model.name": MODEL_NAME,
    "model.pretrained": fields.text(optional=True),
    "model.start_from": fields.text(optional=True),
    "model.normalization": fields.optional(fields.one_of((*NORMALIZATIONS, "dataset"))),
    "model.freeze": fields.boolean(),
    "model.normalize_features": fields.boolean(),
    "model.new_head": fields.boolean(),
    # Two heads belong to the losses that need them.
    "model.head": fields.optional(fields.one_of(("linear", "cosine"))),
    "model.scale": fields.optional(fields.Number(above=0)),
    "model.learn_scale": fields.boolean(),
    "model.sync_batch_norm": fields.boolean(),
    "model.half_precision": fields.boolean(),
    **{f"model.{name}": field for name, field in MODEL_OPTIONS.items()},
    "loss.name": LOSS_NAME,
    "loss.label_smoothing": LABEL_SMOOTHING,
    "loss.class_weights": fields.one_of(class_weights.KINDS),
    "loss.class_weights_beta": fields.Number(at_least=0, below=1),
    "loss.class_weights_from": fields.Number(at_least=0, below=1),
    "optimizer.learning_rate": fields.Number(above=0),
    "optimizer.head_learning_rate": fields.optional(fields.Number(above=0)),
    "optimizer.layer_decay": fields.optional(fields.Number(above=0, at_most=1)),
    "optimizer.momentum": fields.Number(at_least=0, below=1),
    "optimizer.nesterov": fields.boolean(),
    "optimizer.name": fields.one_of(OPTIMIZERS),
    "optimizer.beta2": fields.optional(fields.Number(at_least=0, below=1)),
    "optimizer.weight_decay": fields.Number(at_least=0),
    "optimizer.decay_biases_and_norms": fields.boolean(),
    "optimizer.schedule": fields.one_of(SCHEDULES),
    "optimizer.decay_epochs": fields.several(fields.integer(1), empty=True, increasing=True),
    "optimizer.decay_factor": fields.Number(above=0),
    "optimizer.warmup_epochs": fields.Number(at_least=0),
    "optimizer.clip_norm": fields.optional(fields.Number(above=0)),
    "optimizer.accumulation_steps": fields.integer(1),
    "optimizer.average_decay": fields.optional(fields.Number(at_least=0, below=1)),
    "eval.temperature": fields.boolean(),
    "stop_after": fields.optional(fields.integer(1)),
    "checkpoint.every_steps": fields.optional(fields.integer(1)),
    "checkpoint.every_minutes": fields.Number(above=0),
    "parallel": fields.one_of(parallel.KINDS),
    "class_devices": fields.optional(fields.integer(1)),
    "compilation_cache": fields.boolean(),
}


def check(config: Mapping[str, Any]) -> None:
    """Raises `UserError` for the first field that is missing, unknown or out of range."""
    values = dict(flatten(config))
    _check_field(values, "dataset.name", DATASET_NAME)
    options = {
        f"dataset.{name}": field for name, field in find(values["dataset.name"]).options.items()
    }
    known = {
        *_FIELDS,
        *options,
        "dataset.name",
        "select_by",
        "eval.ks",
        "eval.scores",
        # Of a run that was extended.
        extensions.FIELD,
        # Of a run whose head was normalized.
        runs.TAU_NORMALIZED,
        *_loss_fields(values),
    }
    for name in values:
        if name not in known:
            hint = fields.did_you_mean(name, known)
            raise UserError(f"config.{name} is not a field of the configuration{hint}")
    for name, field in (_FIELDS | options).items():
        _check_field(values, name, field)
    if extensions.FIELD in values:
        _check_field(values, extensions.FIELD, extensions.CHECK)
    if runs.TAU_NORMALIZED in values:
        _check_field(values, runs.TAU_NORMALIZED, fields.Number(at_least=0))
    spec = dataset_spec(config["dataset"])
    _check_network(values, spec.inputs)
    num_classes = spec.num_classes
    loss = find_loss(values["loss.name"])
    for name, field in loss.parameters.items():
        if f"loss.{name}" not in values:
            raise UserError(
                f"config.loss.{name} is missing; a recipe has the parameters of the loss that "
                f"follows its colon, as in --config=FILE:{values['loss.name']}"
            )
        _check_field(values, f"loss.{name}", _among(num_classes, field))
    _check_label_smoothing(values)
    _check_head(values)
    if values.get("eval.scores") == "sigmoid" and "sigmoid" not in loss.scores:
        multi_label = ", ".join(name for name, spec in LOSSES.items() if "sigmoid" in spec.scores)
        raise UserError(
            f"config.eval.scores may be 'sigmoid' with the multi-label losses alone, {multi_label}"
            f"; config.loss.name is {values['loss.name']!r}"
        )
    _check_field(values, "eval.scores", fields.one_of(loss.scores))
    if values["eval.temperature"] and values["eval.scores"] != "softmax":
        raise UserError(
            "config.eval.temperature must be False with config.eval.scores="
            f"{values['eval.scores']}: the temperature is fitted to probabilities that add up to 1"
        )
    if values["model.pretrained"] is not None:
        published(values["model.name"])
    _check_fine_tuning(values)
    _check_whole_batch(values)
    _check_class_weights(values)
    _check_class_devices(values)
    _check_shares(values, num_classes)
    if spec.inputs == "names" and values["dataset.mixup"] != 0:
        raise UserError(
            "config.dataset.mixup must be 0 for names, whose characters cannot be mixed; got "
            f"{values['dataset.mixup']}"
        )
    ks = fields.several(_among(num_classes, fields.SetSize()), increasing=True)
    _check_field(values, "eval.ks", ks)
    selectable = [one.name for one in metric.selectable(values["eval.ks"])]
    _check_field(values, "select_by", fields.one_of(selectable))


def check_classes(config: Mapping[str, Any], num_classes: int) -> None:
    """Raises `UserError` for the first size of sets that the number of classes does not allow.

    The opened data set may be the first to know that number.
    """
    values = dict(flatten(config))
    _check_shares(values, num_classes)
    try:
        for name, field in find_loss(values["loss.name"]).parameters.items():
            _check_field(values, f"loss.{name}", _among(num_classes, field))
        ks = fields.several(_among(num_classes, fields.SetSize()), increasing=True)
        _check_field(values, "eval.ks", ks)
    except UserError as error:
        raise UserError(f"{error}; {_fitting(values, num_classes)}") from error


def _fitting(values: Mapping[str, Any], num_classes: int) -> str:
    """The flags of sets that are not too large for the number of classes."""
    ks = [k for k in values["eval.ks"] if k < num_classes] or [1]
    listed = f"({ks[0]},)" if len(ks) == 1 else f"({','.join(map(str, ks))})"
    given = [f"--config.eval.ks='{listed}'", f"--config.select_by=top_{ks[-1]}_accuracy"]
    if values.get("loss.k", 0) >= num_classes:
        given.insert(0, f"--config.loss.k={num_classes - 1}")
    return f"for {num_classes} classes give {' '.join(given)}"


def _check_whole_batch(values: Mapping[str, Any]) -> None:
    """Raises `UserError` if something treats the examples of a loss of the whole batch singly."""
    name = values["loss.name"]
    unused = {
        "optimizer.accumulation_steps": 1,
        "dataset.mixup": 0,
        "loss.class_weights": "none",
    }
    for field, value in unused.items():
        if find_loss(name).of_batch and values[field] != value:
            raise UserError(
                f"config.{field} must be {value} with {name}, a loss of the whole batch; got "
                f"{values[field]}"
            )


def _check_class_weights(values: Mapping[str, Any]) -> None:
    """Raises `UserError` if class weights begin later in a run without class weights."""
    first = values["loss.class_weights_from"]
    if values["loss.class_weights"] == "none" and first != 0:
        raise UserError(
            "config.loss.class_weights_from must be 0 with config.loss.class_weights=none; got "
            f"{first}"
        )


def _check_class_devices(values: Mapping[str, Any]) -> None:
    """Raises `UserError` if devices share the classes and something needs all of them."""
    size = values["class_devices"]
    if size == 1 or (size is None and values["parallel"] != "mesh"):
        return
    if values["parallel"] != "mesh":
        raise UserError(
            f"config.class_devices must be 1 with config.parallel={values['parallel']}; it is for "
            f"mesh; got {size}"
        )
    name = values["loss.name"]
    if not find_loss(name).splits_classes:
        fitting = ", ".join(sorted(name for name, loss in LOSSES.items() if loss.splits_classes))
        raise UserError(
            f"config.class_devices must be 1 with {name}, which needs all classes on each device; "
            f"more are for {fitting}; got {size}"
        )
    optimizer = values["optimizer.name"]
    if optimizer in NEED_WHOLE_LAYERS:
        fitting = ", ".join(sorted(set(OPTIMIZERS) - set(NEED_WHOLE_LAYERS)))
        raise UserError(
            f"config.optimizer.name must be one of {fitting} with config.parallel=mesh, unless "
            f"config.class_devices is 1: else no device has the norm of the head; got {optimizer!r}"
        )


def _check_shares(values: Mapping[str, Any], num_classes: int | None) -> None:
    """Raises `UserError` unless the devices can share the classes, if known, equally."""
    size = values["class_devices"]
    if num_classes is not None and size is not None and num_classes % size:
        fewer = range(1, min(size, _MOST_SHOWN + 1))
        dividing = ", ".join(str(one) for one in fewer if num_classes % one == 0)
        raise UserError(
            f"config.class_devices must divide the number of classes, {num_classes}, such as "
            f"{dividing}; got {size}"
        )


def _check_label_smoothing(values: Mapping[str, Any]) -> None:
    """Raises `UserError` for smoothed labels with a loss that does not take them."""
    value = values["loss.label_smoothing"]
    if value != 0 and "label_smoothing" not in find_loss(values["loss.name"]).parameters:
        having = ", ".join(
            name for name, loss in LOSSES.items() if "label_smoothing" in loss.parameters
        )
        raise UserError(
            f"config.loss.label_smoothing must be 0 with {values['loss.name']}; it is for "
            f"{having}; got {value}"
        )


def _check_head(values: Mapping[str, Any]) -> None:
    """Raises `UserError` for a head that the loss cannot have, or scales that do not fit it."""
    loss = find_loss(values["loss.name"])
    chosen, scale = values["model.head"], values["model.scale"]
    if chosen is not None and loss.head not in ("linear", "cosine"):
        raise UserError(
            f"config.model.head must be None with {values['loss.name']}, whose head is of the kind "
            f"{loss.head}; got {chosen!r}"
        )
    takes_cosines = loss.head == "cosine"
    # Another loss may have a parameter of this name that means something else.
    of_loss = values.get("loss.scale") if takes_cosines and "scale" in loss.parameters else None
    is_cosine = (chosen or loss.head) == "cosine"
    if not is_cosine and scale is not None:
        raise UserError(f"config.model.scale must be None without a cosine head; got {scale}")
    if not is_cosine and of_loss not in (None, 1):
        raise UserError(
            "config.loss.scale must be 1 with a linear head, whose logits have any scale: margins "
            f"and noise are then in units of the logits; got {of_loss}"
        )
    if is_cosine and not takes_cosines and scale is None:
        raise UserError(
            f"config.model.scale must be a number with {values['loss.name']} and a cosine head, "
            "the factor of the cosines, such as 20; got None"
        )
    if scale is not None and of_loss not in (None, 1):
        raise UserError(
            f"config.loss.scale must be 1 with config.model.scale, {scale}, which scales the "
            f"cosines before the loss; got {of_loss}"
        )
    if values["model.learn_scale"] and scale is None:
        raise UserError(
            "config.model.learn_scale must be False without config.model.scale, which training "
            "starts from"
        )


def _check_fine_tuning(values: Mapping[str, Any]) -> None:
    """Raises `UserError` for fields of fine-tuning that exclude each other."""
    if values["model.start_from"] is not None and values["model.pretrained"] is not None:
        raise UserError(
            "config.model.start_from must be None with config.model.pretrained: a network starts "
            "from an earlier run or from a file of weights"
        )
    if values["model.new_head"] and not (values["model.start_from"] or values["model.pretrained"]):
        raise UserError(
            "config.model.new_head must be False without config.model.start_from and "
            "config.model.pretrained, where all layers start anew"
        )
    for name in ("head_learning_rate", "layer_decay"):
        value = values[f"optimizer.{name}"]
        if values["model.freeze"] and value is not None:
            raise UserError(
                f"config.optimizer.{name} must be None with config.model.freeze, where the head "
                f"alone is trained, with config.optimizer.learning_rate; got {value!r}"
            )


def _check_network(values: Mapping[str, Any], inputs: str) -> None:
    """Refuses a network that cannot take the examples, and fields that it does not have."""
    network = find_network(values["model.name"])
    if inputs not in network.inputs:
        fitting = [name for name, one in MODELS.items() if inputs in one.inputs]
        raise UserError(
            f"config.model.name must be one of {', '.join(fitting)} for {inputs}; got "
            f"{values['model.name']!r}"
        )
    for name in MODEL_OPTIONS:
        if values[f"model.{name}"] is not None and name not in network.options:
            having = ", ".join(one for one, spec in MODELS.items() if name in spec.options)
            raise UserError(
                f"config.model.{name} is for {having}; config.model.name is "
                f"{values['model.name']!r}"
            )


def _loss_fields(values: Mapping[str, Any]) -> Iterator[str]:
    """The fields of all losses of ours, and those of the loss of the configuration."""
    for loss in LOSSES.values():
        yield from (f"loss.{name}" for name in loss.parameters)
    name = values.get("loss.name")
    if LOSS_NAME(name) is None:
        yield from (f"loss.{parameter}" for parameter in find_loss(str(name)).parameters)


def _among(num_classes: int | None, field: fields.Field) -> fields.Field:
    """The field for that number of classes, where it is known and the field depends on it."""
    if num_classes is None or not isinstance(field, fields.SetSize):
        return field
    return field.among(num_classes)


def _check_field(values: Mapping[str, Any], name: str, field: fields.Field) -> None:
    if name not in values:
        raise UserError(f"config.{name} is missing")
    wrong = field(values[name])
    if wrong is not None:
        raise UserError(f"config.{name} must be {wrong}; got {values[name]!r}")
