"""The configuration of a run, in groups of fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from train.configuration.datasets import DatasetFields
from train.configuration.declaring import field, plain, rest
from train.foundation.fields import Number, SetSize, integer, one_of, several

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
        "Of images; `halves`: [-1, 1]. None: as the weights expect, else `dataset`.",
        default=None,
    )
    freeze: bool = field(
        "Only the head is trained.",
        default=False,
    )
    normalize_features: bool = field(
        "Normalizes a frozen network's features below a new linear head.",
        default=True,
    )
    new_head: bool = field(
        "The head starts from random weights, not from the file.",
        default=False,
    )
    # Two heads belong to the losses that need them.
    head: Literal["linear", "cosine"] | None = field(
        "None: the usual head of the loss.", default=None
    )
    scale: float | None = field(
        "The factor of a cosine head. `ldam` and imbalanced losses: `loss.scale`.",
        Number(above=0),
        default=None,
    )
    learn_scale: bool = field("Trains that factor.", default=False)
    sync_batch_norm: bool = field(
        "Batch norm uses the batch of all devices, not its share.",
        default=True,
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
        "Units of a hidden layer of `mlp`. None: 256.", integer(1, MOST_WIDTH), default=None
    )
    depth: int | None = field(
        "Hidden layers of `mlp`. None: 2.", integer(1, MOST_DEPTH), default=None
    )
    dropout: float | None = field(
        "The probability that a unit is dropped. None: the network's own.",
        Number(at_least=0, below=1),
        default=None,
    )
    stochastic_depth: float | None = field(
        "The probability for the last residual branch. None: the published one.",
        Number(at_least=0, below=1),
        default=None,
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
        Number(at_least=0, below=1),
        default=0.0,
        is_input=True,
    )
    rank_weights: tuple[float, ...] = field(
        "The loss at each rank of the taxonomy, top to classes. Empty: only classes.",
        several(Number(at_least=0), empty=True),
        default=(),
    )
    class_weights: Literal["none", "class_balanced"] = field(
        "`class_balanced` gives rare classes more weight; `none` does not.", default="none"
    )
    class_weights_beta: float = field(
        "0: equal weights. Towards 1: inverse frequencies.",
        Number(at_least=0, below=1),
        default=0.9999,
        is_input=True,
    )
    class_weights_from: float = field(
        "The share of the epochs before the weights apply; 0.8 is deferred.",
        Number(at_least=0, below=1),
        default=0.0,
        is_input=True,
    )
    of_losses: Mapping[str, Any] = rest()

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of losses, by the names that a `LossSpec` has for them."""
        return {"label_smoothing": self.label_smoothing, **self.of_losses}


