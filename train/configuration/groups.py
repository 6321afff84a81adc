"""The configuration of a run, in groups of fields."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from train.configuration.datasets import DatasetFields
from train.configuration.declaring import field
from train.foundation import kinds

# No memory holds a layer of more units, and JAX miscounts the bytes of much larger layers.
MOST_WIDTH = 10**9
# Each layer is compiled several times: a hundred of them in a minute or two on two cores.
MOST_DEPTH = 100
# Fields of `config.model` that only some networks have. None is the default of the network.
MODEL_OPTIONS = ("width", "depth", "dropout", "stochastic_depth")


@dataclass(frozen=True, kw_only=True)
class ModelFields:
    """The fields of `config.model`."""

    name: str = field("A network, or the import path of a `ModelSpec`.")
    pretrained: str | None = field("A publisher's file of weights.", default=None)
    start_from: str | None = field(
        "The workdir of a finished run of the same network.", default=None
    )
    normalization: Literal["imagenet", "halves", "clip", "dataset"] | None = field(
        "Of images; `halves`: [-1, 1]. None: as the weights expect, else `dataset`.", default=None
    )
    freeze: bool = field("Only the head is trained.", default=False)
    normalize_features: bool = field(
        "Normalizes a frozen network's features below a new linear head.", default=True
    )
    new_head: bool = field("The head starts from random weights, not from the file.", default=False)
    # Two heads belong to the losses that need them.
    head: Literal["linear", "cosine"] | None = field(
        "None: the usual head of the loss.", default=None
    )
    scale: float | None = field(
        "The factor of a cosine head. `ldam` and imbalanced losses: `loss.scale`.",
        default=None,
        gt=0,
    )
    learn_scale: bool = field("Trains that factor.", default=False)
    sync_batch_norm: bool = field(
        "Batch norm uses the batch of all devices, not its share.", default=True
    )
    half_precision: bool = field(
        "The network computes in bfloat16; parameters, statistics and losses are float32.",
        default=False,
    )
    remat: bool = field(
        "Computes activations again in the backward pass: less memory, more time.",
        default=False,
        of_machine=True,
    )
    width: int | None = field(
        "Units of a hidden layer of `mlp`. None: 256.", default=None, ge=1, le=MOST_WIDTH
    )
    depth: int | None = field("Hidden layers of `mlp`. None: 2.", default=None, ge=1, le=MOST_DEPTH)
    dropout: float | None = field(
        "The probability that a unit is dropped. None: the network's own.", default=None, ge=0, lt=1
    )
    stochastic_depth: float | None = field(
        "The probability for the last residual branch. None: the published one.",
        default=None,
        ge=0,
        lt=1,
    )

    @property
    def options(self) -> dict[str, Any]:
        """The fields of `MODEL_OPTIONS` that are not the network's own default."""
        values = {name: getattr(self, name) for name in MODEL_OPTIONS}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class LossFields:
    """The fields of `config.loss`.

    Attributes:
        of_losses: the parameters that the `LossSpec` of the loss declares, and parameters of other
            losses, which a recipe may have.
    """

    name: str = field(
        "One of [these losses](#parameters-of-losses), or the import path of a `LossSpec`."
    )
    label_smoothing: float = field(
        "The share of a label that is spread over all classes, for `cross_entropy`.",
        default=0.0,
        ge=0,
        lt=1,
        is_input=True,
    )
    rank_weights: tuple[kinds.NOT_NEGATIVE, ...] = field(
        "The loss at each rank of the taxonomy, top to classes. Empty: only classes.", default=()
    )
    class_weights: Literal["none", "class_balanced"] = field(
        "`class_balanced` gives rare classes more weight; `none` does not.", default="none"
    )
    class_weights_beta: float = field(
        "0: equal weights. Towards 1: inverse frequencies.",
        default=0.9999,
        ge=0,
        lt=1,
        is_input=True,
    )
    class_weights_from: float = field(
        "The share of the epochs before the weights apply; 0.8 is deferred.",
        default=0.0,
        ge=0,
        lt=1,
        is_input=True,
    )
    of_losses: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of losses, by the names that a `LossSpec` has for them."""
        return {"label_smoothing": self.label_smoothing, **self.of_losses}


@dataclass(frozen=True, kw_only=True)
class OptimizerFields:
    """The fields of `config.optimizer`."""

    learning_rate: float = field("The rate after the warm-up.", gt=0, is_input=True)
    name: Literal["sgd", "adamw", "lamb", "lars", "lion", "rmsprop"] = field(
        "The optimizer.", default="sgd"
    )
    head_learning_rate: float | None = field(
        "The head's rate. None: `learning_rate`.", default=None, gt=0, is_input=True
    )
    layer_decay: float | None = field(
        "The rate's factor from each layer to the one below. None: 1.",
        default=None,
        gt=0,
        le=1,
        is_input=True,
    )
    momentum: float = field(
        "The decay of the first moment, also for Adam's kind.",
        default=0.9,
        ge=0,
        lt=1,
        is_input=True,
    )
    nesterov: bool = field("Nesterov's momentum, for sgd, lars and rmsprop.", default=True)
    beta2: float | None = field(
        "The second moment's decay, for adamw, lamb, lion, rmsprop. None: the optimizer's own.",
        default=None,
        ge=0,
        lt=1,
        is_input=True,
    )
    weight_decay: float = field("The weight decay.", ge=0, is_input=True)
    decay_biases_and_norms: bool = field(
        "Weight decay also for biases and scales of norms.", default=True
    )
    schedule: Literal["step", "cosine"] = field(
        "`step` uses the next two fields, `cosine` decays to 0.", default="step"
    )
    decay_epochs: tuple[kinds.COUNT, ...] = field(
        "The epochs, from 0, at whose start the rate decays.", default=()
    )
    decay_factor: float = field("The factor of the rate there.", default=0.1, gt=0)
    warmup_epochs: float = field(
        "The epochs, also a fraction, while the rate rises from almost 0.", default=0.0, ge=0
    )
    clip_norm: float | None = field(
        "The largest norm of the gradient. None: no limit.", default=None, gt=0, is_input=True
    )
    accumulation_steps: int = field(
        "Parts of a batch, one after another; 1 for losses of the whole batch.", default=1, ge=1
    )
    average_decay: float | None = field(
        "The decay of averaged parameters, which are evaluated. None: no average.",
        default=None,
        ge=0,
        lt=1,
        is_input=True,
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationFields:
    """The fields of `config.eval`."""

    ks: tuple[kinds.SET_SIZE, ...] = field("The sizes of sets.", min_length=1)
    scores: Literal["softmax", "sigmoid"] = field(
        "`sigmoid` is for multi-label losses.", default="softmax"
    )
    temperature: bool = field(
        "Divides a finished run's logits by a temperature, fitted on validation.", default=False
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointFields:
    """The fields of `config.checkpoint`: checkpoints beside the one at the end of each epoch."""

    every_steps: int | None = field(
        "Steps between checkpoints. None: no such checkpoints.", default=None, ge=1, of_machine=True
    )
    every_minutes: float = field(
        "Minutes between checkpoints.", default=10.0, gt=0, of_machine=True
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration of a run."""

    dataset: DatasetFields
    model: ModelFields
    optimizer: OptimizerFields
    loss: LossFields
    eval: EvaluationFields
    checkpoint: CheckpointFields
    seed: int = field("The seed of everything that is random.", ge=0, le=2**32 - 1, is_input=True)
    num_epochs: int = field("The epochs of training.", ge=1)
    stop_after: int | None = field(
        "Epochs without improvement that stop training. None: never.", default=None, ge=1
    )
    select_by: str = field("The metric on validation that selects the epoch.")
    parallel: Literal["pmap", "mesh", "fsdp"] = field(
        "Devices split the batch; `mesh` can also split the classes, and `fsdp` the parameters.",
        default="pmap",
        of_machine=True,
    )
    class_devices: int | None = field(
        "Devices that share the classes (`mesh`, `fsdp`). None: as many as possible; 1 with "
        "`fsdp`.",
        default=None,
        ge=1,
        of_machine=True,
    )
    compilation_cache: bool = field(
        "Keeps compiled programs in the user's cache folder.", default=True, of_machine=True
    )
    trackers: tuple[Literal["mlflow", "wandb"], ...] = field(
        "`mlflow`, `wandb` or both; their environment variables set where.",
        default=(),
        of_machine=True,
    )

    def to_plain(self) -> dict[str, Any]:
        """The configuration as `config.json` has it."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        plain["loss"] |= plain["loss"].pop("of_losses")
        return plain
