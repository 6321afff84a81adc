"""What the sets of a rule are on labelled examples: hits, sizes, and what else a row counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.data.truths import SEVERAL
from train.reports.costs import Costs
from train.reports.rules import SetRule
from train.scores.scores import Scores

# Hits [n, m], sizes [n], then "none of these", ranks of the taxonomy, costs; None if not counted.
_Part = tuple[Any, Any, Any, Any, Any]


@dataclass(frozen=True, eq=False)
class Measured:
    """The sets of n examples.

    Attributes:
        inside: whether each has each class of the truth, [n, m]; or the label, [n, 1].
        hits: whether each has the label, [n]; if the truth is more than one class, the share of the
            truth that it has.
        sizes: the number of its classes, [n].
        says_new: whether it has "none of these", [n]; None if it cannot.
        by_rank: at each rank above the classes whether it has the label's node and how many nodes;
            then its height and its number of names: [n, 2 r + 2]. None without a taxonomy.
        costs: what it costs, [n]; None without costs.
        having: how many sets have each class, [L]; None unless labels are several.
    """

    inside: np.ndarray
    hits: np.ndarray
    sizes: np.ndarray
    says_new: np.ndarray | None
    by_rank: np.ndarray | None
    costs: np.ndarray | None
    having: np.ndarray | None

    @property
    def of_labels(self) -> np.ndarray:
        """Whether each has the class that stands for the example, [n]."""
        found: np.ndarray = self.inside[:, 0]
        return found


def measure(scores: Scores, rule: SetRule) -> Measured:
    """The sets of a fitted rule, without all of them in memory at once."""
    truths, num_classes = scores.truths, scores.values.shape[1]
    having = None
    if truths is not None and truths.kind == SEVERAL:
        having = np.zeros(num_classes, np.int64)
    is_top_k = rule.name == "top_k" and rule.tree is None and not rule.says_new
    if is_top_k and scores.classes.tree is None and having is None:
        parts: list[Any] = [None, np.full(len(scores), int(rule.value)), None, None, None]
    else:
        found = zip(*_parts(scores, rule, having), strict=True)
        parts = [None if one[0] is None else np.concatenate(one) for one in found]
    inside, sizes, says_new, by_rank, costs = parts
    if is_top_k:
        # Ranks are of scores in 64 bits.
        ranks = scores.ranks[:, None] if scores.class_ranks is None else scores.class_ranks
        inside = ranks < int(rule.value)
    hits = inside[:, 0] if truths is None else truths.mean(inside)
    return Measured(inside, hits, sizes, says_new, by_rank, costs, having)


def _parts(scores: Scores, rule: SetRule, having: np.ndarray | None) -> Iterator[_Part]:
    tree = scores.classes.tree
    classes = scores.labels[:, None] if scores.truths is None else scores.truths.classes
    for chunk in scores.chunks():
        outliers = scores.outliers[chunk] if rule.says_new and scores.outliers is not None else None
        # Not compiled as a whole: the parts of the library are compiled once for all limits.
        members, _, says_new = rule.answer(scores.values[chunk], outliers)
        inside, sizes = _hits_and_sizes(members, classes[chunk])
        by_rank = of_sets = None
        if having is not None:
            having += np.asarray(members).sum(axis=0)
        if tree is not None:
            by_rank = np.asarray(_by_rank(members, scores.labels[chunk], tree=tree)).T
        if rule.costs is not None:
            of_sets = _costs(np.asarray(members), scores, chunk, rule.costs)
        yield inside, sizes, says_new, by_rank, of_sets


@jax.jit
def _hits_and_sizes(members: jax.Array, classes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which classes [n, m] sets have, and how many."""
    inside = jnp.take_along_axis(members, classes, axis=-1, mode="fill", fill_value=False)
    return inside, metrics.set_sizes(members)


@partial(jax.jit, static_argnames="tree")
def _by_rank(members: jax.Array, labels: jax.Array, *, tree: ClassTree) -> jax.Array:
    values = []
    for depth in range(1, len(tree.ranks)):
        values.append(metrics.ancestor_hits(members, labels, tree.taxonomy, depth=depth))
        values.append(metrics.node_counts(members, tree.taxonomy, depth=depth))
    values.append(metrics.set_heights(members, tree.taxonomy))
    values.append(metrics.name_counts(members, tree.taxonomy))
    return jnp.stack([one.astype(jnp.int32) for one in values])


def _costs(members: np.ndarray, scores: Scores, chunk: slice, costs: Costs) -> np.ndarray:
    """What sets cost, by the shares of the classes of the truth."""
    if scores.truths is None:
        return costs.of_sets(members, scores.labels[chunk])
    truths = scores.truths[chunk]
    total = np.zeros(len(members))
    for labels, share in zip(truths.classes.T, truths.shares.T.astype(np.float64), strict=True):
        total += share * costs.of_sets(members, labels)
    return total
