"""The sets of conformal rules, and their calibration on the predictions for a split."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from absl import logging
from jax.typing import ArrayLike

from topk_jax import sets
from train.data.taxonomy import HOW_TO_GIVE, ClassTree
from train.evaluation import score_files, thresholds
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.thresholds import NoLimitsError
from train.foundation.errors import UserError

Made = TypeVar("Made")

HOW_TO_GIVE_TAXONOMY = f"give --taxonomy, {HOW_TO_GIVE}"
# The clusters of classes are drawn from it.
_SEED = 0
# The weight of the limit of a class in the limits of "middle", and the largest "lac" score.
_MIDDLE, _LARGEST = 0.5, 1.0


@dataclass(frozen=True, eq=False)
class ConformalSets:
    """A conformal rule that is calibrated; called with probabilities [..., L], it makes their sets.

    Scores are not randomized: an example always has the same set.

    Attributes:
        rule: the rule.
        limits: the largest score that is in a set, [], or one for each class, [L]. For a rule
            without a score, the smallest probability that is in a set, [].
        class_counts: the training examples of each class, [L]; None if the rule does not need
            them.
        tree: what is above the classes; None if the rule does not need it.
    """

    rule: ConformalRule
    limits: np.ndarray
    class_counts: np.ndarray | None
    tree: ClassTree | None = None

    def __call__(self, probabilities: ArrayLike) -> jax.Array:
        """The sets, as booleans [..., L]."""
        if self.rule.score is None:
            return sets.threshold_set(probabilities, self.limits)
        if self.tree is not None:
            scores = sets.node_scores(probabilities, self.tree.taxonomy)
            return sets.score_set(scores, self.limits)
        return sets.conformal_set(probabilities, self.limits, **self.score)

    @property
    def score(self) -> dict[str, Any]:
        """The arguments of `topk_jax.sets.conformal_scores`; none if the rule has no score."""
        return _score(self.rule, self.class_counts)

    @property
    def num_in_every_set(self) -> int:
        """How many classes have an infinite limit."""
        return int(np.isposinf(self.limits).sum())

    @property
    def has_limits(self) -> bool:
        """Whether any class has a limit that its own examples give."""
        if self.rule.quantile != "middle" or self.limits.size == 1:
            return self.num_in_every_set < self.limits.size
        # Without any, all limits are halfway between one quantile and the largest score.
        first = self.limits[0]
        return bool(first < _MIDDLE * _LARGEST or (self.limits != first).any())

    def checked(self, coverage: float) -> "ConformalSets":
        """These sets, after a warning of classes that are in every set.

        Args:
            coverage: what the limits are calibrated for.

        Raises:
            NoLimitsError: every class is in every set, or would be but for a limit of all examples.
        """
        fewest = thresholds.fewest_examples(coverage)
        what = "cluster of classes" if self.rule.quantile == "clusters" else "class"
        needed = (
            f"the rule {self.rule.name} with a coverage of {coverage} needs at least {fewest} "
            f"examples of a {what} to calibrate on"
        )
        if not self.has_limits:
            raise NoLimitsError(
                f"{needed}, and no {what} has so many: give more examples, a lower coverage, or "
                "another rule, such as lac"
            )
        if number := self.num_in_every_set:
            logging.warning(
                "%s; %s of %s classes have fewer, and are in every set",
                *(needed, f"{number:,}", f"{self.limits.size:,}"),
            )
        return self


def why_not(
    rule: ConformalRule,
    scores: np.ndarray,
    class_counts: np.ndarray | None,
    tree: ClassTree | None = None,
) -> str | None:
    """Why a rule cannot be calibrated on scores [n, L]; None if it can."""
    if rule.needs_distribution and not score_files.are_probabilities(scores):
        return (
            f"the rule {rule.name} needs probabilities that add up to 1 for each example; these "
            "scores do not"
        )
    if rule.score is not None and not score_files.are_from_0_to_1(scores):
        return f"the rule {rule.name} needs probabilities, from 0 to 1; these scores are not"
    return why_not_with(rule, class_counts, tree)


def why_not_with(
    rule: ConformalRule, class_counts: np.ndarray | None, tree: ClassTree | None = None
) -> str | None:
    """Why a rule cannot be used with what is known of the classes; None if it can."""
    if rule.needs_taxonomy and tree is None:
        return f"the rule {rule.name} needs a taxonomy of the classes: {HOW_TO_GIVE_TAXONOMY}"
    if not rule.needs_class_counts:
        return None
    if class_counts is None:
        return (
            f"the rule {rule.name} needs the number of training examples of each class: give the "
            "file of --scores an array class_counts"
        )
    if class_counts.min() < 1:
        return (
            f"the rule {rule.name} needs training examples of every class; "
            f"{(class_counts < 1).sum()} of {len(class_counts)} classes have none"
        )
    return None


def calibrate(
    rule: ConformalRule,
    examples: Predictions,
    coverage: float,
    class_counts: np.ndarray | None,
    tree: ClassTree | None = None,
) -> ConformalSets:
    """Calibrates a rule: its sets have the label of a new example with the probability `coverage`.

    It warns of classes that are in every set, because too few examples have them.

    Args:
        rule: the rule.
        examples: those that it is calibrated on.
        coverage: the probability, at least.
        class_counts: the training examples of each class, [L], if they are known.
        tree: what is above the classes, if it is known.

    Raises:
        UserError: the examples are too few, or the rule needs something that is not there.
    """
    return without_check(rule, examples, coverage, class_counts, tree).checked(coverage)


def without_check(
    rule: ConformalRule,
    examples: Predictions,
    coverage: float,
    class_counts: np.ndarray | None,
    tree: ClassTree | None = None,
) -> ConformalSets:
    """`calibrate`, even if every class is in every set, for limits that are kept."""
    if reason := why_not(rule, examples.scores, class_counts, tree):
        raise UserError(reason)
    counts = class_counts if rule.needs_class_counts else None
    tree = tree if rule.needs_taxonomy else None
    if rule.score is None:
        threshold = thresholds.conformal_threshold(examples, coverage)
        return ConformalSets(rule, np.asarray(threshold), counts)
    if rule.quantile != "classes":
        thresholds.check_enough(len(examples.labels), coverage)
    limits = _quantiles(rule, examples, thresholds.error_in_binary(coverage), counts, tree)
    return ConformalSets(rule, np.asarray(limits), counts, tree)


def if_possible(
    make: Callable[[], Made], *, is_optional: bool, what: str = "examples"
) -> Made | None:
    """What a function makes; None, and a warning, if it is optional and has no limits."""
    try:
        return make()
    except NoLimitsError as error:
        if not is_optional:
            raise
        logging.warning("left out of the %s: %s", what, error)
        return None


def _quantiles(
    rule: ConformalRule,
    examples: Predictions,
    error: float,
    class_counts: np.ndarray | None,
    tree: ClassTree | None,
) -> jax.Array:
    """The quantile of the scores of the labels, [], or the quantiles of the classes, [L]."""
    score_of = partial(_label_scores, tree=tree, score=_score(rule, class_counts))
    if rule.quantile == "all" and examples.truths is not None:
        of_classes, shares = examples.of_known_truths(score_of)
        return sets.vote_quantile(of_classes, shares, error=error)
    labels = examples.drawn_labels
    scores = np.concatenate(
        [
            np.asarray(score_of(examples.scores[chunk], labels[chunk]))
            for chunk in chunks(examples.scores)
        ]
    )
    num_classes = examples.scores.shape[-1]
    if rule.quantile == "all":
        return sets.conformal_quantile(scores, labels, error=error)
    if rule.quantile == "classes":
        return sets.class_conditional_quantiles(
            scores, labels, error=error, num_classes=num_classes
        )
    if rule.quantile == "clusters":
        key = jax.random.key(_SEED)
        return sets.clustered_quantiles(
            scores, labels, key=key, error=error, num_classes=num_classes
        )
    return sets.interpolated_quantiles(
        scores, labels, error=error, weight=_MIDDLE, num_classes=num_classes
    )


def _label_scores(
    probabilities: np.ndarray, labels: np.ndarray, tree: ClassTree | None, score: dict[str, Any]
) -> jax.Array | np.ndarray:
    """The score of the label of each example, [n]."""
    if tree is None:
        return sets.conformal_label_scores(probabilities, labels, **score)
    scores = np.asarray(sets.node_scores(probabilities, tree.taxonomy))
    return scores[np.arange(len(labels)), labels]


def _score(rule: ConformalRule, class_counts: np.ndarray | None) -> dict[str, Any]:
    counts = {"class_counts": class_counts} if rule.needs_class_counts else {}
    return {**(rule.score or {}), **counts}
