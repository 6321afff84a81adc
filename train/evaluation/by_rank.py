"""Accuracies and sets by rank: of the genera and families of a taxonomy, in place of species."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.evaluation import score_files
from train.evaluation.metric import Metric
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.set_rules import SetRule


def report(examples: Predictions, tree: ClassTree, ks: Sequence[int]) -> dict[str, Any]:
    """The accuracies of the ranks above the classes, and how bad mistakes are, as files have them.

    Args:
        examples: the predictions.
        tree: what is above the classes.
        ks: the K; at a rank with fewer nodes than a K, this K is left out.

    Returns:
        "ranks": for each rank its number of nodes and its top-K accuracies. Probabilities of nodes
        are sums, so there is nothing for scores that do not add up to 1. "mistake_height": the mean
        height of the lowest node with the likeliest class and the label over the mistakes, if there
        are some.
    """
    heights = _of_chunks(examples, partial(_mistake_heights, tree=tree))
    mistakes = heights[heights > 0]
    found: dict[str, Any] = {"mistake_height": float(mistakes.mean())} if mistakes.size else {}
    if score_files.are_probabilities(examples.scores):
        found["ranks"] = {
            rank: _accuracies(examples, tree, depth, ks)
            for depth, rank in enumerate(tree.ranks[:-1], start=1)
        }
    return found


def rate(sets: SetRule, examples: Predictions, tree: ClassTree) -> dict[str, Any]:
    """How good the sets of a rule are at each rank above the classes, as files have it.

    Args:
        sets: the rule.
        examples: the predictions.
        tree: what is above the classes.

    Returns:
        "ranks": for each rank, how often a set has a class of the label's node, and of how many
        nodes it has classes. "height": the mean height of the lowest node with all classes of a
        set, over sets that are not empty. "names": the mean number of names that describe a set.
    """
    return summary(
        _of_chunks(examples, lambda scores, labels: values_of(sets(scores), labels, tree)), tree
    )


def values_of(chosen: Any, labels: Any, tree: ClassTree) -> np.ndarray:
    """What `summary` takes of sets [n, L]: several numbers for each example, [m, n]."""
    return np.asarray(_values_of(chosen, labels, tree))


def summary(values: np.ndarray, tree: ClassTree) -> dict[str, Any]:
    """The same as `rate`, from the numbers of all examples, [m, n]."""
    *of_ranks, heights, counts = np.asarray(values, np.float64)
    by_rank = zip(tree.ranks, of_ranks[::2], of_ranks[1::2], strict=False)
    answered = heights[heights >= 0]
    return {
        "ranks": {
            rank: {"coverage": float(hits.mean()), "set_size": float(sizes.mean())}
            for rank, hits, sizes in by_rank
        },
        "height": float(answered.mean()) if answered.size else None,
        "names": float(counts.mean()),
    }


def _accuracies(
    examples: Predictions, tree: ClassTree, depth: int, ks: Sequence[int]
) -> dict[str, Any]:
    nodes = len(np.unique(tree.taxonomy.ancestors[:, depth]))
    ranks = _of_chunks(examples, partial(_ancestor_ranks, tree=tree, depth=depth))
    of_ks = {Metric.accuracy("top", k).name: float((ranks < k).mean()) for k in ks if k <= nodes}
    return {"nodes": nodes, **of_ks}


def _of_chunks(
    examples: Predictions, of_chunk: Callable[[np.ndarray, np.ndarray], Any]
) -> np.ndarray:
    """Values of scores and labels, computed in chunks; the last axis is over the examples."""
    parts = (
        np.asarray(of_chunk(examples.scores[chunk], examples.labels[chunk]))
        for chunk in chunks(examples.scores)
    )
    return np.concatenate([*parts], axis=-1)


@partial(jax.jit, static_argnames=("tree", "depth"))
def _ancestor_ranks(
    scores: jax.Array, labels: jax.Array, *, tree: ClassTree, depth: int
) -> jax.Array:
    return metrics.ancestor_ranks(scores, labels, tree.taxonomy, depth=depth)


@partial(jax.jit, static_argnames="tree")
def _mistake_heights(scores: jax.Array, labels: jax.Array, *, tree: ClassTree) -> jax.Array:
    return metrics.mistake_heights(scores.argmax(axis=-1), labels, tree.taxonomy)


@partial(jax.jit, static_argnames="tree")
def _values_of(chosen: jax.Array, labels: jax.Array, tree: ClassTree) -> list[jax.Array]:
    values = []
    for depth in range(1, len(tree.ranks)):
        hits = metrics.ancestor_hits(chosen, labels, tree.taxonomy, depth=depth)
        values += [hits.astype(np.int32), metrics.node_counts(chosen, tree.taxonomy, depth=depth)]
    return [
        *values,
        metrics.set_heights(chosen, tree.taxonomy),
        metrics.name_counts(chosen, tree.taxonomy),
    ]
