"""The configuration of a run, in groups of fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from train.configuration.datasets import DatasetFields
from train.configuration.declaring import field, plain, rest
from train.foundation.fields import Number, SetSize, integer, one_of, one_or, several

# No memory holds a layer of more units, and JAX miscounts the bytes of much larger layers.
MOST_WIDTH = 10**9
# Each layer is compiled several times: a hundred of them in a minute or two on two cores.
MOST_DEPTH = 100
# The crops of an image that an evaluation may average over.
TEN_CROPS = 10
# Fields of `config.model` that only some networks have. None is the default of the network.
MODEL_OPTIONS = ("width", "depth", "dropout", "stochastic_depth")


@dataclass(frozen=True, kw_only=True)
class ModelFields:
    """The fields of `config.model`."""

    name: str = field("The network: a name, or the import path of a `ModelSpec`.")
    pretrained: str | None = field(
        "A file of weights with the names of one of its publishers.", default=None
    )
    start_from: str | None = field(
        "The workdir of a finished run of the same network to start from.", default=None
    )
    normalization: Literal["imagenet", "halves", "clip", "dataset"] | None = field(
        "How images are normalized: by the mean and deviation of the data set (`dataset`) or of "
        "ImageNet's images (`imagenet`), to values from -1 to 1 (`halves`), or as for CLIP "
        "(`clip`). None for what the weights of `pretrained` or `start_from` expect, and for "
        "`dataset` without weights.",
        default=None,
    )
    freeze: bool = field(
        "Whether the network below the head stays as it is, and only the head is trained.",
        default=False,
    )
    normalize_features: bool = field(
        "Whether the features of a frozen network are normalized below a new linear head, so that "
        "one rate fits every network.",
        default=True,
    )
    new_head: bool = field(
        "Whether the head starts from random weights if `pretrained` or `start_from` has one.",
        default=False,
    )
    # Two heads belong to the losses that need them.
    head: Literal["linear", "cosine"] | None = field(
        "The kind of the head. None for the head that the loss usually has.", default=None
    )
    scale: float | None = field(
        "The factor of the cosines of a cosine head. None for ldam and the imbalanced losses, "
        "whose `loss.scale` is this factor.",
        Number(above=0),
        default=None,
    )
    learn_scale: bool = field("Whether that factor is trained.", default=False)
    sync_batch_norm: bool = field(
        "Whether batch norm uses the batch of all devices. If not, it uses the share of a device.",
        default=True,
    )
    half_precision: bool = field(
        "Whether the network computes in bfloat16. Parameters, statistics and losses are float32.",
        default=False,
    )
    remat: bool = field(
        "Whether the backward pass computes the activations inside blocks again. Training then "
        "needs less memory and more time.",
        default=False,
        of_machine=True,
    )
    width: int | None = field(
        "The units of each hidden layer of `mlp` (256 by default), or the features of `ngram_bag` "
        "(64 by default).",
        integer(1, MOST_WIDTH),
        default=None,
    )
    depth: int | None = field(
        "The number of hidden layers of `mlp`, 2 by default.", integer(1, MOST_DEPTH), default=None
    )
    dropout: float | None = field(
        "The probability that a unit is set to 0 in training. None for the network's own.",
        Number(at_least=0, below=1),
        default=None,
    )
    stochastic_depth: float | None = field(
        "How often the last residual branch is left out in training, and earlier ones less often. "
        "None for the published network's own.",
        Number(at_least=0, below=1),
        default=None,
    )
    tau_normalized: float | None = field(
        "The tau by which train.export has normalized the head.",
        Number(at_least=0),
        default=None,
        in_recipes=False,
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

    name: str = field("The loss: a name, or the import path of a `LossSpec`.")
    label_smoothing: float = field(
        "The part of each label that is spread over all classes. For cross_entropy.",
        Number(at_least=0, below=1),
        default=0.0,
        is_input=True,
    )
    rank_weights: tuple[float, ...] = field(
        "The weights of the loss at each rank of the taxonomy, from the top down to the classes: "
        "(0.25, 0.5, 1.0) for family, genus and species. Empty for the classes alone.",
        several(Number(at_least=0), empty=True),
        default=(),
    )
    class_weights: Literal["none", "class_balanced"] = field(
        "`class_balanced` gives the training losses of rare classes more weight.", default="none"
    )
    class_weights_beta: float = field(
        "0 weights all classes equally. Towards 1 the weight of a class is 1 / its number of "
        "examples.",
        Number(at_least=0, below=1),
        default=0.9999,
        is_input=True,
    )
    class_weights_from: float = field(
        "The fraction of the epochs after which the weights apply. 0.8 is deferred re-weighting.",
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

    learning_rate: float = field(
        "The learning rate after the warm-up.", Number(above=0), is_input=True
    )
    name: str = field("The optimizer.", default="sgd")
    head_learning_rate: float | None = field(
        "The learning rate of the head. None for `learning_rate`.",
        Number(above=0),
        default=None,
        is_input=True,
    )
    layer_decay: float | None = field(
        "Each layer has the rate of the next layer towards the head times this number. None for "
        "one rate.",
        Number(above=0, at_most=1),
        default=None,
        is_input=True,
    )
    momentum: float = field(
        "The decay of the first moment, also for optimizers like Adam.",
        Number(at_least=0, below=1),
        default=0.9,
        is_input=True,
    )
    nesterov: bool = field(
        "Whether the momentum is Nesterov's, for sgd, lars and rmsprop.", default=True
    )
    beta2: float | None = field(
        "The decay of the second moment, for adamw, lamb, lion and rmsprop. None for the "
        "optimizer's own.",
        Number(at_least=0, below=1),
        default=None,
        is_input=True,
    )
    weight_decay: float = field("The weight decay.", Number(at_least=0), is_input=True)
    decay_biases_and_norms: bool = field(
        "Whether the weight decay is also for biases and for the scales of norms.", default=True
    )
    schedule: Literal["step", "cosine"] = field(
        "`step` multiplies the rate by `decay_factor` at `decay_epochs`. `cosine` decays to 0.",
        default="step",
    )
    decay_epochs: tuple[int, ...] = field(
        "The epochs, from 0, at whose start the rate decays.",
        several(integer(1), empty=True, increasing=True),
        default=(),
    )
    decay_factor: float = field(
        "The factor of the rate at each of these epochs.", Number(above=0), default=0.1
    )
    warmup_epochs: float = field(
        "The epochs, possibly a fraction, in which the rate rises from almost 0.",
        Number(at_least=0),
        default=0.0,
    )
    clip_norm: float | None = field(
        "The largest norm of the gradient. None for no limit.",
        Number(above=0),
        default=None,
        is_input=True,
    )
    accumulation_steps: int = field(
        "The number of parts of a batch that are computed one after another, to save memory. It is "
        "1 for losses of the whole batch.",
        integer(1),
        default=1,
    )
    average_decay: float | None = field(
        "The decay of a moving average of the parameters, which is then evaluated. None for no "
        "average.",
        Number(at_least=0, below=1),
        default=None,
        is_input=True,
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationFields:
    """The fields of `config.eval`."""

    ks: tuple[int, ...] = field("The sizes of sets.", several(SetSize(), increasing=True))
    scores: str = field(
        "What sets are made of: `softmax`, or `sigmoid` for the multi-label losses, with a "
        "probability of its own for each class.",
        default="softmax",
    )
    temperature: bool = field(
        "Whether the logits are divided by a temperature that is fitted on validation, for the "
        "probabilities of the finished run.",
        default=False,
    )
    crops: int = field(
        "The crops of an image that the finished run is evaluated by: 1 for the middle, or 10 for "
        "four corners and the middle, each also mirrored.",
        one_or(TEN_CROPS),
        default=1,
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointFields:
    """The fields of `config.checkpoint`: checkpoints beside the one at the end of each epoch."""

    every_steps: int | None = field(
        "The steps between checkpoints. None for no such checkpoints.",
        integer(1),
        default=None,
        of_machine=True,
    )
    every_minutes: float = field(
        "The minutes between checkpoints.", Number(above=0), default=10.0, of_machine=True
    )


def _epochs_and_steps(value: Any) -> str | None:
    wrong = several(integer(0))(value)
    return wrong or (None if len(value) == 2 else "two whole numbers")


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
        "Training stops after this many epochs without improvement. None to never stop.",
        integer(1),
        default=None,
    )
    select_by: str = field("The metric on validation that selects the epoch.")
    parallel: Literal["pmap", "shard_map", "mesh"] = field(
        "How devices share the work: with `pmap` and `shard_map` all devices split the batch, with "
        "`mesh` they may also split the classes.",
        default="pmap",
        of_machine=True,
    )
    class_devices: int | None = field(
        "For `mesh`: the devices that share the classes of the head. None for as many as divide "
        "the devices of a process and the classes.",
        integer(1),
        default=None,
        of_machine=True,
    )
    compilation_cache: bool = field(
        "Whether compiled programs are kept in the user's cache folder for later runs.",
        default=True,
        of_machine=True,
    )
    trackers: tuple[str, ...] = field(
        "The services that also get the metrics of TensorBoard: `mlflow`, `wandb`, or both. Their "
        "own variables, such as `MLFLOW_TRACKING_URI` and `WANDB_API_KEY`, say where.",
        several(one_of(("mlflow", "wandb")), empty=True),
        default=(),
        of_machine=True,
    )
    # For each extension the epochs that the run had before it, and the steps that it had made. With
    # a cosine schedule, or with class weights that start late, these steps differ from a run that
    # was started with more epochs.
    extensions: tuple[tuple[int, int], ...] = field(
        "The epochs and the steps that the run had before each extension.",
        several(_epochs_and_steps),
        default=(),
        in_recipes=False,
    )

    def to_plain(self) -> dict[str, Any]:
        """The configuration as `config.json` has it."""
        return plain(self)
