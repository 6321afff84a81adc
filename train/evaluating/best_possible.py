"""What the best possible classifier reaches, for data whose true distribution is known."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from train.data import Examples, TrueDistribution
from train.data.classes import Classes
from train.reports import bayes
from train.reports.rows import rate
from train.reports.rules import SetRule

# The rules whose accuracies have a largest possible value.
_KINDS = ("top_k", "average_k")


def rows(
    law: TrueDistribution,
    examples: Examples,
    calibrating: Examples,
    classes: Classes,
    rules: Sequence[SetRule],
    *,
    is_balanced: bool,
) -> dict[str, dict[str, Any]]:
    """The largest coverage of rules, and the largest mean over classes, by the texts of the rules.

    The best over all examples are the probabilities p(y | x); the best over classes are in
    proportion to p(y | x) / p(y), and over examples, too, if all classes are equally frequent.
    """

    def rated(weights: np.ndarray | float) -> dict[str, dict[str, Any]]:
        best, on = (bayes.best(law, of, classes, weights) for of in (examples, calibrating))
        chosen = [rule for rule in rules if rule.name in _KINDS and rule.combination is None]
        return {str(rule): rate(best, rule.fit(on, "the best scores")) for rule in chosen}

    priors = law.class_probabilities
    over_classes = rated(priors.min() / priors)
    over_examples = over_classes if is_balanced else rated(1.0)
    return {
        text: {"coverage": row["coverage"], "macro": over_classes[text]["macro"]}
        for text, row in over_examples.items()
    }
