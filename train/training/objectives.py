"""Losses by name: their parameters, the head they need, and how logits become a loss and scores."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from topk_jax import losses
from train.foundation import fields
from train.models.heads import TwoLogits

# Outputs of a head to the scores of the classes, by what `config.eval.scores` calls it.
_SCORES = {"softmax": jax.nn.softmax, "sigmoid": jax.nn.sigmoid}


@dataclass(frozen=True)
class Objective:
    """What a step needs of a loss. Outputs are what the head gives: logits [n, L], or two of them.

    Attributes:
        loss: outputs, labels [n], one random key an example [n] and the logits [n, L] of their
            estimated labels, None where none are estimated, to losses [n], or to that of the whole
            batch on all devices.
        evaluation_loss: outputs and labels [n] to losses [n], without randomness, so that the
            losses of two epochs differ by the parameters alone. Of the losses of a batch it is that
            of each example as a batch of its own, which does not depend on how a split is divided.
        scores: outputs to the scores that sets are made of, [n, L].
        label_learning_rate: the rate at which the labels of the training examples are estimated
            beside the network; None where they are not.
    """

    loss: Callable[[Any, jax.Array, jax.Array, jax.Array | None], jax.Array]
    evaluation_loss: Callable[[Any, jax.Array], jax.Array]
    scores: Callable[[Any], jax.Array] = jax.nn.softmax
    label_learning_rate: float | None = None


@dataclass(frozen=True)
class LossSpec:
    """A loss of the program.

    Attributes:
        build: makes the objective from the class counts of the training examples, [L], the
            parameters' values and, where the loss is one of the batch, the devices' `axis_name`.
        parameters: the fields of `config.loss` that it needs, each with what it may be, as a
            function of the number of classes.
        head: the name of the model's head.
        of_batch: whether the loss is one of the whole batch, on all devices.
        scores: what `config.eval.scores` may be.
    """

    build: Callable[..., Objective]
    parameters: Callable[[int], Mapping[str, fields.Field]] = lambda _num_classes: {}
    head: str = "linear"
    of_batch: bool = False
    scores: tuple[str, ...] = ("softmax",)

    def objective(
        self,
        config: Mapping[str, Any],
        class_counts: np.ndarray,
        *,
        axis_name: str,
        scores: str = "softmax",
    ) -> Objective:
        """The objective with the parameters that `config.loss` gives."""
        parameters = {name: config[name] for name in self.parameters(len(class_counts))}
        if self.of_batch:
            parameters["axis_name"] = axis_name
        objective = self.build(class_counts, **parameters)
        if scores == "softmax":
            return objective
        score = _SCORES[scores]
        return dataclasses.replace(objective, scores=lambda outputs: score(label_logits(outputs)))


def label_logits(outputs: jax.Array | TwoLogits) -> jax.Array:
    """The logits [n, L] that say which labels an example has."""
    return outputs.logits if isinstance(outputs, TwoLogits) else outputs


def _plain(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Builds the objective of a loss that takes logits, labels and its parameters."""

    def build(_class_counts: np.ndarray, **parameters: Any) -> Objective:
        return _without_randomness(functools.partial(loss, **parameters))

    return build


def _ldam(class_counts: np.ndarray, max_margin: float, scale: float) -> Objective:
    margins = losses.class_margins(class_counts, max_margin=max_margin)
    loss = functools.partial(losses.ldam, margins=margins, scale=scale)
    return _without_randomness(loss, _scaled_softmax(scale))


def _noised_balanced(
    _class_counts: np.ndarray, k: int, epsilon: float, num_samples: int
) -> Objective:
    return _noised(num_samples, jax.nn.softmax, k=k, epsilon=epsilon)


def _noised_imbalanced(
    class_counts: np.ndarray,
    k: int,
    epsilon: float,
    num_samples: int,
    max_margin: float,
    scale: float,
) -> Objective:
    margins = losses.class_margins(class_counts, max_margin=max_margin)
    return _noised(
        num_samples, _scaled_softmax(scale), k=k, epsilon=epsilon, margins=margins, scale=scale
    )


def _expected_imbalanced(
    class_counts: np.ndarray, k: int, epsilon: float, max_margin: float, scale: float
) -> Objective:
    margins = losses.class_margins(class_counts, max_margin=max_margin)
    loss = functools.partial(
        losses.expected_top_k_hinge, k=k, epsilon=epsilon, margins=margins, scale=scale
    )
    return _without_randomness(loss, _scaled_softmax(scale))


def _expected_positive_regularization(
    _class_counts: np.ndarray, k: int, beta: float, axis_name: str
) -> Objective:
    loss = functools.partial(
        losses.expected_positive_regularization, expected_positives=float(k), beta=beta
    )
    return _of_batch(loss, axis_name)


def _average_k(_class_counts: np.ndarray, k: int, alpha: float, axis_name: str) -> Objective:
    def loss(outputs: TwoLogits, labels: jax.Array, axis_name: str | None = None) -> jax.Array:
        return losses.average_k(
            outputs.logits, outputs.proposal_logits, labels, k=k, alpha=alpha, axis_name=axis_name
        )

    return _of_batch(loss, axis_name)


