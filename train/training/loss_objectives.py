"""Objectives of the losses in `losses.LOSSES`, and the parameters that they are made of."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import losses
from train.models.heads import TwoLogits
from train.training.class_counts import check_all_positive
from train.training.objectives import Hyperparameters, Objective, class_logits, softmax


def build_plain(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Builds the objective of a loss that takes logits, labels and its parameters."""

    def build(**parameters: Any) -> Objective:
        return _deterministic(functools.partial(loss, **parameters))

    return build


def build_split(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Like `build_plain`, for a loss that can split the classes."""

    def build(*, class_axis_name: str | None, **parameters: Any) -> Objective:
        return _deterministic(
            functools.partial(loss, class_axis_name=class_axis_name, **parameters),
            _softmax(class_axis_name),
        )

    return build


def build_scaled(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Like `build_split`, for a loss of cosines that has a `scale`."""

    def build(*, scale: jax.Array, class_axis_name: str | None, **parameters: Any) -> Objective:
        return _deterministic(
            functools.partial(loss, scale=scale, class_axis_name=class_axis_name, **parameters),
            _softmax(class_axis_name, scale),
        )

    return build


def build_of_targets(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Builds the objective of a loss that takes logits, a row over the classes, and parameters."""

    def build(**parameters: Any) -> Objective:
        plain = _deterministic(functools.partial(loss, **parameters))
        return dataclasses.replace(plain, takes_targets=True)

    return build


def cross_entropy(
    *, label_smoothing: jax.Array | float = 0.0, class_axis_name: str | None
) -> Objective:
    """The cross-entropy, whose labels may be smoothed."""
    plain = functools.partial(losses.cross_entropy, class_axis_name=class_axis_name)
    # Evaluated without smoothing, so that runs with other labels compare.
    return dataclasses.replace(
        _deterministic(plain, _softmax(class_axis_name)),
        loss=lambda logits, labels, _keys, _estimates: plain(
            logits, labels, label_smoothing=label_smoothing
        ),
    )


def soft_label_cross_entropy(**parameters: Any) -> Objective:
    """The cross-entropy of labels that are soft by the taxonomy."""
    loss: Callable[..., jax.Array] = functools.partial(
        losses.soft_label_cross_entropy, **parameters
    )
    # Evaluated without soft labels, so that runs with other labels compare.
    return dataclasses.replace(
        _deterministic(losses.cross_entropy),
        loss=lambda logits, labels, _keys, _estimates: loss(logits, labels),
    )


def noised_balanced(*, class_axis_name: str | None, **settings: Any) -> Objective:
    """The noised hinge of logits."""
    return _noised(_softmax(class_axis_name), class_axis_name=class_axis_name, **settings)


def noised_imbalanced(
    *, scale: jax.Array, class_axis_name: str | None, **settings: Any
) -> Objective:
    """The noised hinge of cosines, with margins of the classes."""
    scores = _softmax(class_axis_name, scale)
    return _noised(scores, scale=scale, class_axis_name=class_axis_name, **settings)


def relaxed_top_k_cross_entropy(
    *, k: int, top_1_weight: jax.Array, num_candidates: int, **relaxation: Any
) -> Objective:
    """The relaxed cross-entropies of the top 1 and of the top k, weighted."""

    def loss(logits: jax.Array, labels: jax.Array) -> jax.Array:
        weights = jnp.zeros(k, logits.dtype).at[0].set(top_1_weight).at[-1].add(1 - top_1_weight)
        return losses.relaxed_top_k_cross_entropy(
            logits,
            labels,
            top_k_weights=weights,
            # All of them if there are fewer.
            num_candidates=min(max(num_candidates, k), logits.shape[-1]),
            **relaxation,
        )

    return _deterministic(loss)


def expected_positive_regularization(*, k: int, beta: jax.Array, axis_name: str) -> Objective:
    """The regularization towards k expected labels of an example."""
    loss = functools.partial(
        losses.expected_positive_regularization, expected_positives=float(k), beta=beta
    )
    return _couple_batch(loss, axis_name)


def average_k(
    *, k: int, alpha: jax.Array, axis_name: str, class_axis_name: str | None
) -> Objective:
    """The average-K loss of the logits and the proposals of two heads."""

    def loss(outputs: TwoLogits, labels: jax.Array, axis_name: str | None = None) -> jax.Array:
        return losses.average_k(
            outputs.logits,
            outputs.proposal_logits,
            labels,
            k=k,
            alpha=alpha,
            axis_name=axis_name,
            class_axis_name=class_axis_name,
        )

    return _couple_batch(loss, axis_name, _softmax(class_axis_name))


def beside_cross_entropy(
    loss: Callable[..., jax.Array],
    *,
    weight: jax.Array,
    axis_name: str,
    class_axis_name: str | None,
    **parameters: Any,
) -> Objective:
    """The cross-entropy and a loss of the sets of a batch; evaluated without the latter."""
    plain = functools.partial(losses.cross_entropy, class_axis_name=class_axis_name)
    of_sets = functools.partial(
        loss, axis_name=axis_name, class_axis_name=class_axis_name, **parameters
    )
    return dataclasses.replace(
        _deterministic(plain, _softmax(class_axis_name)),
        loss=lambda logits, labels, _keys, _estimates: (
            jax.lax.pmean(plain(logits, labels).mean(), axis_name)
            + weight * of_sets(logits, labels)
        ),
    )


def role(*, k: int, weight: jax.Array, axis_name: str) -> Objective:
    """The loss of the network and of estimates of the labels."""
    settings = {"expected_positives": float(k)}

    def loss(logits: jax.Array, labels: jax.Array, _keys: jax.Array, estimates: Any) -> jax.Array:
        return losses.role(
            logits, estimates, labels, weight=weight, axis_name=axis_name, **settings
        )

    # The labels of other examples are not estimated, so only the network's own part is left.
    networks_part = functools.partial(
        losses.expected_positive_regularization, beta=weight, **settings
    )
    return dataclasses.replace(_couple_batch(networks_part, axis_name), loss=loss)


def without_label_rate(values: Hyperparameters, _class_counts: np.ndarray) -> Hyperparameters:
    """Without the rate of the label estimates, which the step has relative to the network's."""
    return {name: value for name, value in values.items() if name != "label_learning_rate"}


def without_zero_smoothing(values: Hyperparameters, _class_counts: np.ndarray) -> Hyperparameters:
    """Without a label smoothing of 0, which would cost another reduction over the logits."""
    return {name: value for name, value in values.items() if value != 0}


def with_margins(values: Hyperparameters, class_counts: np.ndarray) -> Hyperparameters:
    """Replaces the largest margin by one margin per class.

    Raises:
        UserError: a class has no training images.
    """
    check_all_positive(class_counts, "config.loss.name must be a loss without margins")
    rest = {name: value for name, value in values.items() if name != "max_margin"}
    margins = losses.class_margins(class_counts, max_margin=values["max_margin"])
    return {**rest, "margins": margins}


def with_counts(values: Hyperparameters, class_counts: np.ndarray) -> Hyperparameters:
    """The parameters and the class counts.

    Raises:
        UserError: a class has no training images.
    """
    check_all_positive(class_counts, "config.loss.name must be a loss without class counts")
    return {**values, "class_counts": class_counts.astype(np.float32)}


def _deterministic(
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    scores: Callable[[jax.Array], jax.Array] = jax.nn.softmax,
) -> Objective:
    return Objective(lambda logits, labels, _keys, _estimates: loss(logits, labels), loss, scores)


def _couple_batch(
    loss: Callable[..., jax.Array],
    axis_name: str,
    scores: Callable[[jax.Array], jax.Array] = jax.nn.softmax,
) -> Objective:
    def of_example(outputs: Any, label: jax.Array) -> jax.Array:
        return loss(jax.tree.map(lambda array: array[None], outputs), label[None])

    return Objective(
        lambda outputs, labels, _keys, _estimates: loss(outputs, labels, axis_name=axis_name),
        jax.vmap(of_example),
        lambda outputs: scores(class_logits(outputs)),
    )


def _noised(
    scores: Callable[[jax.Array], jax.Array], *, num_samples: int, **settings: Any
) -> Objective:
    def loss(
        logits: jax.Array, labels: jax.Array, keys: jax.Array, _estimates: jax.Array | None
    ) -> jax.Array:
        return losses.noised_top_k_hinge(
            logits, labels, num_samples=num_samples, key=keys, **settings
        )

    return Objective(loss, functools.partial(losses.expected_top_k_hinge, **settings), scores)


def _softmax(
    class_axis_name: str | None, scale: jax.Array | None = None
) -> Callable[[jax.Array], jax.Array]:
    """Probabilities from logits, or from cosines, which differ by at most 2, with their scale."""

    def probabilities(logits: jax.Array) -> jax.Array:
        return softmax(logits if scale is None else scale * logits, class_axis_name)

    return probabilities
