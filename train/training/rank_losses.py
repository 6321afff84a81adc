"""Losses in the taxonomy of the classes: any loss of single examples at every rank."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from topk_jax import losses
from topk_jax.taxonomy import Taxonomy
from train.configuration import LossFields
from train.data.taxonomy import HOW_TO_GIVE, ClassTree
from train.foundation import messages
from train.foundation.errors import UserError
from train.training.objectives import LossSpec, Objective


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


def check(fields: LossFields, spec: LossSpec, tree: ClassTree | None) -> None:
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
            f"{messages.in_words(tree.ranks, 'ranks')}",
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
