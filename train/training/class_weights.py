"""Weights of the classes in the training loss, and the step from which they apply."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.losses import class_balanced_weights
from train.training.class_counts import check_all_positive

# The values of `config.loss.class_weights`.
KINDS = ("none", "class_balanced")


def hyperparameters(
    settings: Mapping[str, Any], class_counts: np.ndarray, *, sampling: str, num_steps: int
) -> dict[str, Any]:
    """The weights and their first step, as inputs of the compiled step; empty without weights.

    The mean weight of the examples that training draws is 1, so that the weights do not change the
    size of the steps. PyTorch divides by the mean weight of each batch instead.

    Args:
        settings: `config.loss`.
        class_counts: the training images of each class, [L].
        sampling: `config.dataset.sampling`.
        num_steps: the steps of the whole run.

    Raises:
        UserError: a class has no training images.
    """
    if settings["class_weights"] == "none":
        return {}
    check_all_positive(class_counts, "config.loss.class_weights must be 'none'")
    beta = settings["class_weights_beta"]
    weights = np.asarray(class_balanced_weights(class_counts, beta=beta), np.float64)
    draws = np.ones(len(class_counts)) if sampling == "class_balanced" else class_counts
    return {
        "class_weights": {
            "weights": (weights / np.average(weights, weights=draws)).astype(np.float32),
            "first_step": np.int32(round(settings["class_weights_from"] * num_steps)),
        }
    }


def weigh(
    losses: jax.Array, labels: jax.Array, values: Mapping[str, Any], step: jax.Array
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
