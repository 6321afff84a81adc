"""The rule that turns the probabilities of a classifier into sets, with its threshold."""

import dataclasses
import math
from dataclasses import dataclass

import jax
import numpy as np

from topk_jax import sets
from train.data.taxonomy import ClassTree
from train.evaluation import new_classes, selective, set_rules, thresholds, utility_sets
from train.evaluation.combinations import COMBINATIONS
from train.evaluation.conformal_rules import RULES
from train.evaluation.conformal_sets import HOW_TO_GIVE_TAXONOMY, ConformalSets
from train.evaluation.observations import Combination
from train.evaluation.promises import CalibratedOn
from train.foundation.errors import UserError
from train.prediction import outliers
from train.prediction.calibration import Calibration
from train.prediction.new_class_rule import NewClassRule
from train.prediction.other_calibrations import GivenCalibration
from train.prediction.rule_flags import ChosenRule
from train.prediction.trained import TrainedClassifier


@dataclass(frozen=True)
class CalibratedRule:
    """A rule and its threshold.

    Attributes:
        name: "top_k", "average_k", "coverage", "max_error", "utility" or "risk".
        value: the K, the coverage, the error or the risk; the name of the utility.
        threshold: the smallest probability of a class in a set, or with "max_error" the largest
            one without an answer; None for the top K, and for the sets of a conformal score or of a
            utility.
        conformal: the sets of a conformal score; None for others.
        worth: by size, what a set is worth that has the label, [L]; None without a utility.
        costs: the costs of the risk, as the flag has them; None for other rules.
        combination: how the examples of an observation are combined; None for single examples.
        calibrated_on: the examples that the threshold is calibrated on, in words; None for the
            validation examples.
        counted: how many these are; None if that is not known, or the sets promise no coverage.
        most_combined: the most examples of an observation that the threshold is calibrated on; None
            without such observations.
        tree: what is above the classes, if sets have names; None for sets of any classes.
        max_names: the most names that the sets are widened to; None for sets as they are.
        new: what says "none of these"; None for sets that cannot say that.
    """

    name: str
    value: float | str
    threshold: float | None
    conformal: ConformalSets | None = None
    worth: np.ndarray | None = None
    costs: str | None = None
    combination: Combination | None = None
    calibrated_on: str | None = None
    counted: CalibratedOn | None = None
    most_combined: int | None = None
    tree: ClassTree | None = None
    max_names: int | None = None
    new: NewClassRule | None = None

    @property
    def has_promise(self) -> bool:
        """Whether the sets promise how often they are right."""
        return self.name in ("coverage", "max_error", "risk")

    def __str__(self) -> str:
        rule = "" if self.conformal is None else f", rule={self.conformal.rule.name}"
        rule += "" if self.costs is None else f", costs={self.costs}"
        combined = "" if self.combination is None else f", combine={self.combination.name}"
        named = "" if self.max_names is None else f", max_names={self.max_names}"
        new = "" if self.new is None else f", new_score={self.new.score.name}"
        return f"{self.name}={self.short_value}{rule}{named}{new}{combined}"

    @property
    def short_value(self) -> str:
        """The value as a person writes it: 5 for 5.0."""
        return str(self.value).removesuffix(".0")

    @property
    def says_new(self) -> bool:
        """Whether a set can say "none of these"."""
        return self.new is not None

    def choose(self, probabilities: jax.Array) -> jax.Array:
        """The sets of probabilities [n, L], as booleans [n, L]."""
        return self._widen(self._choose(probabilities))

    def answer(self, probabilities: jax.Array) -> tuple[jax.Array, ...]:
        """The sets [n, L], and the nodes that name them [n, V] if sets have names, as booleans."""
        return self.complete(self._choose(probabilities))

    def complete(self, chosen: jax.Array) -> tuple[jax.Array, ...]:
        """`answer` from the classes [n, L] that the rule chooses before sets are widened."""
        chosen = self._widen(chosen)
        if self.tree is None:
            return (chosen,)
        return chosen, sets.fewest_names(chosen, self.tree.taxonomy, names=self.max_names or 1)

    def _widen(self, chosen: jax.Array) -> jax.Array:
        if self.tree is None or self.max_names is None:
            return chosen
        named = sets.fewest_names(chosen, self.tree.taxonomy, names=self.max_names)
        return sets.node_set(named, self.tree.taxonomy)

    def _choose(self, probabilities: jax.Array) -> jax.Array:
        if self.conformal is not None:
            # One example at a time: in an exported program, their number is not known.
            return jax.vmap(self.conformal)(probabilities)
        if self.worth is not None:
            return utility_sets.rule(self.worth)(probabilities)
        if self.threshold is None:
            return set_rules.top_k(int(self.value))(probabilities)
        if self.name == "max_error":
            return set_rules.surest(self.threshold)(probabilities)
        return set_rules.at_threshold(self.threshold)(probabilities)

    def in_words(self) -> str:
        """Sentences that explain which classes are in a set."""
        if self.combination is None:
            return self._in_words("examples") + self._names_in_words() + self._new_in_words()
        combined = COMBINATIONS[self.combination.name]
        return (
            "Each set is the answer for all examples of an observation, by "
            f"{combined}. {self._in_words('observations')}{self._names_in_words()}"
        )

    def _names_in_words(self) -> str:
        if self.tree is None:
            return ""
        what = f"a {self.tree.ranks[-1]}, or all of a part of the taxonomy, such as a "
        what += self.tree.ranks[-2]
        if self.max_names is None:
            return f" Each set has one name: {what}."
        number = "1 name" if self.max_names == 1 else f"{self.max_names} names"
        return (
            f" Then it has further classes, the fewest with which it has at most {number}, each "
            f"{what}."
        )

    def _new_in_words(self) -> str:
        if self.new is None:
            return ""
        calibrated_on = self.calibrated_on or "the validation examples"
        return f" {self.new.in_words(float(self.value), calibrated_on)}"

    @property
    def _coverage_of_classes(self) -> float:
        """The coverage of the classes, which have a part of the error beside "none of these"."""
        coverage = float(self.value)
        return coverage if self.new is None else new_classes.coverage_of_classes(coverage)

    def _in_words(self, examples: str) -> str:
        calibrated_on = self.calibrated_on or f"the validation {examples}"
        if self.conformal is not None:
            return _describe_conformal(self.conformal, self._coverage_of_classes, calibrated_on)
        if self.worth is not None:
            return (
                f"Each set has the largest expected utility, {self.value}. A set of 1, 2, 3 "
                "classes that has the true one is worth "
                f"{', '.join(f'{worth:.4g}' for worth in self.worth[:3])}, and another set nothing."
            )
        if self.threshold is None:
            what = "class" if self.value == 1 else f"{self.short_value} classes"
            return f"Each set has the {what} of highest probability."
        if self.name == "max_error":
            where = ""
            if self.threshold != -math.inf:
                where = f", if that exceeds {self.threshold:.4g}; otherwise there is no answer"
            return (
                f"An answer is the class of highest probability{where}. Of the answers at most "
                f"{_percent(float(self.value))} are wrong, for new examples like {calibrated_on}. "
                f"This holds with a probability of at least {_percent(1 - selective.DELTA)} over "
                "the choice of these."
            )
        if self.threshold == -math.inf:
            return "Each set has every class."
        return (
            f"Each set has the classes whose probability reaches {self.threshold:.4g}. "
            f"{self._what_holds(calibrated_on)}"
        )

    def _what_holds(self, calibrated_on: str) -> str:
        """What holds for the sets of the threshold."""
        if self.name == "average_k":
            return (
                f"With this threshold, sets have {self.short_value} "
                f"{'class' if self.value == 1 else 'classes'} on average over "
                f"{calibrated_on}: more where one is ambiguous, fewer where it is clear."
            )
        if self.name == "risk":
            return (
                f"With this threshold, from {calibrated_on}, sets of new ones like them cost at "
                f"most {self.short_value} on average, by the costs {self.costs}. A set that has "
                "the true class costs nothing."
            )
        return (
            f"With this threshold, from {calibrated_on}, the true class of a new one like them is "
            f"in its set with a probability of at least {_percent(self._coverage_of_classes)}."
        )


