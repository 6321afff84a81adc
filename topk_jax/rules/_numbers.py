"""Numbers as users write them, in decimals, and back in words."""

import math
from collections.abc import Callable
from decimal import Decimal


def number_of(text: str, allowed: Callable[[float], bool], must_be: str) -> float:
    """The number of a text, or a `ValueError` with what it must be."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise ValueError(must_be)
    return value


def whole_number_of(text: str) -> int:
    """The number of a text that must be an integer of at least 1, or a `ValueError`."""
    return int(number_of(text, lambda x: x >= 1 and x.is_integer(), "an integer of at least 1"))


def error_of(coverage: float) -> Decimal:
    """1 - coverage in decimals: 0.05 for 0.95."""
    return 1 - Decimal(repr(coverage))


def error_in_binary(coverage: float) -> float:
    """1 - coverage as a float, below 1: for a tiny coverage it would be rounded to 1."""
    return min(float(error_of(coverage)), math.nextafter(1, 0))


def percent(share: float) -> str:
    """A share as sentences have it."""
    return f"{100 * share:.10g}%"
