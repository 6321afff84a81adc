"""What a field of a configuration may hold; each kind says what a wrong value must be instead."""

import difflib
import itertools
import math
from collections.abc import Callable, Collection
from typing import Any

# A value in, what it must be instead out; None where the value is fine.
Field = Callable[[Any], str | None]


def integer(minimum: int, maximum: int | None = None, reason: str = "") -> Field:
    """A whole number in [minimum, maximum]."""
    allowed = (
        f"a whole number of at least {minimum}"
        if maximum is None
        else f"a whole number from {minimum} to {maximum}"
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


def number(
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> Field:
    """A finite number within bounds."""
    bounds = [
        f"{words} {bound:g}"
        for words, bound in (
            ("at least", at_least),
            ("greater than", above),
            ("at most", at_most),
            ("less than", below),
        )
        if math.isfinite(bound)
    ]

    def check(value: Any) -> str | None:
        fits = (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and at_least <= value <= at_most
            and above < value < below
        )
        return None if fits else " ".join(["a finite number", " and ".join(bounds)]).strip()

    return check


def boolean() -> Field:
    """True or False."""
    return lambda value: None if isinstance(value, bool) else "True or False"


def text(*, optional: bool = False) -> Field:
    """A string that is not empty."""
    allowed = "a text that is not empty" + (", or None" if optional else "")

    def check(value: Any) -> str | None:
        fits = (optional and value is None) or (isinstance(value, str) and value != "")
        return None if fits else allowed

    return check


def optional(field: Field) -> Field:
    """None, or what the field may hold."""

    def check(value: Any) -> str | None:
        wrong = None if value is None else field(value)
        return None if wrong is None else f"{wrong}, or None"

    return check


def one_of(names: Collection[str]) -> Field:
    """One of a few names; the message has the nearest."""

    def check(value: Any) -> str | None:
        if isinstance(value, str) and value in names:
            return None
        nearest = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        return f"one of {', '.join(sorted(names))}{hint}"

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
