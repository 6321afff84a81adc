"""The report of a classifier's sets on labelled examples: one row for each rule.

Whatever the scores are from, it has the same fields.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from absl import logging

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.data.truths import SEVERAL
from train.foundation.console import printable
from train.foundation.errors import UserError
from train.reports import summaries
from train.reports.examples import confusions
from train.reports.rows import MOST_LISTED, class_rows, divided, measure, rate, row_of
from train.reports.rules import SetRule
from train.scores.observations import Combination, combine, have_labels, have_several
from train.scores.scores import Scores

USUAL_COVERAGES = (0.8, 0.9, 0.95)
# Scores of a few classes of all examples, which are sorted together.
_MOST_SORTED = 2**24


def usual(ks: Sequence[int]) -> list[str]:
    """The texts of the rules that are reported if nobody asks for others."""
    of_ks = [f"{name}={k}" for name in ("top_k", "average_k") for k in ks]
    return of_ks + [f"coverage={coverage}" for coverage in USUAL_COVERAGES]


def fit(
    rules: Sequence[SetRule],
    scores: Scores,
    with_limits: Callable[[SetRule], SetRule],
    *,
    is_optional: bool,
) -> dict[str, SetRule]:
    """The fitted rules of a report, by their texts.

    If examples have groups of several, the rules are fitted for observations, too. There are fewer
    of these than examples, so what they are too few for is left out, with a warning.

    Args:
        rules: the rules.
        scores: the scores of the examples that are evaluated.
        with_limits: gives a rule its limits.
        is_optional: whether each rule that cannot be fitted is left out.

    Raises:
        UserError: a rule cannot be fitted, or there are no examples of known classes.
    """
    if not scores.known.any():
        raise UserError("none of the examples is of a class that the classifier knows")
    of_examples = [rule for rule in rules if rule.combination is None]
    wanted = [(rule, is_optional) for rule in of_examples]
    if _have_observations(scores):
        # They have no outlier scores.
        wanted += [
            (replace(rule, combination=Combination()), True)
            for rule in of_examples
            if not rule.says_new
        ]
    wanted += [(rule, is_optional) for rule in rules if rule.combination is not None]
    found: dict[str, SetRule] = {}
    left_out: dict[str, list[str]] = {}
    for rule, may_lack in wanted:
        text = str(rule)
        try:
            if text not in found:
                found[text] = with_limits(rule) if rule.needs_limits else rule.fit(scores, "")
        except UserError as error:
            reason = str(error).removeprefix(f"{text}: ")
            if not may_lack:
                raise UserError(f"{text}: {reason}") from error
            left_out.setdefault(reason, []).append(text)
    for reason, texts in left_out.items():
        logging.warning("left out: %s: %s", "; ".join(texts), reason)
    return found


def report(scores: Scores, rules: Mapping[str, SetRule], *, full: bool = False) -> dict[str, Any]:
    """The report, as files have it.

    Args:
        scores: the scores of the examples.
        rules: the fitted rules by their texts; those with a combination are of observations.
        full: whether all classes and confusions are listed, in place of five.
    """
    by_combination: dict[Combination | None, dict[str, SetRule]] = {None: {}}
    for text, rule in rules.items():
        by_combination.setdefault(rule.combination, {})[text] = rule
    found = _described(scores, by_combination.pop(None), full=full)
    # Of the first combination, with rows of all; a row's text has `combine` if it is another one.
    for combination, alike in by_combination.items():
        assert combination is not None
        observations = combine(scores, combination)
        if "observations" in found:
            rows = {text: rate(observations.scores, rule) for text, rule in alike.items()}
            found["observations"]["sets"] |= rows
            continue
        of_texts = {str(rule.rule): rule for rule in alike.values()}
        found["observations"] = {
            "combined_by": combination.name,
            "weights": combination.weights,
            "mean_num_combined": float(observations.sizes.mean()),
            "most_combined": int(observations.sizes.max()),
            "num_of_several_classes": observations.num_ambiguous,
            **_described(observations.scores, of_texts, full=full),
        }
    return found


def _have_observations(scores: Scores) -> bool:
    """Whether examples have groups of several that can be reported; warns of others."""
    if not have_several(scores):
        return False
    why_not = ""
    if not scores.are_from_0_to_1():
        why_not = "logarithms of scores are added up, and these scores are not from 0 to 1"
    elif not have_labels(scores.of_known()):
        why_not = "each of them has examples of several classes"
    if why_not:
        logging.warning("nothing is reported of observations: %s", why_not)
    return not why_not


def _described(scores: Scores, rules: Mapping[str, SetRule], *, full: bool) -> dict[str, Any]:
    """The report of single examples, or of observations."""
    (known, unknown), classes = divided(scores), scores.classes
    counted = known.counted_labels
    on = [one for rule in rules.values() if (one := rule.calibrated_on) is not None]
    found: dict[str, Any] = {
        "examples": len(known),
        "classes": len(classes),
        "loss": known.mean_loss(),
        "calibrated_on": {"on": on[0].on, "examples": on[0].examples} if on else None,
        "evaluated": summaries.counted(
            counted[counted < len(classes)], len(known), classes.counts, classes.names
        ),
        "sets": {},
    }
    if have_several(known):
        assert known.numbered_groups is not None
        found["groups"] = len(known.numbered_groups[0])
    if unknown is not None:
        found |= _of_unknown(scores, says_new=any(rule.says_new for rule in rules.values()))
    if known.truths is not None and known.truths.kind == SEVERAL:
        found["mean_average_precision"] = _mean_average_precision(known)
    if classes.tree is not None:
        ks = [int(rule.value) for rule in rules.values() if rule.name == "top_k"]
        found |= _ranks(known, classes.tree, ks)
    most = None if full else MOST_LISTED
    for text, rule in rules.items():
        sets = measure(known, rule)
        found["sets"][text] = row_of(scores, known, unknown, rule, sets)
        if "classes_by_coverage" not in found:
            rows = class_rows(known, sets)
            best = sorted(rows[MOST_LISTED:], key=lambda row: (-row["coverage"], -row["examples"]))
            by = {"rule": text, "worst": rows[:most], "best": best[:MOST_LISTED]}
            found["classes_by_coverage"] = by
    names, predicted = scores.class_names, scores.map(lambda part: part.argmax(axis=1))
    found["confusions"] = [
        {
            "label": names[one.label],
            "predicted": names[one.predicted],
            "examples": one.examples,
        }
        for one in confusions(scores.labels, predicted)[:most]
    ]
    return found


def _of_unknown(scores: Scores, *, says_new: bool) -> dict[str, Any]:
    """The examples of unknown classes, and how well outlier scores tell them if these are used."""
    is_new = ~scores.known
    labels, numbers = np.unique(scores.labels[is_new], return_counts=True)
    names = (printable(scores.class_names[label]) for label in labels)
    classes = dict(zip(names, numbers.tolist(), strict=True))
    found: dict[str, Any] = {"unknown_classes": {"examples": int(is_new.sum()), "classes": classes}}
    if says_new and scores.outliers is not None:
        found["none_of_these"] = {
            "auroc": float(metrics.auroc(scores.outliers, is_new)),
            "oscr_area": float(metrics.oscr_area(-scores.outliers, scores.ranks == 0, is_new)),
        }
    return found


def _ranks(scores: Scores, tree: ClassTree, ks: Sequence[int]) -> dict[str, Any]:
    """The top-K accuracies of the ranks above the classes, and how bad mistakes are.

    Returns:
        "ranks": for each rank its number of nodes, and its accuracies for each K up to that number.
        Probabilities of nodes are sums, so there is nothing for scores that do not add up to 1.
        "mistake_height": the mean height of the lowest node with the likeliest class and the label
        over the mistakes, if there are some.
    """
    heights = scores.map(partial(_mistake_heights, tree=tree), scores.labels)
    mistakes = heights[heights > 0]
    found: dict[str, Any] = {"mistake_height": float(mistakes.mean())} if mistakes.size else {}
    if not scores.are_probabilities():
        return found
    found["ranks"] = {}
    for depth, rank in enumerate(tree.ranks[:-1], start=1):
        nodes = len(np.unique(tree.taxonomy.ancestors[:, depth]))
        places = scores.map(partial(_ancestor_ranks, tree=tree, depth=depth), scores.labels)
        of_ks = {f"top_k={k}": float((places < k).mean()) for k in ks if k <= nodes}
        found["ranks"][rank] = {"nodes": nodes, **of_ks}
    return found


@partial(jax.jit, static_argnames=("tree", "depth"))
def _ancestor_ranks(
    scores: jax.Array, labels: jax.Array, *, tree: ClassTree, depth: int
) -> jax.Array:
    return metrics.ancestor_ranks(scores, labels, tree.taxonomy, depth=depth)


@partial(jax.jit, static_argnames="tree")
def _mistake_heights(scores: jax.Array, labels: jax.Array, *, tree: ClassTree) -> jax.Array:
    return metrics.mistake_heights(scores.argmax(axis=-1), labels, tree.taxonomy)


def _mean_average_precision(scores: Scores) -> float:
    """The mAP over the classes that are a label."""
    truths = scores.truths
    assert truths is not None
    number, num_classes = scores.values.shape
    width = max(1, _MOST_SORTED // number)
    total, counted = 0.0, 0
    for start in range(0, num_classes, width):
        values = scores.map(lambda part, first=start: part[:, first : first + width])
        places = truths.classes - start
        rows, columns = np.nonzero((truths.shares > 0) & (places >= 0) & (places < values.shape[1]))
        targets = np.zeros(values.shape, bool)
        targets[rows, places[rows, columns]] = True
        if present := int(targets.any(axis=0).sum()):
            total += present * float(metrics.mean_average_precision(values, targets))
            counted += present
    return total / counted
