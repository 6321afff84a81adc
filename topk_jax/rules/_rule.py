"""What all rules have: their text, their limits, names of sets, "none of these", words and JSON."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules._calibration import CalibratedOn, Calibration
from topk_jax.taxonomy import Taxonomy

__all__ = ["KINDS", "Answer", "Promise", "Rule"]

Array = jax.Array | np.ndarray

# The rules by name.
KINDS: dict[str, type["Rule"]] = {}
# What JAX may trace; the rest of a rule is static.
LEAVES = ("limits", "known_to", "new_from", "class_counts")
# The numbers of texts.
SHARE, POSITIVE = "a number above 0 and below 1", "a number above 0"
SIZE, MEAN_SIZE = "an integer of at least 1", "a number of at least 1"
NUMBER = "a number"
_ALLOWED: dict[str, Callable[[float], bool]] = {
    SHARE: lambda value: 0 < value < 1,
    POSITIVE: lambda value: value > 0,
    SIZE: lambda value: value >= 1 and value.is_integer(),
    MEAN_SIZE: lambda value: value >= 1,
    NUMBER: math.isfinite,
}


class Answer(NamedTuple):
    """What a rule answers for examples, as booleans; None for what it cannot say.

    Attributes:
        members: the classes of each set, `[..., L]`.
        nodes: the nodes of the taxonomy that name each set, `[..., V]`.
        none_of_these: whether an example may be of a class that is not known, `[...]`.
    """

    members: jax.Array
    nodes: jax.Array | None = None
    none_of_these: jax.Array | None = None


@dataclass(frozen=True)
class Promise:
    """How often sets have the label, at least, and the examples that the limits come from.

    If the truth is several classes, a label is drawn.
    """

    coverage: float
    calibrated_on: CalibratedOn | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule:
    """A rule that makes sets of classes of scores; `parse`, `fit` and `from_json` make one.

    It is a tree of arrays: a function that is compiled for one is compiled for all of its limits.
    Its subclasses are the kinds of rules. What a rule does not have is None.

    Attributes:
        name: the name of the kind, as "coverage".
        must_be: what the value in a text must be.
        needs_distribution: whether the scores of an example must add up to 1.
        needs_limits: whether it is calibrated on examples with labels.
        value: the K, the coverage, the error, the risk, or the name of a utility.
        conformal: the conformal rule of a coverage, as "aps".
        costs: the name of the costs of a risk.
        max_names: the most names that sets are widened to.
        new_score: the name of the outlier score that says "none of these".
        limits: the smallest score in a set, or the largest conformal score, `[]`; `[L]` by class.
        known_to: the largest outlier score of an example that may be of a known class.
        new_from: the smallest outlier score with which "none of these" is beside the classes.
        class_counts: the training examples of each class, `[L]`, if the conformal score is "pas".
        taxonomy: what is above the classes, if sets have names.
        calibrated_on: the examples that the limits come from.

    Example:
        >>> from topk_jax import rules
        >>> print(rules.parse("top_k=2")(jnp.array([0.5, 0.125, 0.375])))
        [ True False  True]
    """

    name: ClassVar[str]
    must_be: ClassVar[str] = SHARE
    needs_distribution: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True

    value: float | int | str
    conformal: str | None = None
    costs: str | None = None
    max_names: int | None = None
    new_score: str | None = None
    limits: Array | None = None
    known_to: Array | None = None
    new_from: Array | None = None
    class_counts: Array | None = None
    taxonomy: Taxonomy | None = None
    calibrated_on: CalibratedOn | None = None

    def __init_subclass__(cls) -> None:
        """Registers a kind."""
        KINDS[cls.name] = cls
        static = [one.name for one in dataclasses.fields(cls) if one.name not in LEAVES]
        jax.tree_util.register_dataclass(cls, data_fields=[*LEAVES], meta_fields=static)

    @classmethod
    def read_value(cls, text: str) -> float | int | str:
        """The value of a text, or a `ValueError` that says what it must be."""
        return number_of(cls.name, text, cls.must_be)

    def find_limits(self, examples: Calibration) -> ArrayLike:
        """The limits for examples, or a `ValueError` if they are not what it needs."""
        raise NotImplementedError

    def choose(self, scores: jax.Array) -> jax.Array:
        """The sets of scores `[..., L]`, before they are widened; pure."""
        return sets.threshold_set(scores, self.fitted_limits)

    @property
    def promised(self) -> float | None:
        """The probability that a set has the label; None if it promises none."""
        return None

    def describe_sets(self) -> str:
        """Sentences about the sets, before they are widened."""
        limit = "a limit" if self.limits is None else f"{float(self.limits):.4g}"
        which = "every class" if limit == "-inf" else f"the classes whose score reaches {limit}"
        return f"Each set has {which}. With this limit, {self.describe_effect()}"

    def describe_effect(self) -> str:
        """What sets of the classes above one limit promise, the end of a sentence."""
        raise NotImplementedError

    @property
    def fitted_limits(self) -> Array:
        """The limits of a rule that is fitted."""
        assert self.limits is not None
        return self.limits

    @property
    def on(self) -> str:
        """The examples that it is calibrated on, in words."""
        return "the calibration examples" if self.calibrated_on is None else self.calibrated_on.on

    @property
    def has_names(self) -> bool:
        """Whether sets have names, which are nodes of a taxonomy."""
        return self.max_names is not None or self.conformal == "taxonomic"

    @property
    def says_new(self) -> bool:
        """Whether a set can say "none of these"."""
        return self.new_score is not None

    @property
    def is_fitted(self) -> bool:
        """Whether it has all that it needs to make sets."""
        needed = [
            (self.needs_limits, self.limits),
            (self.says_new, self.known_to),
            (self.says_new, self.new_from),
            (self.conformal == "pas", self.class_counts),
            (self.has_names, self.taxonomy),
        ]
        return all(value is not None for is_needed, value in needed if is_needed)

    @property
    def promise(self) -> Promise | None:
        """What sets promise; None if they promise no coverage."""
        return None if self.promised is None else Promise(self.promised, self.calibrated_on)

    def __str__(self) -> str:
        """The text, which `parse` reads."""
        parts = {
            self.name: self.value,
            "rule": None if self.conformal == "lac" else self.conformal,
            "costs": self.costs,
            "max_names": self.max_names,
            "new_score": self.new_score,
        }
        return ", ".join(f"{name}={value}" for name, value in parts.items() if value is not None)

    def __call__(self, scores: ArrayLike, *, outliers: ArrayLike | None = None) -> jax.Array:
        """The members of the sets; see `answer`."""
        return self.answer(scores, outliers).members

    def answer(self, scores: ArrayLike, outliers: ArrayLike | None = None) -> Answer:
        """The sets of scores `[..., L]`, their names, and "none of these"; a pure function.

        With a `new_score`, `outliers` says how unusual each example is, `[...]`.
        """
        if not self.is_fitted:
            raise ValueError(f"{self} must be fitted before it makes sets: call rules.fit")
        members = self.choose(jnp.asarray(scores))
        nodes = none_of_these = None
        if self.has_names and self.taxonomy is not None:
            nodes = sets.fewest_names(members, self.taxonomy, names=self.max_names or 1)
            if self.max_names is not None:
                members = sets.node_set(nodes, self.taxonomy)
        if self.known_to is not None and self.new_from is not None:
            if outliers is None:
                raise ValueError(f"outliers must be given for {self}")
            limits = {"known_to": self.known_to, "new_from": self.new_from}
            found = sets.open_set(members, outliers, **limits)
            members, none_of_these = found[..., :-1], found[..., -1]
            # An empty set says it, too.
            none_of_these |= ~members.any(axis=-1)
            if nodes is not None:
                nodes = sets.open_set(nodes, outliers, **limits)[..., :-1]
        return Answer(members, nodes, none_of_these)

    @property
    def in_words(self) -> str:
        """Which classes are in a set and what is promised, in sentences."""
        return self.describe()

    def describe(self, *, names: str = "a class, or all of a part of the taxonomy") -> str:
        """`in_words`, with what a name stands for in the words of a program."""
        text = self.describe_sets()
        if self.max_names is not None:
            number = "1 name" if self.max_names == 1 else f"{self.max_names} names"
            text += (
                f" Then it has further classes, the fewest with which it has at most {number}, "
                f"each {names}."
            )
        elif self.has_names:
            text += f" Each set has one name: {names}."
        if self.known_to is None:
            return text
        error = error_of(self.value)
        # Without a limit, new classes are rarer than the error.
        beside = (
            ""
            if self.new_from == math.inf
            else f"; and it has 'none of these' beside its classes from a score of "
            f"{self.new_from:.4g} on"
        )
        return (
            f"{text} A set is only 'none of these' if the outlier score of its example, "
            f"{self.new_score}, exceeds {self.known_to:.4g}, as for at most {percent(error / 4)} "
            f"of new examples of known classes like {self.on}, or if it has no class{beside}. For "
            "all new examples like these, of known classes or of classes that none of these has, "
            f"it is right with a probability of at least {percent(1 - error)}."
        )

    def to_json(self) -> dict[str, Any]:
        """The rule as files have it, for `from_json`; infinite numbers are texts."""
        on = self.calibrated_on
        return {
            "rule": str(self),
            **{name: _plain(getattr(self, name)) for name in LEAVES},
            "calibrated_on": None if on is None else dataclasses.asdict(on),
            "promised": self.promised,
            "in_words": self.in_words if self.is_fitted else None,
        }


def number_of(name: str, text: str, must_be: str) -> float | int:
    """The number of a text, or a `ValueError` with what it must be."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and _ALLOWED[must_be](value)):
        raise ValueError(f"{name} must be {must_be}; got {text!r}")
    return int(value) if value.is_integer() else value


def error_of(coverage: float | str) -> Decimal:
    """1 - coverage in decimals: 0.05 for 0.95."""
    return 1 - Decimal(str(coverage))


def percent(share: float | Decimal) -> str:
    """A share as sentences have it."""
    return f"{100 * float(share):.10g}%"


def _plain(numbers: ArrayLike | None) -> Any:
    if numbers is None:
        return None
    array = np.asarray(numbers)
    return np.where(np.isfinite(array), array.astype(object), array.astype(str)).tolist()
