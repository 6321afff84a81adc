"""The report of a classifier's sets on labelled examples: one row for each rule.

Whatever the scores are from, it has the same fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from absl import logging

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.data.truths import SEVERAL
from train.foundation.errors import UserError
from train.foundation.printable import printable
from train.reports import evaluated
from train.reports.examples import confusions
from train.reports.measuring import measure
from train.reports.rows import MOST_LISTED, Evaluated, class_rows, row_of
from train.reports.rules import SetRule, parse
from train.scores.observations import (
    Combination,
    Observations,
    combine,
    have_labels,
    have_several,
    numbered,
)
from train.scores.scores import Scores

USUAL_COVERAGES = (0.8, 0.9, 0.95)
# Scores of a few classes of all examples, which are sorted together.
_MOST_SORTED = 2**24


def usual(ks: Sequence[int], coverages: Sequence[float] = USUAL_COVERAGES) -> list[str]:
    """The texts of the rules that are reported if nobody asks for others."""
    of_ks = [f"{name}={k}" for name in ("top_k", "average_k") for k in ks]
    return of_ks + [f"coverage={coverage}" for coverage in coverages]


def report(
    scores: Scores,
    calibration: Scores | None,
    texts: Sequence[str],
    *,
    on: str,
    fitted: Mapping[str, SetRule] = {},
    is_optional: bool,
    full: bool = False,
) -> dict[str, Any]:
    """The report, as files have it.

    Observations are reported too if examples have groups of several: by the same rules, and by
    those whose text has `combine`, which are of observations alone.

    Args:
        scores: the scores of the examples.
        calibration: those of the examples to calibrate on; None if nothing is calibrated.
        texts: the rules.
        on: the examples to calibrate on, in words.
        fitted: rules that have their limits, by their texts.
        is_optional: whether a rule that cannot be fitted is left out, with a warning.
        full: whether all classes and confusions are listed, in place of five.

    Raises:
        UserError: there are no examples of known classes, or a rule cannot be fitted.
    """
    examples = Evaluated(scores)
    rules = fit(scores, calibration, texts, on=on, fitted=fitted, is_optional=is_optional)
    single = {text: rule for text, rule in rules.items() if rule.combination is None}
    found = _described(examples, single, full=full)
    combined = [rule for rule in rules.values() if rule.combination is not None]
    if combined:
        found["observations"] = _of_observations(scores, combined, full=full)
    return found


def fit(
    scores: Scores,
    calibration: Scores | None,
    texts: Sequence[str],
    *,
    on: str,
    fitted: Mapping[str, SetRule] = {},
    is_optional: bool,
) -> dict[str, SetRule]:
    """The rules of a report with their limits, by their texts, with those of observations.

    Args, Raises: as `report`.
    """
    asked = [parse(text) for text in texts]
    parts = [scores] if calibration is None else [scores, calibration]
    if any(rule.rule.conformal not in (None, "lac") for rule in asked) and (
        len({part.are_probabilities() for part in parts}) == 2
    ):
        raise UserError(
            "the scores to calibrate on and those to evaluate must both be probabilities that add "
            "up to 1 for each example, or neither"
        )
    combined: dict[Combination, tuple[Combination, Scores]] = {}

    def with_limits(rule: SetRule) -> SetRule:
        source = calibration if rule.needs_limits else scores
        if str(rule) in fitted:
            return fitted[str(rule)]
        if source is None:
            raise UserError(f"{rule}: there are no examples to calibrate on")
        if rule.combination is None or not rule.needs_limits:
            return rule.fit(source, on)
        if rule.combination not in combined:
            combined[rule.combination] = rule.combine(source)
        combination, pooled = combined[rule.combination]
        whole = replace(rule, combination=combination)
        return whole.fit(pooled, f"observations of {on}", are_combined=True)

    single = [rule for rule in asked if rule.combination is None]
    wanted = [(rule, is_optional) for rule in single]
    if _have_observations(parts):
        # There are fewer observations than examples: what they are too few for is left out. And
        # they have no outlier scores.
        of_groups = (
            replace(rule, combination=Combination()) for rule in single if not rule.says_new
        )
        wanted += [
            (rule, True)
            for rule in of_groups
            if calibration is not None or not rule.needs_limits or str(rule) in fitted
        ]
    wanted += [(rule, is_optional) for rule in asked if rule.combination is not None]
    found: dict[str, SetRule] = {}
    left_out: dict[str, list[str]] = {}
    for rule, may_lack in wanted:
        try:
            found[str(rule)] = with_limits(rule)
        except UserError as error:
            if not may_lack:
                raise
            left_out.setdefault(str(error).removeprefix(f"{rule}: "), []).append(str(rule))
    for reason, names in left_out.items():
        logging.warning("left out: %s: %s", "; ".join(names), reason)
    return found


def _have_observations(parts: Sequence[Scores]) -> bool:
    """Whether examples have groups of several that can be reported; warns of others."""
    if any(part.groups is None for part in parts) or not any(map(have_several, parts)):
        return False
    why_not = ""
    if not all(part.are_from_0_to_1() for part in parts):
        why_not = "logarithms of scores are added up, and these scores are not from 0 to 1"
    elif not all(map(have_labels, parts)):
        why_not = "each of them has examples of several classes"
    if why_not:
        logging.warning("nothing is reported of observations: %s", why_not)
    return not why_not


def _of_observations(scores: Scores, rules: Sequence[SetRule], *, full: bool) -> dict[str, Any]:
    """The report of observations: of the first combination, with rows of all.

    The text of a row has `combine` if it is another one.
    """
    by_combination: dict[Combination, list[SetRule]] = {}
    for rule in rules:
        assert rule.combination is not None
        by_combination.setdefault(rule.combination, []).append(rule)
    found: dict[str, Any] = {}
    for combination, alike in by_combination.items():
        observations = combine(scores, combination)
        rows = {str(rule) if found else str(rule.rule): rule for rule in alike}
        part = _described(Evaluated(observations.scores), rows, full=full)
        if not found:
            found = {**_sizes(observations, combination), **part}
        else:
            found["sets"] |= part["sets"]
    return found


def _sizes(found: Observations, combination: Combination) -> dict[str, Any]:
    """The numbers of examples of observations, and how these were combined."""
    fields: dict[str, Any] = {
        "combined_by": combination.name,
        "mean_num_combined": float(found.sizes.mean()),
        "most_combined": int(found.sizes.max()),
    }
    if combination.weights is not None:
        fields["weights"] = list(combination.weights)
    if found.num_ambiguous:
        fields["num_of_several_classes"] = found.num_ambiguous
    return fields


def _described(examples: Evaluated, ready: Mapping[str, SetRule], *, full: bool) -> dict[str, Any]:
    """The report of single examples, or of observations."""
    known, unknown = examples.known, examples.unknown
    calibrated = [rule.calibrated_on for rule in ready.values() if rule.calibrated_on is not None]
    measured = {text: measure(known, rule) for text, rule in ready.items()}
    counted = known.counted_labels
    found: dict[str, Any] = {
        "examples": len(known),
        "classes": known.values.shape[1],
        "loss": known.mean_loss(),
        "calibrated_on": (
            {"on": calibrated[0].on, "examples": calibrated[0].examples} if calibrated else None
        ),
        "evaluated": evaluated.to_json(
            counted[counted < known.values.shape[1]],
            len(known),
            known.classes.counts,
            known.classes.names,
        ),
        "sets": {text: row_of(examples, ready[text], one) for text, one in measured.items()},
    }
    if have_several(known):
        assert known.groups is not None
        found["groups"] = len(numbered(known.groups)[0])
    if unknown is not None:
        numbers = np.bincount(unknown.labels)
        names = {
            printable(examples.all.class_names[label]): int(numbers[label])
            for label in np.flatnonzero(numbers).tolist()
        }
        found["unknown_classes"] = {"examples": len(unknown), "classes": names}
    if (mean_precision := mean_average_precision(known)) is not None:
        found["mean_average_precision"] = mean_precision
    if known.classes.tree is not None:
        ks = [int(rule.value) for rule in ready.values() if rule.name == "top_k"]
        found |= ranks(known, known.classes.tree, ks)
    if any(rule.says_new for rule in ready.values()) and unknown is not None:
        outliers, is_new = examples.all.outliers, ~examples.all.known
        assert outliers is not None
        is_right = examples.all.ranks == 0
        found["none_of_these"] = {
            "auroc": float(metrics.auroc(outliers, is_new)),
            "oscr_area": float(metrics.oscr_area(-outliers, is_right, is_new)),
        }
    predicted = examples.all.map(lambda part: part.argmax(axis=1))
    most = None if full else MOST_LISTED
    if measured:
        text, first = next(iter(measured.items()))
        rows = class_rows(examples, first)
        found["classes_by_coverage"] = {
            "rule": text,
            "worst": rows[:most],
            "best": sorted(rows, key=lambda row: (-row["coverage"], -row["examples"]))[:most],
        }
    found["confusions"] = [
        {
            "label": examples.all.class_names[one.label],
            "predicted": examples.all.class_names[one.predicted],
            "examples": one.examples,
        }
        for one in confusions(examples.all.labels, predicted)[:most]
    ]
    return found


def ranks(scores: Scores, tree: ClassTree, ks: Sequence[int]) -> dict[str, Any]:
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


def mean_average_precision(scores: Scores) -> float | None:
    """The mAP over the classes that are a label; None unless labels are several."""
    truths = scores.truths
    if truths is None or truths.kind != SEVERAL:
        return None
    number, num_classes = scores.values.shape
    width = max(1, _MOST_SORTED // number)
    total, counted = 0.0, 0
    for start in range(0, num_classes, width):
        values = scores.map(lambda part, first=start: part[:, first : first + width])
        places = truths.classes - start
        rows, columns = np.nonzero((truths.shares > 0) & (places >= 0) & (places < values.shape[1]))
        targets = np.zeros(values.shape, bool)
        targets[rows, places[rows, columns]] = True
        present = int(targets.any(axis=0).sum())
        if present:
            total += present * float(metrics.mean_average_precision(values, targets))
            counted += present
    return total / counted if counted else None
