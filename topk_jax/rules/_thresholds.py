"""Sets of a size or a mean size, and sets that miss a probability, by the scores alone."""

import jax
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules import _sorting
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._numbers import error_in_binary, error_of, number_of, percent, whole_number_of
from topk_jax.rules._rule import Rule, each_example


class TopK(Rule):
    """The K likeliest classes."""

    name = "top_k"
    words = "the K classes of highest probability"
    needs_limits = False

    @classmethod
    def read_value(cls, text: str) -> int:
        return whole_number_of(text)

    def check(self, examples: Calibration) -> None:
        check_size(self, examples)

    def choose(self, scores: jax.Array) -> jax.Array:
        return sets.top_k_set(scores, k=int(self.value))

    def describe_sets(self) -> str:
        what = "class" if self.value == 1 else f"{self.value} classes"
        return f"Each set has the {what} of highest probability."


class AverageK(Rule):
    """The classes above one threshold, K of them on average over the examples."""

    name = "average_k"
    words = "the classes above one probability, K on average"

    @classmethod
    def read_value(cls, text: str) -> float:
        return number_of(text, lambda value: value >= 1, "a number of at least 1")

    def check(self, examples: Calibration) -> None:
        check_size(self, examples)

    def find_limits(self, examples: Calibration) -> ArrayLike:
        calibrator = sets.AverageKCalibrator(float(self.value), num_examples=len(examples))
        for chunk in examples.chunks():
            calibrator.update(examples.scores[chunk])
        return calibrator.threshold()

    def describe_sets(self) -> str:
        size = str(self.value).removesuffix(".0")
        return (
            f"{describe_threshold(self)} With this threshold, sets have {size} "
            f"{'class' if self.value == 1 else 'classes'} on average over {self.on}: more where "
            "one is ambiguous, fewer where it is clear."
        )


class Adaptive(Rule):
    """The likeliest classes whose probabilities add up to a number."""

    name = "adaptive"
    words = "the fewest classes whose probabilities add up to it"
    needs_limits = False

    def check(self, examples: Calibration) -> None:
        check_probabilities(self, examples)

    def choose(self, scores: jax.Array) -> jax.Array:
        error = error_in_binary(float(self.value))
        return each_example(lambda row: sets.adaptive_set(row, error=error), scores)

    def choose_by_sorting(self, scores: jax.Array) -> jax.Array:
        return _sorting.adaptive_sets(scores, error_in_binary(float(self.value)))

    def describe_sets(self) -> str:
        return (
            "Each set has the fewest classes whose probabilities add up to at least "
            f"{percent(float(self.value))}."
        )


class AverageError(Rule):
    """The classes above one threshold, whose sum is a number on average over the examples."""

    name = "average_error"
    words = "the classes above one probability, whose sum is that on average"

    def check(self, examples: Calibration) -> None:
        check_probabilities(self, examples)

    def find_limits(self, examples: Calibration) -> ArrayLike:
        error = error_in_binary(float(self.value))
        return sets.average_error_threshold(examples.scores, error=error)

    def describe_sets(self) -> str:
        missed = percent(float(error_of(float(self.value))))
        return (
            f"{describe_threshold(self)} With this threshold, the other classes have a probability "
            f"of at most {missed} together, on average over {self.on}."
        )


def check_size(rule: Rule, examples: Calibration) -> None:
    """Raises `ValueError` if sets are to have more classes than there are."""
    if float(rule.value) > examples.num_classes:
        size = str(rule.value).removesuffix(".0")
        raise ValueError(
            f"{rule.name} must be from 1 to {examples.num_classes}, the number of classes; got "
            f"{size}"
        )


def check_probabilities(rule: Rule, examples: Calibration) -> None:
    """Raises `ValueError` if scores do not add up to 1."""
    if not examples.are_probabilities():
        raise ValueError(
            f"the rule {rule.conformal or rule.name} needs probabilities that add up to 1 for each "
            "example; these scores do not"
        )


def describe_threshold(rule: Rule) -> str:
    """A sentence about the sets of a threshold."""
    limit = "a threshold" if rule.limits is None else f"{float(rule.limits):.4g}"
    if limit == "-inf":
        return "Each set has every class."
    return f"Each set has the classes whose probability reaches {limit}."
