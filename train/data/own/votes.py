"""Computes the truths of examples from the labels of annotators."""

import dataclasses

import numpy as np

from topk_jax import metrics
from train.data.own.determinations import Determinations, Reading
from train.data.truths import SEVERAL, VOTES, Truths
from train.foundation.errors import UserError

# Votes that are equal up to rounding.
_ROUNDING = 1e-9
# The confusions of all annotators, and a smaller plausibility than any that is kept.
_MOST_CONFUSIONS = 2**28
_LEAST = 1e-3


def truths_of(
    given: Determinations, classes: np.ndarray, num_classes: int, reading: Reading
) -> Truths:
    """The truths of the examples.

    Args:
        given: the labels.
        classes: their classes, [v].
        num_classes: the number of all classes.
        reading: what the labels are, and how votes become plausibilities.

    Raises:
        UserError: the votes cannot be aggregated that way.
    """
    if reading.votes in ("weighted", "dawid_skene"):
        people, voters = np.unique(given.voters, return_inverse=True)
        if "" in people:
            raise UserError(
                field="config.dataset.votes",
                must_be="shares or majority if it is not known who gave each vote",
                got=reading.votes,
            )
        if reading.votes == "dawid_skene":
            return _dawid_skene(given, classes, num_classes, voters)
        given = dataclasses.replace(given, weights=given.weights * _weights(classes, voters))
    pairs = given.examples * num_classes + classes
    unique, of_pairs = np.unique(pairs, return_inverse=True)
    examples, found = np.divmod(unique, num_classes)
    weights = np.bincount(of_pairs, given.weights)
    if reading.labels == SEVERAL:
        weights = np.ones_like(weights)
    elif reading.votes == "majority":
        most = np.zeros(int(examples.max()) + 1)
        np.maximum.at(most, examples, weights)
        # Classes with equally many votes are equally plausible.
        chosen = weights >= most[examples] * (1 - _ROUNDING)
        examples, found, weights = examples[chosen], found[chosen], np.ones(chosen.sum())
    return Truths.of_entries(examples, found, weights, reading.labels)


def _weights(classes: np.ndarray, voters: np.ndarray) -> np.ndarray:
    """The weight of the person of each vote, [v]."""
    named = np.unique(np.stack([voters, classes]), axis=1)[0]
    return np.asarray(metrics.voter_weights(np.bincount(named)))[voters]


def _dawid_skene(
    given: Determinations, classes: np.ndarray, num_classes: int, voters: np.ndarray
) -> Truths:
    sizes = {
        "num_examples": int(given.examples.max()) + 1,
        "num_voters": int(voters.max()) + 1,
        "num_classes": num_classes,
    }
    if (
        num_classes * max(sizes["num_voters"] * num_classes, sizes["num_examples"])
        > _MOST_CONFUSIONS
    ):
        raise UserError(
            field="config.dataset.votes",
            must_be=f"weighted, shares or majority with {sizes['num_voters']} people and "
            f"{num_classes} classes, whose confusions need too much memory",
            got="dawid_skene",
        )
    if (given.weights != 1).any():
        raise UserError(
            field="config.dataset.votes",
            must_be="weighted, shares or majority if a person names several classes of one example",
            got="dawid_skene",
        )
    found = np.asarray(metrics.dawid_skene(classes, given.examples, voters, **sizes))
    examples, kept = np.nonzero(found >= min(_LEAST, 1 / num_classes))
    return Truths.of_entries(examples, kept, found[examples, kept], VOTES)
