"""What a training step needs from a loss, and how the program describes a loss."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from msgspec import Meta

from topk_jax.taxonomy import Taxonomy
from train.data.truths import ONE, SEVERAL, VOTES
from train.models.heads import TwoLogits
from train.training import truth
from train.training.truth import Truth

# Parameters that are real numbers, or arrays of them, by name. They are inputs of the compiled
# steps, so that other values do not make another program; integers such as K are constants.
Hyperparameters = dict[str, Any]

# Marks a float that the compiled steps have as a constant.
CONSTANT = Meta(title="a constant")
# The parameter of losses that estimate the labels of training examples.
_LABEL_RATE = "label_learning_rate"
# The functions from logits to scores, by the names that `config.eval.scores` has for them.
_SCORES = {"softmax": jax.nn.softmax, "sigmoid": jax.nn.sigmoid}


@dataclass(frozen=True)
class Objective:
    """A loss with its parameters, as functions of outputs and labels.

    Outputs are what the head returns: logits [n, L], or two of them.

    Attributes:
        loss: takes outputs, labels [n] (see `takes_targets`), random keys [n], one per example, and
            the logits [n, L] of the estimated labels, None if labels are not estimated. It returns
            losses [n], or one loss for the global batch on all devices.
        evaluation_loss: takes outputs and labels [n] and returns losses [n]. It is deterministic,
            so that the losses of two epochs differ only by the parameters. For a loss of a global
            batch it treats each example as a batch of its own, so that the value does not depend on
            how a split is divided into batches.
        scores: takes outputs and returns the scores [n, L] that sets are made of.
        takes_targets: whether both losses take a row over the classes for each example, [n, L],
            in place of its label.
    """

    loss: Callable[[Any, jax.Array, jax.Array, jax.Array | None], jax.Array]
    evaluation_loss: Callable[[Any, jax.Array], jax.Array]
    scores: Callable[[Any], jax.Array] = jax.nn.softmax
    takes_targets: bool = False

    def of_examples(
        self,
        outputs: Any,
        examples: Truth,
        keys: jax.Array,
        estimates: jax.Array | None,
        weigh: Callable[[jax.Array, jax.Array], jax.Array] = lambda losses, _labels: losses,
    ) -> jax.Array:
        """The losses of examples, or the loss of a batch, whatever their truth is.

        Args:
            outputs: what the head returns.
            examples: their truth.
            keys: see `loss`.
            estimates: see `loss`.
            weigh: the losses [n] of labels [n], weighted by these.
        """
        if self.takes_targets:
            rows = truth.targets(examples, class_logits(outputs).shape[-1])
            losses = self.loss(outputs, rows, keys, estimates)
            return truth.expect(lambda labels: weigh(losses, labels), examples)
        return truth.expect(
            lambda labels: weigh(self.loss(outputs, labels, keys, estimates), labels), examples
        )

    def evaluation_losses(self, outputs: Any, examples: Truth) -> jax.Array:
        """The losses [n] in evaluation, whatever the truth of the examples is."""
        if self.takes_targets:
            rows = truth.targets(examples, class_logits(outputs).shape[-1])
            return self.evaluation_loss(outputs, rows)
        return truth.expect(lambda labels: self.evaluation_loss(outputs, labels), examples)


@dataclass(frozen=True)
class LossSpec:
    """A loss of the program, described in one place.

    Attributes:
        title: the name in tables, figures and messages.
        build: makes the objective from the parameters, by name. A loss of the global batch also
            gets `axis_name`, the axis over the devices that it is on; None if it has all of it.
        parameters: the fields that the loss has in `config.loss`, with their types, which can have
            bounds, such as `Annotated[float, Meta(gt=0)]` of msgspec. Floats are inputs of the
            compiled steps, unless `CONSTANT` is among their bounds.
        derive: replaces parameters by what is computed from them and the class counts [L], before
            they reach `build`.
        head: the name of the model's head if `config.model.head` is None. A loss with the
            head "cosine" takes cosines; its parameter `scale`, if it has one, multiplies them.
        of_batch: whether the loss couples the examples of the global batch, on all devices.
        optimizes_top_k: whether the loss is made for the top-K accuracy of its own K.
        scores: the allowed values of `config.eval.scores`.
        needs_taxonomy: whether `build` gets the `taxonomy` of the classes.
        by_class: whether `derive` makes a parameter with a number for each class.
        truths: what the truth of an example may be, values of `config.dataset.labels`.
        of_rows: whether the objective takes a row over the classes for each example; see
            `Objective.takes_targets`.
    """

    title: str
    build: Callable[..., Objective]
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derive: Callable[[Hyperparameters, np.ndarray], Hyperparameters] = (
        lambda hyperparameters, _class_counts: hyperparameters
    )
    head: str = "linear"
    of_batch: bool = False
    optimizes_top_k: bool = False
    scores: tuple[str, ...] = ("softmax",)
    needs_taxonomy: bool = False
    by_class: bool = False
    truths: tuple[str, ...] = (ONE, VOTES, SEVERAL)
    of_rows: bool = False

    def __post_init__(self) -> None:
        if self.optimizes_top_k and not self.has_k:
            raise ValueError(f"parameters of {self.title} must have k, because it optimizes top-K")

    @property
    def has_k(self) -> bool:
        """Whether the loss has a K of its own."""
        return "k" in self.parameters

    @property
    def has_ranks(self) -> bool:
        """Whether it can be computed at every rank of a taxonomy, as of classes."""
        of_labels = not (self.of_batch or self.by_class or self.of_rows)
        is_plain = self.head == "linear" and of_labels
        return is_plain and not self.needs_taxonomy and ONE in self.truths

    @property
    def estimates_labels(self) -> bool:
        """Whether the labels of the training examples are estimated beside the network."""
        return _LABEL_RATE in self.parameters

    def label_rate_ratio(self, values: Mapping[str, Any], learning_rate: float) -> np.float32:
        """The rate of the estimated labels in units of the network's; see `estimates_labels`."""
        # Divided in 64 bits and rounded once.
        return np.float32(values[_LABEL_RATE] / learning_rate)

    def hyperparameters(
        self, values: Mapping[str, Any], class_counts: np.ndarray
    ) -> Hyperparameters:
        """The parameters among these values that are inputs of the compiled steps."""
        inputs = {
            name: np.float32(values[name])
            for name, kind in self.parameters.items()
            if _is_input(kind)
        }
        # A trace may be the first that asks for them.
        with jax.ensure_compile_time_eval():
            return self.derive(inputs, class_counts)

    def objective(
        self,
        values: Mapping[str, Any],
        hyperparameters: Hyperparameters,
        *,
        axis_name: str | None = None,
        scores: str = "softmax",
        taxonomy: Taxonomy | None = None,
    ) -> Objective:
        """The objective.

        Args:
            values: the parameters in `config.loss`; those that are constants are used.
            hyperparameters: what the method `hyperparameters` returned; they may be traced.
            axis_name: the axis over devices; None if the batch is global.
            scores: `config.eval.scores`.
            taxonomy: the tree of the classes, if there is one.
        """
        constants = {
            name: values[name] for name, kind in self.parameters.items() if not _is_input(kind)
        }
        further: dict[str, Any] = {"axis_name": axis_name} if self.of_batch else {}
        if self.needs_taxonomy:
            further["taxonomy"] = taxonomy
        objective = self.build(**constants, **hyperparameters, **further)
        if scores == "softmax":
            return objective
        score = _SCORES[scores]
        return dataclasses.replace(objective, scores=lambda outputs: score(class_logits(outputs)))


def _is_input(kind: Any) -> bool:
    """Whether values of a kind are inputs of the compiled steps."""
    is_float = kind is float or getattr(kind, "__origin__", None) is float
    return is_float and CONSTANT not in getattr(kind, "__metadata__", ())


def class_logits(outputs: jax.Array | TwoLogits) -> jax.Array:
    """The logits [n, L] that rank the classes, for either kind of outputs."""
    return outputs.logits if isinstance(outputs, TwoLogits) else outputs
