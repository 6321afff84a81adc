"""Sets that have the label of a new example with a probability: the conformal rules."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._rule import Rule, error_of, percent

__all__ = ["CONFORMAL"]

# The clusters of classes are drawn from it.
_SEED = 0
# The weight of the limit of a class in the limits of "middle".
_MIDDLE = 0.5


class Conformal(NamedTuple):
    """A conformal rule."""

    # The arguments of `conformal_scores`, without class counts; the kind "taxonomic" is
    # `node_scores`. None for the classes above a smallest score.
    score: Mapping[str, Any] | None
    # After "The score of a class is".
    score_in_words: str = ""
    # Whether the probabilities of an example must add up to 1.
    needs_distribution: bool = False
    # The examples of a quantile. "middle" is halfway between all and those of each class.
    quantile: Literal["all", "classes", "clusters", "middle"] = "all"


_LAC: Mapping[str, Any] = {"kind": "lac"}
_LAC_IN_WORDS = "1 minus its score"
_LIKELIER = "the sum of the probabilities of likelier classes"

# Quantiles are valid for any parameters of scores. The authors use values of this size.
CONFORMAL: Mapping[str, Conformal] = {
    "lac": Conformal(None),
    "aps": Conformal({"kind": "aps"}, _LIKELIER, True),
    "raps": Conformal(
        {"kind": "raps", "rank_penalty": 0.01, "unpenalized_ranks": 5},
        f"{_LIKELIER}, plus 0.01 for each rank beyond the fifth",
        True,
    ),
    "saps": Conformal(
        {"kind": "saps", "rank_penalty": 0.2},
        "0 for the likeliest class; for another it is the probability of the likeliest class, plus "
        "0.2 for each rank beyond the second",
        True,
    ),
    "margin": Conformal({"kind": "margin"}, "the largest score of another class, minus its own"),
    "pas": Conformal({"kind": "pas"}, "minus its score divided by its frequency in training"),
    "class_conditional": Conformal(_LAC, _LAC_IN_WORDS, False, "classes"),
    "clustered": Conformal(_LAC, _LAC_IN_WORDS, False, "clusters"),
    "interpolated": Conformal(_LAC, _LAC_IN_WORDS, True, "middle"),
    "taxonomic": Conformal(
        {"kind": "taxonomic"},
        "0 for the likeliest class; for another it is the probability of the largest genus or "
        "other part of the taxonomy that has the likeliest class but not this one",
        True,
    ),
}
# Whose sets have the label of which examples, beside a probability.
_AMONG = {
    "classes": ", whichever class it is",
    # A class without a cluster has the limit of all examples, which may be too low for it.
    "clusters": ", on average over the classes of its cluster, if its class has one",
}


class Coverage(Rule):
    """The classes that conform as well as the labels of most calibration examples."""

    name = "coverage"

    @property
    def _rule(self) -> Conformal:
        return CONFORMAL[str(self.conformal)]

    @property
    def _error_of_classes(self) -> Decimal:
        """The error of the classes: half of it beside "none of these"."""
        return error_of(self.value) / (2 if self.says_new else 1)

    @property
    def promised(self) -> float:
        return self._promised(error_of(self.value))

    def _promised(self, error: Decimal) -> float:
        # Halfway between two quantiles, only twice the error is bounded.
        return max(0.0, float(1 - error * (2 if self._rule.quantile == "middle" else 1)))

    def find_limits(self, examples: Calibration) -> ArrayLike:
        rule, error = self._rule, float(self._error_of_classes)
        if rule.needs_distribution:
            examples.check_distributions()
        needed = {"pas": "class_counts", "taxonomic": "taxonomy"}.get(str(self.conformal))
        own = {} if needed is None else {needed: examples.given(needed)}
        by_one = rule.quantile in ("classes", "middle")
        examples.check_number(1 / self._error_of_classes, by_class=by_one)
        # Conformal scores are small for likely classes. The limit of "lac" is a probability.
        sign = -1 if rule.score is None else 1

        def score(scores: np.ndarray, labels: np.ndarray) -> ArrayLike:
            if rule.score is not None and self.conformal != "taxonomic":
                return sets.conformal_label_scores(scores, labels, **rule.score, **own)
            of_classes = -scores if rule.score is None else sets.node_scores(scores, **own)
            return np.take_along_axis(np.asarray(of_classes), labels[:, None], axis=-1)[:, 0]

        if rule.quantile == "all" and examples.shares is not None:
            of_votes = [examples.map(score, one) for one in examples.classes.T]
            votes = examples.shares
            return sign * sets.vote_quantile(np.stack(of_votes, axis=1), votes, error=error)
        of_labels, labels = examples.map(score, examples.labels), examples.labels
        by_class: dict[str, Any] = {"error": error, "num_classes": examples.num_classes}
        if rule.quantile == "classes":
            return sets.class_conditional_quantiles(of_labels, labels, **by_class)
        if rule.quantile == "clusters":
            return sets.clustered_quantiles(
                of_labels, labels, key=jax.random.key(_SEED), **by_class
            )
        if rule.quantile == "middle":
            return sets.interpolated_quantiles(of_labels, labels, weight=_MIDDLE, **by_class)
        return sign * sets.conformal_quantile(of_labels, labels, error=error)

    def choose(self, scores: jax.Array) -> jax.Array:
        limits, tree, score = self.fitted_limits, self.taxonomy, self._rule.score
        if score is None:
            return super().choose(scores)
        if tree is not None and self.conformal == "taxonomic":
            return sets.score_set(sets.node_scores(scores, tree), limits)
        counts = {} if self.class_counts is None else {"class_counts": self.class_counts}
        return sets.conformal_set(scores, limits, **{**score, **counts})

    def describe_effect(self) -> str:
        return (
            f"from {self.on}, the true class of a new one like them is in its set with a "
            f"probability of at least {percent(self._promised(self._error_of_classes))}"
            f"{_AMONG.get(self._rule.quantile, '')}."
        )

    def describe_sets(self) -> str:
        rule, limits = self._rule, self.limits
        if rule.score is None:
            return super().describe_sets()
        limit, these = "the limit of the class", "these limits"
        if rule.quantile == "all":
            limit, these = "a limit" if limits is None else f"{float(limits):.4g}", "this limit"
        words = (
            f"Each set has the classes whose conformal score is at most {limit}. The conformal "
            f"score of a class is {rule.score_in_words}. With {these}, {self.describe_effect()}"
        )
        if limits is not None and (number := int(np.isposinf(limits).sum())):
            words += (
                f" Classes with too few of these examples for that are in every set: {number:,}."
            )
        return words
