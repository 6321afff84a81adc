"""Losses by name: their parameters, the head they need, and how logits become a loss and scores."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from topk_jax import losses
from train import fields
from train.models.heads import TwoLogits


@dataclass(frozen=True)
class Objective:
    """What a step needs of a loss. Outputs are what the head gives: logits [n, L], or two of them.

    Attributes:
        loss: outputs, labels [n] and one random key an example [n] to losses [n], or to that of
            the whole batch on all devices.
        evaluation_loss: outputs and labels [n] to losses [n], without randomness, so that the
            losses of two epochs differ by the parameters alone. Of the losses of a batch it is that
            of each example as a batch of its own, which does not depend on how a split is divided.
        scores: outputs to the scores that sets are made of, [n, L], which sum to 1.
    """

    loss: Callable[[Any, jax.Array, jax.Array], jax.Array]
    evaluation_loss: Callable[[Any, jax.Array], jax.Array]
    scores: Callable[[Any], jax.Array] = jax.nn.softmax


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
    """

    build: Callable[..., Objective]
    parameters: Callable[[int], Mapping[str, fields.Field]] = lambda _num_classes: {}
    head: str = "linear"
    of_batch: bool = False

    def objective(
        self, config: Mapping[str, Any], class_counts: np.ndarray, *, axis_name: str
    ) -> Objective:
        """The objective with the parameters that `config.loss` gives."""
        parameters = {name: config[name] for name in self.parameters(len(class_counts))}
        if self.of_batch:
            parameters["axis_name"] = axis_name
        return self.build(class_counts, **parameters)


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

    return _of_batch(loss, axis_name, lambda outputs: jax.nn.softmax(outputs.logits))


def _of_batch(
    loss: Callable[..., jax.Array],
    axis_name: str,
    scores: Callable[[Any], jax.Array] = jax.nn.softmax,
) -> Objective:
    def of_example(outputs: Any, label: jax.Array) -> jax.Array:
        return loss(jax.tree.map(lambda array: array[None], outputs), label[None])

    return Objective(
        lambda outputs, labels, _keys: loss(outputs, labels, axis_name=axis_name),
        jax.vmap(of_example),
        scores,
    )


def _noised(
    num_samples: int, scores: Callable[[jax.Array], jax.Array], **settings: Any
) -> Objective:
    def loss(logits: jax.Array, labels: jax.Array, keys: jax.Array) -> jax.Array:
        return losses.noised_top_k_hinge(
            logits, labels, num_samples=num_samples, key=keys, **settings
        )

    return Objective(loss, functools.partial(losses.expected_top_k_hinge, **settings), scores)


def _without_randomness(
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    scores: Callable[[jax.Array], jax.Array] = jax.nn.softmax,
) -> Objective:
    return Objective(lambda logits, labels, _keys: loss(logits, labels), loss, scores)


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
    "assume_negative": LossSpec(_plain(losses.assume_negative)),
    "expected_positive_regularization": LossSpec(
        _expected_positive_regularization,
        lambda num_classes: {**_mean_size(num_classes), "beta": fields.number(at_least=0)},
        of_batch=True,
    ),
    "average_k": LossSpec(
        _average_k,
        lambda num_classes: {**_mean_size(num_classes), "alpha": fields.number(at_least=0)},
        head="two_heads",
        of_batch=True,
    ),
    "sparsemax": LossSpec(_plain(losses.sparsemax_loss)),
}
