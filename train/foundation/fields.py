"""The allowed values of a field of a configuration; each kind returns what a wrong value must be.

ml_collections checks only the types of overrides, and the messages of general validators name
neither the dotted field nor the nearest allowed name. The kinds also show which fields are inputs
of compiled steps (`Number`) and which depend on the number of classes (`SetSize`).
"""

import difflib
import itertools
import math
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

# A value in, what it must be instead out; None if the value is allowed.
Field = Callable[[Any], str | None]


def integer(minimum: int, maximum: int | None = None, reason: str = "") -> Field:
    """An integer in [minimum, maximum]."""
    allowed = (
        f"an integer of at least {minimum}"
        if maximum is None
        else f"an integer from {minimum} to {maximum}"
    )

    def check(value: Any) -> str | None:
        fits = (
            isinstance(value, int)
            and not isinstance(value, bool)
            and minimum <= value
            and (maximum is None or value <= maximum)
        )
        return None if fits else allowed + (f" ({reason})" if reason else "")

    return check


@dataclass(frozen=True, kw_only=True)
class Number:
    """A finite real number within bounds, also when it is rounded to 32 bits.

    A parameter of this kind is an input of the compiled steps: another value does not need another
    program. The steps compute in 32 bits, in which 1e-300 is 0, 1e300 is infinite, and
    0.99999999999 is 1.
    """

    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf

    def __call__(self, value: Any) -> str | None:
        """What the value must be instead; None if it is allowed."""
        fits = (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and _is_finite(value)
            and self.at_least <= value <= self.at_most
            and self.above < value < self.below
        )
        allowed = " ".join(["a finite number", self._bounds()]).strip()
        if not fits:
            return allowed
        rounded = _in_32_bits(value)
        fits = math.isfinite(rounded) and self.above < rounded < self.below
        return None if fits else f"{allowed}, also after rounding to 32 bits"

    def _bounds(self) -> str:
        bounds = (
            ("at least", self.at_least),
            ("greater than", self.above),
            ("at most", self.at_most),
            ("less than", self.below),
        )
        return " and ".join(f"{words} {bound:g}" for words, bound in bounds if math.isfinite(bound))


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer that no float can hold.
        return False


def _in_32_bits(value: float) -> float:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", float(value)))
    except OverflowError:
        return math.inf
    return float(rounded)


@dataclass(frozen=True)
class SetSize:
    """A number of classes, from 1 to all of them.

    The number of classes may be known later than the configuration: `among` gives the field then.

    Attributes:
        leaves_one_out: whether the largest size is one less than the number of classes.
    """

    leaves_one_out: bool = False

    def __call__(self, value: Any) -> str | None:
        """What the value must be instead, whatever the number of classes."""
        return integer(1)(value)

    def among(self, num_classes: int) -> Field:
        """The field for that number of classes."""
        if self.leaves_one_out:
            return integer(1, num_classes - 1, "one less than the classes of the data set")
        return integer(1, num_classes, "the classes of the data set")


def boolean() -> Field:
    """True or False."""
    return lambda value: None if isinstance(value, bool) else "True or False"


def text(is_what: str = "a non-empty text") -> Field:
    """A string that is not empty, which messages call `is_what`."""

    def check(value: Any) -> str | None:
        # No path has a NUL, and no other text needs one.
        is_text = isinstance(value, str) and value != "" and "\0" not in value
        return None if is_text else is_what

    return check


def optional(field: Field) -> Field:
    """None, or what the field may hold."""

    def check(value: Any) -> str | None:
        wrong = None if value is None else field(value)
        return None if wrong is None else f"{wrong}, or None"

    return check


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest one, if any is near."""
    nearest = _nearest(name, known)
    return f"; {nearest}" if nearest else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    """The question whether the nearest name is meant; empty if none is near.

    A name with the same first word is nearer than one that shares its other words:
    `noised_top_k_hinge` is one of the noised losses, not the convex hinge.
    """
    names = [*known]
    first, underscore, _ = name.partition("_")
    kin = [one for one in names if underscore and one.startswith(first + underscore)]
    nearest = (
        difflib.get_close_matches(name, names, n=1, cutoff=0.8)
        or kin[:2]
        or difflib.get_close_matches(name, names, n=1)
    )
    return f"did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""


def one_of(names: Collection[str]) -> Field:
    """One of a few names; the message has the nearest."""

    def check(value: Any) -> str | None:
        if isinstance(value, str) and value in names:
            return None
        # In parentheses, because messages continue after it.
        nearest = _nearest(str(value), names)
        return f"one of {', '.join(sorted(names))}" + (f" ({nearest})" if nearest else "")

    return check


def several(element: Field, *, empty: bool = False, increasing: bool = False) -> Field:
    """A tuple or list whose elements are all of one kind."""

    def check(value: Any) -> str | None:
        if not isinstance(value, tuple | list) or (not value and not empty):
            return "a tuple" if empty else "a tuple with at least one element"
        for item in value:
            wrong = element(item)
            if wrong is not None:
                return f"a tuple, each element {wrong}, which {item!r} is not"
        if increasing and any(a >= b for a, b in itertools.pairwise(value)):
            return "a tuple of increasing elements"
        return None

    return check
