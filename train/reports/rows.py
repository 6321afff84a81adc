"""The row of a rule: how often its sets have the label of labelled examples, and their sizes.

Examples of classes that the classifier does not know are counted apart: no set can have their
label, and nothing promises it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.data.truths import SEVERAL
from train.reports import intervals, promises, summaries
from train.reports.costs import Costs
from train.reports.rules import SetRule, parse
from train.scores.observations import num_independent
from train.scores.scores import Scores

# Top-K sets that the sets of a utility are compared with.
_USUAL_KS = (1, 3, 5)
# The least covered classes that a row lists.
MOST_LISTED = 5


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
        having: how many sets of a part of the examples have each class, [parts, L]; None unless
            labels are several.
    """

    inside: np.ndarray
    hits: np.ndarray
    sizes: np.ndarray
    says_new: np.ndarray | None = None
    by_rank: np.ndarray | None = None
    costs: np.ndarray | None = None
    having: np.ndarray | None = None

    @property
    def of_labels(self) -> np.ndarray:
        """Whether each has the class that stands for the example, [n]."""
        found: np.ndarray = self.inside[:, 0]
        return found


def measure(scores: Scores, rule: SetRule) -> Measured:
    """The sets of a fitted rule, without all of them in memory at once."""
    truths, tree = scores.truths, scores.classes.tree
    has_several = truths is not None and truths.kind == SEVERAL
    is_top_k = rule.name == "top_k" and not rule.says_new
    if is_top_k and tree is None and not has_several:
        found = {"sizes": np.full(len(scores), int(rule.value))}
    else:
        parts = [_of_chunk(scores, rule, chunk, has_several) for chunk in scores.chunks()]
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if is_top_k:
        # Ranks are of scores in 64 bits.
        ranks = scores.ranks[:, None] if scores.class_ranks is None else scores.class_ranks
        found["inside"] = ranks < int(rule.value)
    inside = found["inside"]
    return Measured(hits=inside[:, 0] if truths is None else truths.mean(inside), **found)


def _of_chunk(
    scores: Scores, rule: SetRule, chunk: slice, has_several: bool
) -> dict[str, np.ndarray]:
    truths, tree = scores.truths, scores.classes.tree
    labels = scores.labels[chunk]
    outliers = scores.outliers[chunk] if rule.says_new and scores.outliers is not None else None
    # Not compiled as a whole: the parts of the library are compiled once for all limits.
    members, _, says_new = rule.answer(scores.values[chunk], outliers)
    classes = labels[:, None] if truths is None else truths.classes[chunk]
    inside, sizes = summaries.hits_and_sizes(members, classes)
    found = {"inside": inside, "sizes": sizes}
    if says_new is not None:
        found["says_new"] = says_new
    if has_several:
        found["having"] = members.sum(axis=0)[None]
    if tree is not None:
        found["by_rank"] = _by_rank(members, labels, tree=tree)
    if rule.costs is not None:
        found["costs"] = _costs(np.asarray(members), scores, chunk, rule.costs)
    return {name: np.asarray(one) for name, one in found.items()}


@partial(jax.jit, static_argnames="tree")
def _by_rank(members: jax.Array, labels: jax.Array, *, tree: ClassTree) -> jax.Array:
    values = []
    for depth in range(1, len(tree.ranks)):
        values.append(metrics.ancestor_hits(members, labels, tree.taxonomy, depth=depth))
        values.append(metrics.node_counts(members, tree.taxonomy, depth=depth))
    values.append(metrics.set_heights(members, tree.taxonomy))
    values.append(metrics.name_counts(members, tree.taxonomy))
    return jnp.stack([one.astype(jnp.int32) for one in values], axis=-1)


def _costs(members: np.ndarray, scores: Scores, chunk: slice, costs: Costs) -> np.ndarray:
    """What sets cost, by the shares of the classes of the truth."""
    if scores.truths is None:
        return costs.of_sets(members, scores.labels[chunk])
    truths = scores.truths[chunk]
    total = np.zeros(len(members))
    for labels, share in zip(truths.classes.T, truths.shares.T.astype(np.float64), strict=True):
        total += share * costs.of_sets(members, labels)
    return total


def divided(scores: Scores) -> tuple[Scores, Scores | None]:
    """The examples of known classes, and those of unknown classes if there are some."""
    unknown = np.flatnonzero(~scores.known)
    return scores.of_known(), scores.take(unknown) if unknown.size else None


def rate(scores: Scores, rule: SetRule) -> dict[str, Any]:
    """The row of a fitted rule: how often its sets have the label, and their sizes."""
    known, unknown = divided(scores)
    return row_of(scores, known, unknown, rule, measure(known, rule))