def _role(
    _class_counts: np.ndarray, k: int, weight: float, label_learning_rate: float, axis_name: str
) -> Objective:
    settings = {"expected_positives": float(k)}

    def loss(logits: jax.Array, labels: jax.Array, _keys: jax.Array, estimates: Any) -> jax.Array:
        return losses.role(
            logits, estimates, labels, weight=weight, axis_name=axis_name, **settings
        )

    # Nobody estimates the labels of other examples: what is left is the network's own part.
    networks_part = functools.partial(
        losses.expected_positive_regularization, beta=weight, **settings
    )
    return dataclasses.replace(
        _of_batch(networks_part, axis_name), loss=loss, label_learning_rate=label_learning_rate
    )


def _of_batch(loss: Callable[..., jax.Array], axis_name: str) -> Objective:
    def of_example(outputs: Any, label: jax.Array) -> jax.Array:
        return loss(jax.tree.map(lambda array: array[None], outputs), label[None])

    return Objective(
        lambda outputs, labels, _keys, _estimates: loss(outputs, labels, axis_name=axis_name),
        jax.vmap(of_example),
        lambda outputs: jax.nn.softmax(label_logits(outputs)),
    )


def _noised(
    num_samples: int, scores: Callable[[jax.Array], jax.Array], **settings: Any
) -> Objective:
    def loss(
        logits: jax.Array, labels: jax.Array, keys: jax.Array, _estimates: jax.Array | None
    ) -> jax.Array:
        return losses.noised_top_k_hinge(
            logits, labels, num_samples=num_samples, key=keys, **settings
        )

    return Objective(loss, functools.partial(losses.expected_top_k_hinge, **settings), scores)


def _without_randomness(
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    scores: Callable[[jax.Array], jax.Array] = jax.nn.softmax,
) -> Objective:
    return Objective(lambda logits, labels, _keys, _estimates: loss(logits, labels), loss, scores)


def _scaled_softmax(scale: float) -> Callable[[jax.Array], jax.Array]:
    """Probabilities from cosines, which differ by at most 2."""
    return lambda cosines: jax.nn.softmax(scale * cosines)


def _k(num_classes: int) -> dict[str, fields.Field]:
    return {"k": fields.integer(1, num_classes - 1, "one less than the classes of the data set")}


def _mean_size(num_classes: int) -> dict[str, fields.Field]:
    return {"k": fields.integer(1, num_classes, "the classes of the data set")}


def _smoothed_hinge(num_classes: int) -> dict[str, fields.Field]:
    return {**_k(num_classes), "epsilon": fields.number(at_least=0)}


def _noised_hinge(num_classes: int) -> dict[str, fields.Field]:
    return {**_smoothed_hinge(num_classes), "num_samples": fields.integer(1)}


def _margins(_num_classes: int) -> dict[str, fields.Field]:
    return {"max_margin": fields.number(at_least=0), "scale": fields.number(above=0)}


# Each class can be given a probability of its own.
_MULTI_LABEL = ("softmax", "sigmoid")

LOSSES = {
    "cross_entropy": LossSpec(_plain(losses.cross_entropy)),
    "focal": LossSpec(_plain(losses.focal), lambda _: {"gamma": fields.number(at_least=0)}),
    "ldam": LossSpec(_ldam, _margins, head="cosine"),
    "top_k_hinge": LossSpec(_plain(losses.top_k_hinge), _k),
    "convex_top_k_hinge": LossSpec(_plain(losses.convex_top_k_hinge), _k),
    "calibrated_top_k_hinge": LossSpec(_plain(losses.calibrated_top_k_hinge), _k),
    "smooth_top_k_hinge": LossSpec(
        _plain(losses.smooth_top_k_hinge),
        lambda num_classes: {**_k(num_classes), "tau": fields.number(above=0)},
    ),
    "noised_balanced": LossSpec(_noised_balanced, _noised_hinge),
    "noised_imbalanced": LossSpec(
        _noised_imbalanced,
        lambda num_classes: {**_noised_hinge(num_classes), **_margins(num_classes)},
        head="cosine",
    ),
    "expected_balanced": LossSpec(_plain(losses.expected_top_k_hinge), _smoothed_hinge),
    "expected_imbalanced": LossSpec(
        _expected_imbalanced,
        lambda num_classes: {**_smoothed_hinge(num_classes), **_margins(num_classes)},
        head="cosine",
    ),
    "assume_negative": LossSpec(_plain(losses.assume_negative), scores=_MULTI_LABEL),
    "expected_positive_regularization": LossSpec(
        _expected_positive_regularization,
        lambda num_classes: {**_mean_size(num_classes), "beta": fields.number(at_least=0)},
        of_batch=True,
        scores=_MULTI_LABEL,
    ),
    "average_k": LossSpec(
        _average_k,
        lambda num_classes: {**_mean_size(num_classes), "alpha": fields.number(at_least=0)},
        head="two_heads",
        of_batch=True,
        scores=_MULTI_LABEL,
    ),
    "role": LossSpec(
        _role,
        lambda num_classes: {
            **_mean_size(num_classes),
            "weight": fields.number(at_least=0),
            "label_learning_rate": fields.number(at_least=0),
        },
        of_batch=True,
        scores=_MULTI_LABEL,
    ),
    "sparsemax": LossSpec(_plain(losses.sparsemax_loss)),
}
