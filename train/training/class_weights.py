"""Weights of the classes in the training loss, and the step from which they apply."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.losses import class_balanced_weights
from train.configuration import LossFields
from train.foundation.errors import UserError


def hyperparameters(
    settings: LossFields,
    class_counts: np.ndarray,
    *,
    sampling: str,
    num_epochs: int,
    steps_per_epoch: int,
) -> dict[str, Any]:
    """The weights and their first step, as inputs of the compiled step; empty without weights.

    The mean weight of the examples that training draws is 1, so that the weights do not change the
    size of the steps. PyTorch divides by the mean weight of each batch instead.

    Args:
        settings: `config.loss`.
        class_counts: the training images of each class, [L].
        sampling: `config.dataset.sampling`.
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one epoch.

    Raises:
        UserError: a class has no training images.
    """
    if settings.class_weights == "none":
        return {}
    check_all_positive(class_counts, "config.loss.class_weights must be 'none'")
    first = _first_step(settings.class_weights_from, num_epochs, steps_per_epoch)
    beta = settings.class_weights_beta
    weights = np.asarray(class_balanced_weights(class_counts, beta=beta), np.float64)
    draws = np.ones(len(class_counts)) if sampling == "class_balanced" else class_counts
    return {
        "class_weights": {
            "weights": (weights / np.average(weights, weights=draws)).astype(np.float32),
            "first_step": np.int32(first),
        }
    }


def first_epoch(settings: LossFields, *, num_epochs: int, steps_per_epoch: int) -> int:
    """The first epoch with weights, counted from 1.

    Args:
        settings: `config.loss`, with class weights.
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one epoch.
    """
    first = _first_step(settings.class_weights_from, num_epochs, steps_per_epoch)
    return first // steps_per_epoch + 1


def _first_step(share: float, num_epochs: int, steps_per_epoch: int) -> int:
    """The first step of the weights, after a share of the steps of the run."""
    steps = num_epochs * steps_per_epoch
    # The share is less than 1: the weights apply to the last step, however few there are.
    return min(round(share * steps), steps - 1)


def weigh(
    losses: jax.Array,
    labels: jax.Array,
    values: Mapping[str, Any],
    step: jax.Array,
) -> jax.Array:
    """The losses [n] in a step, each times the weight of its class.

    Args:
        losses: one loss per example, [n].
        labels: their classes, [n].
        values: with what `hyperparameters` returned among them; they may be traced.
        step: the steps so far. Before the first step of the weights, all weights are 1.
    """
    if "class_weights" not in values:
        return losses
    weights = values["class_weights"]
    applied = jnp.where(step >= weights["first_step"], weights["weights"], jnp.float32(1))
    return losses * applied[labels]


def check_all_positive(class_counts: np.ndarray, rule: str) -> None:
    """Raises `UserError` if a class has no training images.

    Args:
        class_counts: the training images of each class, [L].
        rule: the start of the message: what the configuration must be in that case.
    """
    if not class_counts.all():
        without = int(np.flatnonzero(class_counts == 0)[0])
        raise UserError(f"{rule} if a class has no training images, as class {without} here")
