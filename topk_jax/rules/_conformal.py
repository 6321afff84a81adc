"""Sets that have the label of a new example with a probability: the conformal rules."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules import _sorting
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._numbers import error_in_binary, error_of, percent
from topk_jax.rules._promise import TooFewError, check_enough, fewest_examples
from topk_jax.rules._rule import Rule, each_example
from topk_jax.rules._thresholds import check_probabilities, describe_threshold

# The clusters of classes are drawn from it.
_SEED = 0
# The weight of the limit of a class in the limits of "middle", and the largest score "lac".
_MIDDLE, _LARGEST = 0.5, 1.0


class Conformal(NamedTuple):
    """A conformal rule.

    Attributes:
        words: what its sets are, for lists of rules.
        score: the arguments of `topk_jax.sets.conformal_scores`, without class counts; the kind
            "taxonomic" is `topk_jax.sets.node_scores`. None for the classes above a smallest score.
        score_in_words: the score of a class, after "The score of a class is".
        needs_distribution: whether the probabilities of an example must add up to 1.
        quantile: the examples of a quantile: all, those of each class, or of each cluster of
            classes. "middle" is halfway between the first two.
    """

    words: str
    score: Mapping[str, Any] | None
    score_in_words: str = ""
    needs_distribution: bool = False
    quantile: Literal["all", "classes", "clusters", "middle"] = "all"


_LAC: Mapping[str, Any] = {"kind": "lac"}
_LAC_IN_WORDS = "1 minus its probability"
_LIKELIER = "the sum of the probabilities of likelier classes"

# Quantiles are valid for any parameters of scores. The authors use values of this size.
CONFORMAL: Mapping[str, Conformal] = {
    "lac": Conformal("the classes above one probability, the smallest sets", None),
    "aps": Conformal("larger for ambiguous examples", {"kind": "aps"}, _LIKELIER, True),
    "raps": Conformal(
        "the same, with fewer unlikely classes",
        {"kind": "raps", "rank_penalty": 0.01, "unpenalized_ranks": 5},
        f"{_LIKELIER}, plus 0.01 for each rank beyond the fifth",
        True,
    ),
    "saps": Conformal(
        "the same, for probabilities that are badly calibrated",
        {"kind": "saps", "rank_penalty": 0.2},
        "0 for the likeliest class; for another it is the probability of the likeliest class, plus "
        "0.2 for each rank beyond the second",
        True,
    ),
    "margin": Conformal(
        "the classes that are not far below the likeliest",
        {"kind": "margin"},
        "the largest probability of another class, minus its own",
    ),
    "pas": Conformal(
        "more of the rare classes",
        {"kind": "pas"},
        "minus its probability divided by its frequency in training",
    ),
    "class_conditional": Conformal(
        "have the label of each class with that probability", _LAC, _LAC_IN_WORDS, False, "classes"
    ),
    "clustered": Conformal(
        "the same for clusters of similar classes", _LAC, _LAC_IN_WORDS, False, "clusters"
    ),
    "interpolated": Conformal(
        "halfway between lac and class_conditional", _LAC, _LAC_IN_WORDS, True, "middle"
    ),
    "taxonomic": Conformal(
        "sets with a name, such as a genus",
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
    words = "have the label of a new example with that probability"

    @property
    def _rule(self) -> Conformal:
        return CONFORMAL[str(self.conformal)]

    @property
    def coverage_of_classes(self) -> float:
        """The coverage of the classes, which have half of the error beside "none of these"."""
        coverage = float(self.value)
        return float(1 - error_of(coverage) / 2) if self.says_new else coverage

    @property
    def promised(self) -> float:
        return self._promised(float(self.value))

    def _promised(self, coverage: float) -> float:
        # Halfway between two quantiles, only twice the error is bounded.
        twice = self._rule.quantile == "middle"
        return max(0.0, float(1 - 2 * error_of(coverage))) if twice else coverage

    def check(self, examples: Calibration) -> None:
        rule = self._rule
        if rule.needs_distribution:
            check_probabilities(self, examples)
        if rule.score is not None and not examples.are_from_0_to_1():
            raise ValueError(
                f"the rule {self.conformal} needs probabilities, from 0 to 1; these scores are not"
            )
        if self.conformal == "pas":
            examples.counts_for("the rule pas")

    def find_limits(self, examples: Calibration) -> ArrayLike:
        rule, coverage = self._rule, self.coverage_of_classes
        error: dict[str, Any] = {"error": error_in_binary(coverage)}
        if rule.quantile != "classes":
            check_enough(len(examples), coverage)

        def score(scores: np.ndarray, labels: np.ndarray) -> ArrayLike:
            return _label_scores(self, examples, scores, labels)

        if rule.quantile == "all":
            if examples.shares is not None:
                of_classes = [examples.map(score, one) for one in examples.classes.T]
                found = sets.vote_quantile(np.stack(of_classes, axis=1), examples.shares, **error)
            else:
                # The scores have a single class: their quantile is that of all examples.
                of_labels = examples.map(score, examples.labels)
                only_class = np.zeros(len(examples), np.int32)
                found = sets.conformal_quantile(of_labels, only_class, **error)
            return found if rule.score is not None else -found
        of_labels, labels = examples.map(score, examples.labels), examples.labels
        error["num_classes"] = examples.num_classes
        if rule.quantile == "classes":
            found = sets.class_conditional_quantiles(of_labels, labels, **error)
        elif rule.quantile == "clusters":
            key = jax.random.key(_SEED)
            found = sets.clustered_quantiles(of_labels, labels, key=key, **error)
        else:
            found = sets.interpolated_quantiles(of_labels, labels, weight=_MIDDLE, **error)
        if not _has_limits(rule, np.asarray(found)):
            what = "cluster of classes" if rule.quantile == "clusters" else "class"
            raise TooFewError(
                f"the rule {self.conformal} with a coverage of {coverage} needs at least "
                f"{fewest_examples(error_of(coverage))} examples of a {what} to calibrate on, and "
                f"no {what} has so many: give more examples, a lower coverage, or another rule, "
                "such as lac"
            )
        return found

    def choose(self, scores: jax.Array) -> jax.Array:
        limits, tree, score = self.fitted_limits, self.taxonomy, self._rule.score
        if score is None:
            return sets.threshold_set(scores, limits)
        if score["kind"] == "taxonomic":
            if tree is None:
                raise ValueError(f"{self} needs a taxonomy of the classes: call rules.fit")
            return each_example(
                lambda row: sets.score_set(sets.node_scores(row, tree), limits), scores
            )
        counts: dict[str, Any] = {}
        if self.conformal == "pas":
            counts["class_counts"] = self.class_counts
        return each_example(lambda row: sets.conformal_set(row, limits, **score, **counts), scores)

    def choose_by_sorting(self, scores: jax.Array) -> jax.Array:
        limits, score = self.fitted_limits, self._rule.score
        if score is None or score["kind"] not in _sorting.ORDERED:
            return self.choose(scores)
        return _sorting.ordered_sets(scores, limits, **score)

    def describe_sets(self) -> str:
        rule, coverage = self._rule, self.coverage_of_classes
        promise = (
            f"from {self.on}, the true class of a new one like them is in its set with a "
            f"probability of at least {percent(self._promised(coverage))}"
            f"{_AMONG.get(rule.quantile, '')}."
        )
        if rule.score is None:
            return f"{describe_threshold(self)} With this threshold, {promise}"
        limit, these = "the limit of the class", "these limits"
        if rule.quantile == "all":
            limit, these = "a limit", "this limit"
            if self.limits is not None:
                limit = f"{float(self.limits):.4g}"
        words = (
            f"Each set has the classes whose score is at most {limit}. The score of a class is "
            f"{rule.score_in_words}. With {these}, {promise}"
        )
        number = self.num_in_every_set
        if number == 0:
            return words
        classes, verb = (
            ("1 class has", "is") if number == 1 else (f"{number:,} classes have", "are")
        )
        few = self.on.removeprefix("the ")
        few = few if few.startswith(("validation", "calibration")) else "of these examples"
        return f"{words} {classes} too few {few} for that and {verb} in every set."


def _label_scores(
    rule: Coverage, examples: Calibration, scores: np.ndarray, labels: np.ndarray
) -> ArrayLike:
    """The conformal scores of a label of each example, [c]."""
    score = CONFORMAL[str(rule.conformal)].score
    places = labels[:, None]
    if score is None:
        return -np.take_along_axis(scores, places, axis=-1)[:, 0]
    if score["kind"] == "taxonomic":
        assert examples.taxonomy is not None
        of_classes = np.asarray(sets.node_scores(scores, examples.taxonomy))
        return np.take_along_axis(of_classes, places, axis=-1)[:, 0]
    counts: dict[str, Any] = {}
    if rule.conformal == "pas":
        counts["class_counts"] = examples.class_counts
    return sets.conformal_label_scores(scores, labels, **score, **counts)


def _has_limits(rule: Conformal, limits: np.ndarray) -> bool:
    """Whether any class has a limit that its own examples give."""
    if rule.quantile != "middle" or limits.size == 1:
        return not bool(np.isposinf(limits).all())
    # Without any, all limits are halfway between one quantile and the largest score.
    first = limits[0]
    return bool(first < _MIDDLE * _LARGEST or (limits != first).any())
