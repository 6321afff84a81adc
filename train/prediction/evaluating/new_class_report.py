"""What is reported of sets that may say "none of these"."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from topk_jax import metrics
from train.evaluation import conformal_sets, new_classes, summaries
from train.evaluation.conformal_rules import DEFAULT, RULES, ConformalRule
from train.evaluation.predictions import Predictions
from train.evaluation.summaries import Sets
from train.prediction.calibration import Calibration
from train.prediction.outliers import OutlierScore


def report(
    examples: Predictions,
    score: OutlierScore,
    calibration: Calibration,
    coverages: Iterable[float],
    rules: Sequence[ConformalRule],
    *,
    are_rules_optional: bool,
) -> dict[str, Any]:
    """The quality of the sets, as files have it.

    Args:
        examples: the predictions, with outlier scores.
        score: the score.
        calibration: the thresholds.
        coverages: the coverages of the sets.
        rules: further conformal rules of the classes, beside the default one.
        are_rules_optional: whether a rule is left out at a coverage that it has no limits for.

    Raises:
        UserError: there are too few examples to calibrate on.
    """
    outliers, is_new = examples.outliers, ~examples.is_known
    assert outliers is not None
    every = (RULES[DEFAULT], *(rule for rule in rules if rule.name != DEFAULT))
    of_coverages = {}
    for coverage in coverages:
        limits = calibration.new_classes(coverage, score)
        alone = outliers > limits.known_to
        of_rules = {}
        for rule in every:
            of_classes = partial(
                calibration.sets_of, new_classes.coverage_of_classes(coverage), rule
            )
            classes = conformal_sets.if_possible(of_classes, is_optional=are_rules_optional)
            if classes is None:
                continue
            found = summaries.find_sets(examples, classes)
            kept = Sets(found.of_labels & ~alone, np.where(alone, 0, found.sizes))
            says_new = (kept.sizes == 0) | (outliers >= limits.new_from)
            of_rules[rule.name] = new_classes.rate(kept, says_new, is_new)
        of_coverages[f"{coverage}"] = {**vars(limits), "rules": of_rules}
    has_both = is_new.any() and not is_new.all()
    is_right = examples.ranks == 0
    return {
        "score": score.name,
        "score_in_words": score.in_words,
        "num_examples_of_unknown_classes": int(is_new.sum()),
        "auroc": float(metrics.auroc(outliers, is_new)) if has_both else None,
        "oscr_area": float(metrics.oscr_area(-outliers, is_right, is_new)) if has_both else None,
        "coverages": of_coverages,
    }
