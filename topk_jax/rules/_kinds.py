"""Rules of the scores alone, of a mean, of errors, and of what sets are worth."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules import _sorting
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._rule import MEAN_SIZE, NUMBER, SIZE, Rule, each_example, error_of, percent

# The probability that calibration examples make a limit whose errors are more.
_DELTA = 0.05
# The kinds of `topk_jax.sets.set_utilities` with their parameters.
_UTILITIES = {
    **{"precision": (), "u65": (), "u80": ()},
    **{"f_beta": ("beta",), "reject": ("alpha", "beta")},
}


class TopK(Rule):
    """The K likeliest classes."""

    name = "top_k"
    must_be = SIZE
    needs_limits = False

    def choose(self, scores: jax.Array) -> jax.Array:
        return sets.top_k_set(scores, k=int(self.value))

    def describe_sets(self) -> str:
        what = "class" if self.value == 1 else f"{self.value} classes"
        return f"Each set has the {what} of highest probability."


class Threshold(Rule):
    """The classes whose score reaches a number."""

    name = "threshold"
    must_be = NUMBER
    needs_limits = False

    def choose(self, scores: jax.Array) -> jax.Array:
        return sets.threshold_set(scores, float(self.value))

    def describe_sets(self) -> str:
        return f"Each set has the classes whose score reaches {self.value}."


class AverageK(Rule):
    """The classes above one limit, K of them on average over the examples."""

    name = "average_k"
    must_be = MEAN_SIZE

    def find_limits(self, examples: Calibration) -> ArrayLike:
        calibrator = sets.AverageKCalibrator(float(self.value), num_examples=len(examples))
        for chunk in examples.chunks():
            calibrator.update(examples.scores[chunk])
        return calibrator.threshold()

    def describe_effect(self) -> str:
        return (
            f"sets have {self.value} {'class' if self.value == 1 else 'classes'} on average over "
            f"{self.on}: more where one is ambiguous, fewer where it is clear."
        )


class Adaptive(Rule):
    """The likeliest classes whose probabilities add up to a number."""

    name = "adaptive"
    needs_distribution = True
    needs_limits = False

    def choose(self, scores: jax.Array) -> jax.Array:
        error = float(error_of(self.value))
        return each_example(lambda row: sets.adaptive_set(row, error=error), scores)

    def choose_by_sorting(self, scores: jax.Array) -> jax.Array:
        return _sorting.adaptive_sets(scores, float(error_of(self.value)))

    def describe_sets(self) -> str:
        return (
            "Each set has the fewest classes whose probabilities add up to at least "
            f"{percent(float(self.value))}."
        )


class AverageError(Rule):
    """The classes above one limit, whose sum is a number on average over the examples."""

    name = "average_error"
    needs_distribution = True

    def find_limits(self, examples: Calibration) -> ArrayLike:
        return sets.average_error_threshold(examples.scores, error=float(error_of(self.value)))

    def describe_effect(self) -> str:
        return (
            "the other classes have a probability of at most "
            f"{percent(error_of(self.value))} together, on average over {self.on}."
        )


class MaxError(Rule):
    """The likeliest class if it is likely enough; otherwise no class."""

    name = "max_error"

    def find_limits(self, examples: Calibration) -> ArrayLike:
        surest = examples.map(lambda part: part.max(axis=-1))
        hits = examples.map(lambda part: part.argmax(axis=-1)) == examples.classes[:, 0]
        return sets.selective_threshold(surest, hits, error=float(self.value), delta=_DELTA)

    def choose(self, scores: jax.Array) -> jax.Array:
        surest = jnp.max(scores, axis=-1, keepdims=True)
        return sets.top_k_set(scores, k=1) & (surest > self.fitted_limits)

    def describe_sets(self) -> str:
        sure = "the classifier is sure enough"
        if self.limits is not None:
            sure = f"that exceeds {float(self.limits):.4g}"
        where = "" if sure.endswith("-inf") else f", if {sure}; otherwise there is no answer"
        return (
            f"An answer is the class of highest probability{where}. Of the answers at most "
            f"{percent(float(self.value))} are wrong, for new examples like {self.on}. This "
            f"holds with a probability of at least {percent(1 - _DELTA)} over the choice of these."
        )


class Utility(Rule):
    """The set of the largest expected utility: what its size is worth if it has the label."""

    name = "utility"
    must_be = (
        "one of precision, f1, u65, u80, f_beta=BETA with BETA above 0, reject=ALPHA,BETA with "
        "ALPHA from 0 to 1 and BETA above 0, or numbers from 0 on between commas, as 1,0.7,0.5: "
        "the worth of a set of 1, 2, 3 classes that has the label"
    )
    needs_distribution = True
    needs_limits = False

    @classmethod
    def read_value(cls, text: str) -> str:
        try:
            kind, named, numbers = _parts(text)
            right = all(0 <= one < math.inf for one in numbers)
            right &= named.get("alpha", 0) <= 1 and named.get("beta", 1) > 0
            right &= kind is not None or any(numbers)
        except ValueError:
            right = False
        if not right:
            raise ValueError(f"utility must be {cls.must_be}; got {text!r}")
        return text

    def worth(self, num_classes: int) -> np.ndarray:
        """What a set of 1 to L classes that has the label is worth, `[L]`; others are worth 0.

        Args:
            num_classes: the number of classes L.
        """
        kind, named, numbers = _parts(str(self.value))
        if kind is None:
            return np.array([*numbers, *[0] * (num_classes - len(numbers))], np.float32)
        with jax.ensure_compile_time_eval():
            found = sets.set_utilities(kind, num_classes=num_classes, **named)
            return np.asarray(found, np.float32)

    def choose(self, scores: jax.Array) -> jax.Array:
        worth = self.worth(scores.shape[-1])
        return each_example(lambda row: sets.utility_set(row, utilities=worth), scores)

    def choose_by_sorting(self, scores: jax.Array) -> jax.Array:
        return _sorting.best_sets(scores, self.worth(scores.shape[-1]))

    def describe_sets(self) -> str:
        return (
            f"Each set has the largest expected utility, {self.value}: what a set of its size is "
            "worth that has the true class. Another set is worth nothing."
        )


def _parts(text: str) -> tuple[str | None, dict[str, float], tuple[float, ...]]:
    """The kind of `topk_jax.sets.set_utilities`, its parameters, and all numbers of a text."""
    kind, is_pair, rest = ("f_beta=1" if text == "f1" else text).partition("=")
    if kind not in _UTILITIES:
        return None, {}, tuple(map(float, text.split(",")))
    numbers = tuple(map(float, rest.split(","))) if is_pair else ()
    return kind, dict(zip(_UTILITIES[kind], numbers, strict=True)), numbers
