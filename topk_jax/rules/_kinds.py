"""Rules of the scores alone, of a mean, of errors, of costs, and of what sets are worth."""

import math
from decimal import Decimal
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, metrics, sets
from topk_jax import taxonomy as trees
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._rule import MEAN_SIZE, NUMBER, POSITIVE, SIZE, Rule, error_of, percent
from topk_jax.taxonomy import Taxonomy

__all__ = ["COSTS", "named_costs"]

# The costs that have a name.
COSTS = ("missed", "macro", "taxonomy")
# The probability that calibration examples make a limit whose errors are more.
_DELTA = 0.05
# The kinds of `topk_jax.sets.set_utilities` with their parameters.
_UTILITIES: dict[str, tuple[str, ...]] = {"precision": (), "u65": (), "u80": ()}
_UTILITIES |= {"f_beta": ("beta",), "reject": ("alpha", "beta")}


class TopK(Rule):
    """The K likeliest classes."""

    name = "top_k"
    must_be = SIZE
    needs_limits = False

    def choose(self, scores: jax.Array) -> jax.Array:
        return sets.top_k_set(scores, k=int(self.value))

    def describe_sets(self) -> str:
        what = "class" if self.value == 1 else f"{self.value} classes"
        return f"Each set has the {what} of highest score."


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
        return sets.adaptive_set(scores, error=float(error_of(self.value)))

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
            f"An answer is the class of highest score{where}. Of the answers at most "
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
        """What a set of 1 to L classes that has the label is worth, `[L]`; others are worth 0."""
        kind, named, numbers = _parts(str(self.value))
        if kind is None:
            return np.array([*numbers, *[0] * (num_classes - len(numbers))], np.float32)
        with jax.ensure_compile_time_eval():
            found = sets.set_utilities(kind, num_classes=num_classes, **named)
            return np.asarray(found, np.float32)

    def choose(self, scores: jax.Array) -> jax.Array:
        return sets.utility_set(scores, utilities=self.worth(scores.shape[-1]))

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


class Risk(Rule):
    """The classes above one limit, whose sets cost little on average."""

    name = "risk"
    must_be = POSITIVE

    @property
    def promised(self) -> float | None:
        # The mean of these costs is the share of missed labels.
        return float(error_of(self.value)) if self.costs == "missed" else None

    def find_limits(self, examples: Calibration) -> ArrayLike:
        """The largest limit whose sets cost at most the risk on average over new examples.

        Conformal risk control (Angelopoulos et al., 2024). A set costs what the label costs with
        the most similar class in the set. Costs fall only at scores of such classes: no grid.
        """
        if self.costs in COSTS:
            more: Any = {"class_counts": examples.class_counts, "taxonomy": examples.taxonomy}
            of_labels, similar = named_costs(self.costs, examples.num_classes, **more)
        else:
            of_labels, similar = examples.given("costs"), examples.similar
        number, largest, risk = len(examples), float(of_labels.max()), Decimal(str(self.value))
        if risk >= largest:
            raise ValueError(
                f"risk must be less than the largest cost, {largest:g}, which no set exceeds; got "
                f"{self.value}"
            )
        examples.check_number(Decimal(repr(largest)) / risk)
        # What all sets may cost together: a new example costs at most `largest`.
        allowed = risk * (number + 1) - Decimal(repr(largest))
        classes, shares = examples.classes, np.ones((number, 1))
        if examples.shares is not None:
            shares = examples.shares.astype(np.float64)
        parts = [
            _saved(examples.scores[chunk], labels, share, of_labels, similar)
            for chunk in examples.chunks()
            for labels, share in zip(classes[chunk].T, shares[chunk].T, strict=True)
        ]
        scores, saved = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = np.argsort(-scores, kind="stable")
        left = (shares * of_labels[classes]).sum() - np.cumsum(saved[order])
        # All of equal scores are in the sets. Sums round: what is left of all is 0.
        is_last = np.append(scores[order][1:] != scores[order][:-1], True)
        left[-1] = 0
        first = np.flatnonzero(is_last & (left <= float(allowed)))[0]
        return float(scores[order][first])

    def describe_effect(self) -> str:
        return (
            f"from {self.on}, sets of new ones like them cost at most {self.value} on average, by "
            f"the costs {self.costs}. A set that has the true class costs nothing."
        )


def named_costs(
    name: str,
    num_classes: int,
    *,
    class_counts: ArrayLike | None = None,
    taxonomy: Taxonomy | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """What a set costs that lacks the label, by one of `COSTS`.

    The costs missed are all 1. The mean of the costs macro is the mean over the classes of the part
    of labels that is missed. By a taxonomy, a set costs the height of the lowest node with the
    label and a class of the set; the height of the root is 1.

    Returns:
        The costs by label, `[L]`; and what a set costs at most by label and by a class of the set,
        `[L, L]`, or None if no class is similar to another.

    Example:
        >>> print(named_costs("macro", 2, class_counts=[30, 10])[0])
        [0.66666667 2.        ]
    """
    if name not in COSTS:
        raise ValueError(f"costs must be one of {', '.join(COSTS)}; got {name!r}")
    ones = np.ones(_checks.static_integer(num_classes, "num_classes", minimum=1))
    if name == "missed":
        return ones, None
    needed: Any = class_counts if name == "macro" else taxonomy
    if needed is None:
        what = "class_counts, the training examples of each," if name == "macro" else name
        raise ValueError(f"{what} must be given for the costs {name}")
    if name == "macro":
        shapes, dtype = ((num_classes,),), jnp.result_type(float)
        given = _checks.numbers(needed, "class_counts", dtype, shapes, above=0)
        counts = np.asarray(given, np.float64)
        return counts.sum() / (num_classes * counts), None
    trees.check(needed, num_classes)
    labels, others = np.indices((num_classes, num_classes))
    heights = np.asarray(metrics.mistake_heights(others, labels, needed), np.float64)
    return ones, heights / needed.heights.max()


def _saved(
    scores: np.ndarray,
    labels: np.ndarray,
    shares: np.ndarray,
    of_labels: np.ndarray,
    similar: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """At which scores [n, L] the cost of a set falls as the limit falls, and by how much."""
    if similar is None:
        at = np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        return at, shares * of_labels[labels]
    order = np.argsort(-scores, axis=-1, kind="stable")
    costs = np.take_along_axis(similar[labels], order, axis=-1)
    best = np.minimum.accumulate(np.column_stack([of_labels[labels], costs]), axis=-1)
    saved = -np.diff(best, axis=-1) * shares[:, None]
    falls = saved > 0
    return np.take_along_axis(scores, order, axis=-1)[falls], saved[falls]
