"""The part of a rule that adds "none of these"."""

from dataclasses import dataclass

import jax

from train.evaluation import new_classes
from train.evaluation.new_classes import NewClassLimits
from train.prediction.outliers import OutlierScore


@dataclass(frozen=True)
class NewClassRule:
    """The outlier score of a classifier and its limits.

    Attributes:
        score: the score.
        limits: its limits.
    """

    score: OutlierScore
    limits: NewClassLimits

    def add(self, answer: tuple[jax.Array, ...], inputs: jax.Array) -> tuple[jax.Array, ...]:
        """The answer for inputs [n, ...] with who has "none of these" at its end, [n].

        Args:
            answer: the sets [n, L], and the nodes that name them [n, V] if sets have names; the
                returned ones are empty if the answer is only "none of these".
            inputs: what the classifier takes.
        """
        outliers = self.score.of_inputs(inputs)
        kept, says_new = zip(
            *(self.limits.apply(members, outliers) for members in answer), strict=True
        )
        return *kept, says_new[0] | ~kept[0].any(axis=-1)

    def in_words(self, coverage: float, calibrated_on: str) -> str:
        """Sentences that explain it.

        Args:
            coverage: the probability that a set is right.
            calibrated_on: the examples that the limits are from, in words.
        """
        share = 100 * float(new_classes.error_of_limit(coverage))
        limits = self.limits
        beside = (
            f" From a score of {limits.new_from:.4g} on it is beside the classes."
            if limits.new_from <= limits.known_to
            else ""
        )
        return (
            "A set may have 'none of these'. It is the whole answer if the outlier score of an "
            f"example, {self.score.in_words}, exceeds {limits.known_to:.4g}: of new examples of "
            f"known classes like {calibrated_on}, at most {share:.10g}% have such a score.{beside} "
            "An empty set is such an answer, too. For all new examples like these, of known "
            "classes or of classes that none of these has, the set is right with a probability of "
            f"at least {100 * coverage:.10g}%."
        )
