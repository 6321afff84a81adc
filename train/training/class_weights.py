"""Weights of the classes in the training loss, and the step from which they apply."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.losses import class_balanced_weights
from train.configuration import LossFields
from train.devices.class_axis import ALL_CLASSES, ClassAxis
from train.training.class_counts import check_all_positive


def hyperparameters(
    settings: LossFields,
    class_counts: np.ndarray,
    *,
    sampling: str,
    num_epochs: int,
    steps_per_epoch: int,
    extensions: Sequence[Sequence[int]],
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
        extensions: for each extension of the run the epochs before it, and the steps made by then.

    Raises:
        UserError: a class has no training images.
    """
    if settings.class_weights == "none":
        return {}
    check_all_positive(class_counts, "config.loss.class_weights must be 'none'")
    first = _first_step(settings.class_weights_from, num_epochs, steps_per_epoch, extensions)
    beta = settings.class_weights_beta
    weights = np.asarray(class_balanced_weights(class_counts, beta=beta), np.float64)
    draws = np.ones(len(class_counts)) if sampling == "class_balanced" else class_counts
    return {
        "class_weights": {
            "weights": (weights / np.average(weights, weights=draws)).astype(np.float32),
            "first_step": np.int32(first),
        }
    }


def first_epoch(
    settings: LossFields,
    *,
    num_epochs: int,
    steps_per_epoch: int,
    extensions: Sequence[Sequence[int]],
) -> int:
    """The first epoch with weights, counted from 1.

    Args:
        settings: `config.loss`, with class weights.
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one epoch.
        extensions: as for `hyperparameters`.
    """
    first = _first_step(settings.class_weights_from, num_epochs, steps_per_epoch, extensions)
    return first // steps_per_epoch + 1


def _first_step(
    share: float, num_epochs: int, steps_per_epoch: int, extensions: Sequence[Sequence[int]]
) -> int:
    """The first step of the weights, after a share of the steps of the run.

    An extension moves this step to a later one, but not once the run has made steps with weights:
    the weights would be off again until the later step.
    """

    def of(epochs: int) -> int:
        steps = epochs * steps_per_epoch
        # The share is less than 1: the weights apply to the last step, however few there are.
        return min(round(share * steps), steps - 1)

    for epochs, steps_made in extensions:
        if of(epochs) < steps_made:
            return of(epochs)
    return of(num_epochs)


def weigh(
    losses: jax.Array,
    labels: jax.Array,
    values: Mapping[str, Any],
    step: jax.Array,
    class_axis: ClassAxis = ALL_CLASSES,
) -> jax.Array:
    """The losses [n] in a step, each times the weight of its class.

    Args:
        losses: one loss per example, [n].
        labels: their classes, [n].
        values: with what `hyperparameters` returned among them; they may be traced.
        step: the steps so far. Before the first step of the weights, all weights are 1.
        class_axis: the axis over devices that the weights are split along.
    """
    if "class_weights" not in values:
        return losses
    weights = values["class_weights"]
    applied = jnp.where(step >= weights["first_step"], weights["weights"], jnp.float32(1))
    return losses * class_axis.of_labels(applied, labels)