@dataclass(frozen=True, kw_only=True)
class OptimizerFields:
    """The fields of `config.optimizer`."""

    learning_rate: float = field("The rate after the warm-up.", Number(above=0), is_input=True)
    name: str = field("The optimizer.", default="sgd")
    head_learning_rate: float | None = field(
        "The head's rate. None: `learning_rate`.",
        Number(above=0),
        default=None,
        is_input=True,
    )
    layer_decay: float | None = field(
        "The rate's factor from each layer to the one below. None: 1.",
        Number(above=0, at_most=1),
        default=None,
        is_input=True,
    )
    momentum: float = field(
        "The decay of the first moment, also for Adam's kind.",
        Number(at_least=0, below=1),
        default=0.9,
        is_input=True,
    )
    nesterov: bool = field("Nesterov's momentum, for sgd, lars and rmsprop.", default=True)
    beta2: float | None = field(
        "The second moment's decay, for adamw, lamb, lion, rmsprop. None: the optimizer's own.",
        Number(at_least=0, below=1),
        default=None,
        is_input=True,
    )
    weight_decay: float = field("The weight decay.", Number(at_least=0), is_input=True)
    decay_biases_and_norms: bool = field(
        "Weight decay also for biases and scales of norms.", default=True
    )
    schedule: Literal["step", "cosine"] = field(
        "`step` uses the next two fields, `cosine` decays to 0.",
        default="step",
    )
    decay_epochs: tuple[int, ...] = field(
        "The epochs, from 0, at whose start the rate decays.",
        several(integer(1), empty=True, increasing=True),
        default=(),
    )
    decay_factor: float = field("The factor of the rate there.", Number(above=0), default=0.1)
    warmup_epochs: float = field(
        "The epochs, also a fraction, while the rate rises from almost 0.",
        Number(at_least=0),
        default=0.0,
    )
    clip_norm: float | None = field(
        "The largest norm of the gradient. None: no limit.",
        Number(above=0),
        default=None,
        is_input=True,
    )
    accumulation_steps: int = field(
        "Parts of a batch, one after another; 1 for losses of the whole batch.",
        integer(1),
        default=1,
    )
    average_decay: float | None = field(
        "The decay of averaged parameters, which are evaluated. None: no average.",
        Number(at_least=0, below=1),
        default=None,
        is_input=True,
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationFields:
    """The fields of `config.eval`."""

    ks: tuple[int, ...] = field("The sizes of sets.", several(SetSize(), increasing=True))
    scores: str = field(
        "`softmax`, or `sigmoid` for multi-label losses.",
        default="softmax",
    )
    temperature: bool = field(
        "Divides a finished run's logits by a temperature, fitted on validation.",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointFields:
    """The fields of `config.checkpoint`: checkpoints beside the one at the end of each epoch."""

    every_steps: int | None = field(
        "Steps between checkpoints. None: no such checkpoints.",
        integer(1),
        default=None,
        of_machine=True,
    )
    every_minutes: float = field(
        "Minutes between checkpoints.", Number(above=0), default=10.0, of_machine=True
    )


def _epochs_and_steps(value: Any) -> str | None:
    wrong = several(integer(0))(value)
    return wrong or (None if len(value) == 2 else "two integers")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration of a run."""

    dataset: DatasetFields
    model: ModelFields
    optimizer: OptimizerFields
    loss: LossFields
    eval: EvaluationFields
    checkpoint: CheckpointFields
    seed: int = field(
        "The seed of everything that is random.", integer(0, 2**32 - 1), is_input=True
    )
    num_epochs: int = field("The epochs of training.", integer(1))
    stop_after: int | None = field(
        "Epochs without improvement that stop training. None: never.",
        integer(1),
        default=None,
    )
    select_by: str = field("The metric on validation that selects the epoch.")
    parallel: Literal["pmap", "shard_map", "mesh", "fsdp"] = field(
        "Devices split the batch; `mesh` can also split the classes, and `fsdp` the parameters.",
        default="pmap",
        of_machine=True,
    )
    class_devices: int | None = field(
        "Devices that share the classes (`mesh`, `fsdp`). None: as many as possible; 1 with "
        "`fsdp`.",
        integer(1),
        default=None,
        of_machine=True,
    )
    compilation_cache: bool = field(
        "Keeps compiled programs in the user's cache folder.",
        default=True,
        of_machine=True,
    )
    trackers: tuple[str, ...] = field(
        "`mlflow`, `wandb` or both; their environment variables set where.",
        several(one_of(("mlflow", "wandb")), empty=True),
        default=(),
        of_machine=True,
    )
    # For each extension, the epochs of the run before it, and the steps that were made. With a
    # cosine schedule, with class weights that start late, or with a warm-up that was cut to half of
    # the run, these steps differ from the steps of a run that was started with more epochs.
    extensions: tuple[tuple[int, int], ...] = field(
        "The epochs and the steps that the run had before each extension.",
        several(_epochs_and_steps),
        default=(),
        in_recipes=False,
    )

    def to_plain(self) -> dict[str, Any]:
        """The configuration as `config.json` has it."""
        return plain(self)