def calibrate(
    classifier: TrainedClassifier, rule: ChosenRule, combined_by: str | None = None
) -> CalibratedRule:
    """Calibrates a rule for a classifier.

    Args:
        classifier: the classifier.
        rule: the rule.
        combined_by: how the examples of an observation are combined, one of
            `combinations.COMBINATIONS`, for sets of observations; None for sets of examples.

    Raises:
        UserError: the classifier cannot have that K, or cannot be calibrated.
    """
    has_names = rule.max_names is not None or RULES[rule.conformal].needs_taxonomy
    tree = classifier.tree if has_names else None
    if rule.max_names is not None and tree is None:
        raise UserError(f"--max_names needs a taxonomy of the classes: {HOW_TO_GIVE_TAXONOMY}")
    scores = classifier.config.eval.scores if rule.name == "utility" else "softmax"
    if scores != "softmax" and classifier.temperature is None:
        raise UserError(
            "--utility needs probabilities that add up to 1; this run has "
            f"config.eval.scores={scores}"
        )
    calibration, calibrated_on = Calibration(classifier, combined_by), None
    if rule.thresholds is not None:
        calibration = GivenCalibration(classifier, rule.thresholds, combined_by)
        calibrated_on = calibration.calibrated_on
    new = None
    if rule.new_score is not None:
        of_run = outliers.of_classifier(classifier.of_run, rule.new_score)
        limits = calibration.new_classes(float(rule.value), of_run)
        new = NewClassRule(of_run.after(classifier.examples), limits)
    calibrated = _calibrate(calibration, rule, classifier.num_classes)
    most = None
    if combined_by is not None and rule.is_calibrated:
        most = calibration.most_combined()
    return dataclasses.replace(
        calibrated,
        calibrated_on=calibrated_on,
        counted=calibration.counted() if calibrated.name == "coverage" else None,
        most_combined=most,
        tree=tree,
        max_names=rule.max_names,
        new=new,
    )


