"""The shapes of JSON values; each is also a field, and returns what a value must be instead.

A library of schemas has the same few kinds in thousands of lines, and its messages are for
programmers. These messages are for a file that was cut or edited.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from train.foundation.fields import Field, Number, optional

NUMBER = Number()
# Files have null in the place of a number that is not finite.
NUMBER_OR_NULL = optional(NUMBER)


def string(value: Any) -> str | None:
    """A text, which may be empty."""
    return None if isinstance(value, str) else "a text"


def anything(value: Any) -> str | None:
    """Any value."""
    del value
    return None


def list_of(element: Field, *, at_least: int = 0) -> Field:
    """A list whose elements are all of one shape."""

    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return "a list"
        if len(value) < at_least:
            return f"a list of at least {at_least}"
        for index, item in enumerate(value):
            if (wrong := element(item)) is not None:
                return f"a list whose element {index} is {wrong}"
        return None

    return check


def table_of(entry: Field) -> Field:
    """An object with any names, whose values are all of one shape."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "an object"
        return _first_wrong(value, dict.fromkeys(value, entry))

    return check


def record(
    needed: Mapping[str, Field], may_have: Mapping[str, Field] = MappingProxyType({})
) -> Field:
    """An object that has some names, and may have others; what else it has is not looked at.

    Args:
        needed: the shapes of what it must have.
        may_have: the shapes of what it may have.
    """

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "an object"
        for name in needed:
            if name not in value:
                return f"an object with {name!r}"
        return _first_wrong(value, {**needed, **may_have})

    return check


def _first_wrong(value: Mapping[str, Any], entries: Mapping[str, Field]) -> str | None:
    for name, entry in entries.items():
        if name in value and (wrong := entry(value[name])) is not None:
            return f"an object whose {name!r} is {wrong}"
    return None
