"""The sets of the largest expected utility, and the mean utility of any sets."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from train.evaluation import utilities
from train.evaluation.set_rules import SetRule
from train.evaluation.summaries import Sets
from train.foundation.errors import UserError


def of_sizes(name: str, num_classes: int) -> np.ndarray:
    """The worth of a set of 1 to L classes that has the label, [L].

    Args:
        name: the name of the utility, as the flags take it.
        num_classes: the number of classes L.

    Raises:
        UserError: it has values of larger sets than there are.
    """
    utility = utilities.named(name)
    if utility.kind is not None:
        found = sets.set_utilities(utility.kind, num_classes=num_classes, **utility.parameters)
        return np.asarray(found, np.float32)
    if len(utility.values) > num_classes:
        raise UserError(
            field="--utility",
            must_be=f"of at most {num_classes} numbers, one for each size of a set of the "
            f"{num_classes} classes",
            got=name,
        )
    further = num_classes - len(utility.values)
    return np.array([*utility.values, *[0] * further], np.float32)


def rule(worth: np.ndarray) -> SetRule:
    """The rule whose sets have the largest expected utility, [L] by size."""
    of_one = partial(_utility_set, worth=worth)
    # One example at a time: in an exported program, their number is not known.
    return lambda probabilities: jax.vmap(of_one)(jnp.asarray(probabilities))


def _utility_set(probabilities: ArrayLike, worth: np.ndarray) -> jax.Array:
    return sets.utility_set(probabilities, utilities=worth)


def mean(found: Sets, worth: np.ndarray) -> float:
    """The mean utility of sets: what those are worth that have the label, and 0 for others."""
    # An empty set never has it.
    values = worth[np.maximum(found.sizes, 1) - 1]
    return float((found.hits * values).mean(dtype=np.float64))