def row_of(
    scores: Scores, known: Scores, unknown: Scores | None, rule: SetRule, found: Measured
) -> dict[str, Any]:
    """The same of examples that are `divided`, and of the sets of the known ones."""
    row: dict[str, Any] = {
        "coverage": float(found.hits.mean(dtype=np.float64)),
        "interval": intervals.of(known, found.hits),
    }
    row |= summaries.of_groups(*_of_classes(known, found), known.classes.counts)
    row["set_size"] = float(found.sizes.mean())
    row["empty"] = float((found.sizes == 0).mean())
    limits = rule.rule.limits
    if limits is not None and np.ndim(limits) == 0 and np.isfinite(limits):
        row["limit"] = float(limits)
    if limits is not None and np.ndim(limits) == 1 and (always := int(np.isposinf(limits).sum())):
        row["in_every_set"] = always
    share, promised_to = row["coverage"], known
    if found.says_new is not None:
        row["none_of_these"] = float(found.says_new.mean())
    if unknown is not None:
        of_unknown = measure(unknown, rule)
        row["unknown"] = {"examples": len(unknown), "set_size": float(of_unknown.sizes.mean())}
        right = 0.0
        if of_unknown.says_new is not None:
            row["unknown"]["none_of_these"] = float(of_unknown.says_new.mean())
            right = float(of_unknown.says_new.sum())
        row["coverage_of_all"] = (float(found.hits.sum()) + right) / len(scores)
        if found.says_new is not None:
            share, promised_to = row["coverage_of_all"], scores
    if (promise := rule.rule.promise) is not None:
        row["promised"] = promise.coverage
        number = num_independent(promised_to)
        row["contradicted"] = promises.is_contradicted(promise, share, number)
    row |= _of_kind(known, rule, found)
    if found.having is not None:
        row |= _several_labels(known, found)
    if found.by_rank is not None and known.classes.tree is not None:
        row |= _ranks_of_sets(found.by_rank, known.classes.tree)
    if rule.rule.conformal is not None:
        row["least_covered"] = class_rows(known, found)[:MOST_LISTED]
    return row


def class_rows(scores: Scores, found: Measured) -> list[dict[str, Any]]:
    """The classes that have examples: the least covered first, then those with more examples."""
    numbers, shares = _of_classes(scores, found)
    counts = np.maximum(np.rint(numbers), 1)
    order = np.lexsort((-counts, shares))
    names = scores.classes.names
    return [
        {"class": names[label], "index": label, "examples": int(count), "coverage": share}
        for label, count, share in zip(
            *(one[order].tolist() for one in (np.arange(len(names)), counts, shares)), strict=True
        )
        if numbers[label] > 0
    ]


def _of_classes(scores: Scores, found: Measured) -> tuple[np.ndarray, np.ndarray]:
    # The truth may have classes that are not known.
    numbers, shares = summaries.of_classes(scores, found.inside)
    return numbers[: len(scores.classes)], shares[: len(scores.classes)]


def _of_kind(known: Scores, rule: SetRule, found: Measured) -> dict[str, Any]:
    """What a row has only for some kinds of rules: utilities, costs, answers."""
    if rule.name == "utility":
        utility: Any = rule.rule
        worth = utility.worth(len(known.classes))
        top = {f"top_k={k}": parse(f"top_k={k}") for k in _USUAL_KS if k <= len(known.classes)}
        return {
            "utility": _mean_worth(found, worth),
            "utility_of": {
                text: _mean_worth(measure(known, one), worth) for text, one in top.items()
            },
        }
    if found.costs is not None:
        return {"mean_cost": float(found.costs.mean())}
    if rule.name != "max_error":
        return {}
    answers = int(found.sizes.sum())
    wrong = 1 - int(found.of_labels.sum()) / answers if answers else None
    return {"answered": answers / len(known), "error_of_answers": wrong}


def _mean_worth(found: Measured, worth: np.ndarray) -> float:
    """The mean utility of sets; an empty set never has the label."""
    return float((found.hits * worth[np.maximum(found.sizes, 1) - 1]).mean(dtype=np.float64))


def _several_labels(scores: Scores, found: Measured) -> dict[str, float]:
    """The part of the labels that sets miss, and their F1 scores over examples and classes."""
    truths = scores.truths
    assert truths is not None
    assert found.having is not None
    are_hits = found.inside & (truths.shares > 0)
    hits, labels = are_hits.sum(axis=1), (truths.shares > 0).sum(axis=1)
    # The sets and the labels that have each class.
    having = truths.occurrences(scores.num_classes)
    having[: found.having.shape[1]] += found.having.sum(axis=0)
    of_classes = np.bincount(truths.classes[are_hits], minlength=scores.num_classes)
    counted = having > 0
    return {
        "missed_labels": float(1 - (hits / labels).mean()),
        "example_f1": float((2 * hits / (found.sizes + labels)).mean()),
        "macro_f1": float((2 * of_classes[counted] / having[counted]).mean()),
    }


def _ranks_of_sets(by_rank: np.ndarray, tree: ClassTree) -> dict[str, Any]:
    """How good sets are at each rank; their mean height, of those that are not empty; names."""
    *of_ranks, heights, names = by_rank.T.astype(np.float64)
    pairs = zip(tree.ranks, of_ranks[::2], of_ranks[1::2], strict=False)
    answered = heights[heights >= 0]
    return {
        "ranks": {
            rank: {"coverage": float(hits.mean()), "set_size": float(sizes.mean())}
            for rank, hits, sizes in pairs
        },
        "height": float(answered.mean()) if answered.size else None,
        "names": float(names.mean()),
    }