def _calibrate(calibration: Calibration, rule: ChosenRule, num_classes: int) -> CalibratedRule:
    if rule.name == "utility":
        return CalibratedRule(
            rule.name,
            rule.value,
            None,
            worth=utility_sets.of_sizes(str(rule.value), num_classes),
            combination=calibration.combination(),
        )
    name, value = rule.name, float(rule.value)
    if name == "coverage":
        return _calibrate_conformal(calibration, rule)
    if rule.costs is not None:
        return CalibratedRule(
            name,
            value,
            calibration.risk(value, rule.costs),
            costs=rule.costs,
            combination=calibration.combination(),
        )
    if name == "max_error":
        least = calibration.selective(value)
        return CalibratedRule(name, value, least, combination=calibration.combination())
    if not 1 <= value <= num_classes:
        raise UserError(
            field=f"--{name}",
            must_be=f"from 1 to {num_classes}, the number of classes",
            got=int(value) if value.is_integer() else value,
        )
    threshold = calibration.average_k(value) if name == "average_k" else None
    return CalibratedRule(name, value, threshold, combination=calibration.combination())


def _calibrate_conformal(calibration: Calibration, chosen: ChosenRule) -> CalibratedRule:
    name, coverage, rule = chosen.name, float(chosen.value), RULES[chosen.conformal]
    of_classes = coverage
    if chosen.new_score is not None:
        of_classes = new_classes.coverage_of_classes(coverage)
    threshold, conformal = None, None
    if rule.score is None:
        threshold = calibration.conformal(of_classes)
    else:
        conformal = calibration.conformal_sets(of_classes, rule)
    return CalibratedRule(
        name, coverage, threshold, conformal, combination=calibration.combination()
    )


def _describe_conformal(conformal: ConformalSets, coverage: float, calibrated_on: str) -> str:
    """Which classes are in a set, what a score is, and what is promised."""
    rule = conformal.rule
    promised = _percent(coverage)
    if rule.quantile == "all":
        limit, these = f"{conformal.limits:.4g}", "this limit"
    else:
        limit, these = "the limit of the class", "these limits"
    if rule.quantile == "middle":
        error = thresholds.error_of(coverage)
        promised = _percent(max(0.0, float(1 - 2 * error)))
    among = {
        "classes": ", whichever class it is",
        # A class without a cluster has the limit of all examples, which may be too low for it.
        "clusters": ", on average over the classes of its cluster, if its class has one",
    }
    words = (
        f"Each set has the classes whose score is at most {limit}. The score of a class is "
        f"{rule.score_in_words}. With {these}, from {calibrated_on}, the true class of a "
        f"new one like them is in its set with a probability of at least {promised}"
        f"{among.get(rule.quantile, '')}."
    )
    number = conformal.num_in_every_set
    if number == 0:
        return words
    classes = "1 class has" if number == 1 else f"{number:,} classes have"
    verb = "is" if number == 1 else "are"
    few = calibrated_on.removeprefix("the ")
    if not few.startswith("validation"):
        few = "of these examples"
    return f"{words} {classes} too few {few} for that and {verb} in every set."


def _percent(share: float) -> str:
    return f"{100 * share:.10g}%"
