"""Objectives of the losses in `losses.LOSSES`, and the parameters that they are made of."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import losses
from topk_jax.taxonomy import Taxonomy
from train.configuration import LossFields
from train.data.taxonomy import HOW_TO_GIVE, ClassTree
from train.foundation.console import in_words
from train.foundation.errors import UserError
from train.models.heads import TwoLogits
from train.training.class_weights import check_all_positive
from train.training.objectives import Hyperparameters, LossSpec, Objective, class_logits

Loss = Callable[..., jax.Array]
Build = Callable[..., Objective]


def of_labels(loss: Loss, *, evaluated: Loss | None = None) -> Build:
    """Builds the objective of a loss that takes logits, labels and its parameters.

    Args:
        loss: the loss. If it has a parameter `scale`, it takes cosines, which differ by at most 2.
        evaluated: the loss that is evaluated in its place, without its parameters, so that runs
            with other parameters compare.
    """

    def build(**parameters: Any) -> Objective:
        trained = partial(loss, **parameters)
        return Objective(
            lambda logits, labels, _keys, _estimates: trained(logits, labels),
            evaluated or trained,
            _softmax_of(parameters),
        )

    return build


def of_targets(loss: Loss) -> Build:
    """Builds the objective of a loss that takes logits, a row over the classes, and parameters."""

    def build(**parameters: Any) -> Objective:
        return dataclasses.replace(of_labels(loss)(**parameters), takes_targets=True)

    return build


def noised(*, num_samples: int, **parameters: Any) -> Objective:
    """The noised hinge of logits, or of cosines with margins of the classes."""

    def loss(
        logits: jax.Array, labels: jax.Array, keys: jax.Array, _estimates: jax.Array | None
    ) -> jax.Array:
        return losses.noised_top_k_hinge(
            logits, labels, num_samples=num_samples, key=keys, **parameters
        )

    return Objective(
        loss, partial(losses.expected_top_k_hinge, **parameters), _softmax_of(parameters)
    )


def relaxed_top_k_cross_entropy(
    logits: jax.Array,
    labels: jax.Array,
    *,
    k: int,
    top_1_weight: jax.Array,
    num_candidates: int,
    **relaxation: Any,
) -> jax.Array:
    """The relaxed cross-entropies [n] of the top 1 and of the top k, weighted."""
    weights = jnp.zeros(k, logits.dtype).at[0].set(top_1_weight).at[-1].add(1 - top_1_weight)
    return losses.relaxed_top_k_cross_entropy(
        logits,
        labels,
        top_k_weights=weights,
        # All of them if there are fewer.
        num_candidates=min(max(num_candidates, k), logits.shape[-1]),
        **relaxation,
    )


def expected_positive_regularization(
    *, k: int, beta: jax.Array, axis_name: str | None
) -> Objective:
    """The regularization towards k expected labels of an example."""
    loss = partial(losses.expected_positive_regularization, expected_positives=float(k), beta=beta)
    return _of_batch(loss, axis_name)


def average_k(*, k: int, alpha: jax.Array, axis_name: str | None) -> Objective:
    """The average-K loss of the logits and the proposals of two heads."""

    def loss(outputs: TwoLogits, labels: jax.Array, axis_name: str | None = None) -> jax.Array:
        both = outputs.logits, outputs.proposal_logits
        return losses.average_k(*both, labels, k=k, alpha=alpha, axis_name=axis_name)

    return _of_batch(loss, axis_name)


def beside_cross_entropy(loss: Loss) -> Build:
    """Builds the cross-entropy and a loss of the sets of a batch; evaluated without the latter."""

    def build(*, weight: jax.Array, axis_name: str | None, **parameters: Any) -> Objective:
        def both(
            logits: jax.Array, labels: jax.Array, _keys: jax.Array, _estimates: jax.Array | None
        ) -> jax.Array:
            plain = losses.cross_entropy(logits, labels).mean()
            if axis_name is not None:
                plain = jax.lax.pmean(plain, axis_name)
            return plain + weight * loss(logits, labels, axis_name=axis_name, **parameters)

        return Objective(both, losses.cross_entropy)

    return build


def role(*, k: int, weight: jax.Array, axis_name: str | None) -> Objective:
    """The loss of the network and of estimates of the labels."""
    expected = {"expected_positives": float(k)}

    def loss(logits: jax.Array, labels: jax.Array, _keys: jax.Array, estimates: Any) -> jax.Array:
        return losses.role(
            logits, estimates, labels, weight=weight, axis_name=axis_name, **expected
        )

    # The labels of other examples are not estimated, so only the network's own part is left.
    networks_part = partial(losses.expected_positive_regularization, beta=weight, **expected)
    return dataclasses.replace(_of_batch(networks_part, axis_name), loss=loss)


def at_every_rank(objective: Objective, taxonomy: Taxonomy, weights: Sequence[float]) -> Objective:
    """The objective that sums the losses at all ranks; a node has the sum of its classes.

    Like a smoothed label, it is only for training. The loss of the classes is evaluated, so that
    runs with other weights can be compared.

    Args:
        objective: of single examples.
        taxonomy: the tree of the classes.
        weights: one for each rank, from the top down to the classes.
    """
    factors = np.asarray(weights)

    def loss(
        logits: jax.Array, labels: jax.Array, keys: jax.Array, estimates: jax.Array | None
    ) -> jax.Array:
        def at_rank(logits: jax.Array, labels: jax.Array) -> jax.Array:
            return objective.loss(logits, labels, keys, estimates)

        return losses.sum_over_depths(logits, labels, taxonomy, loss=at_rank, weights=factors)

    return dataclasses.replace(objective, loss=loss)


def check_ranks(fields: LossFields, spec: LossSpec, tree: ClassTree | None) -> None:
    """Refuses a loss that does not fit what is above the classes.

    Raises:
        UserError: there is nothing, or weights or K do not fit its ranks.
    """
    weights = fields.rank_weights
    if tree is None:
        if spec.needs_taxonomy or weights:
            named = f"config.loss.{'rank_weights' if weights else f'name={fields.name}'}"
            raise UserError(
                f"{named} needs a taxonomy of the classes: give config.dataset.taxonomy, "
                f"{HOW_TO_GIVE}"
            )
        return
    if not weights:
        return
    if len(weights) != len(tree.ranks) or not any(weights):
        raise UserError(
            field="config.loss.rank_weights",
            must_be=f"{len(tree.ranks)} numbers, not all of them 0, for "
            f"{in_words(tree.ranks, 'ranks')}",
            got=weights,
        )
    k = fields.parameters["k"] if spec.has_k else 0
    for depth, (rank, weight) in enumerate(zip(tree.ranks, weights, strict=True), start=1):
        nodes = len(np.unique(tree.taxonomy.ancestors[:, depth]))
        if weight and nodes <= k:
            raise UserError(
                f"config.loss.rank_weights must have 0 for the rank {rank}, whose {nodes} nodes "
                f"are not more than config.loss.k={k}; got {weight:g}"
            )


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


def _of_batch(loss: Loss, axis_name: str | None) -> Objective:
    """The objective of a loss of a global batch; each example is evaluated as a batch."""

    def of_example(outputs: Any, label: jax.Array) -> jax.Array:
        return loss(jax.tree.map(lambda array: array[None], outputs), label[None])

    return Objective(
        lambda outputs, labels, _keys, _estimates: loss(outputs, labels, axis_name=axis_name),
        jax.vmap(of_example),
        lambda outputs: jax.nn.softmax(class_logits(outputs)),
    )


def _softmax_of(parameters: Hyperparameters) -> Callable[[jax.Array], jax.Array]:
    """Probabilities from logits, or from cosines with the scale that is among the parameters."""
    if "scale" not in parameters:
        return jax.nn.softmax
    return lambda cosines: jax.nn.softmax(parameters["scale"] * cosines)
