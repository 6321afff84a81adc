"""What a value may be: a type, whose bounds msgspec checks, and how messages say it."""

import difflib
import math
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, inspect

# Compiled steps compute in 32 bits.
_LARGEST = 3.4028234e38

# A text that is not empty.
TEXT = Annotated[str, Meta(min_length=1)]
NOT_NEGATIVE = Annotated[float, Meta(ge=0)]
COUNT = Annotated[int, Meta(ge=1)]
# A number of classes, whose upper limit is known when the data set is opened.
SET_SIZE = Annotated[int, Meta(ge=1, title="the classes of the data set")]
SMALLER_SET = Annotated[int, Meta(ge=1, title="one less than the classes of the data set")]


def number(**bounds: Any) -> Any:
    """The kind of finite numbers within bounds: `gt`, `ge`, `lt`, `le`."""
    return Annotated[float, Meta(**bounds)]


def integer(ge: int, le: int | None = None) -> Any:
    """The kind of integers within bounds."""
    return Annotated[int, Meta(ge=ge, le=le)]


def one_of(names: Iterable[str]) -> Any:
    """The kind of a few names."""
    return Literal[tuple(sorted(names))]


def text(pattern: str, words: str) -> Any:
    """The kind of texts that have a pattern, which messages call `words`."""
    return Annotated[str, Meta(pattern=pattern, description=words)]


def wrong(value: Any, kind: Any) -> str | None:
    """What a value must be instead; None if it is of the kind."""
    try:
        is_finite = _is_finite(msgspec.convert(value, kind))
    except (msgspec.ValidationError, UnicodeError):
        return describe(kind, str(value))
    return None if is_finite else describe(kind).replace("a number", "a finite number")


def describe(kind: Any, value: str = "") -> str:
    """A kind in words, with the name nearest to a value, if the kind has names."""
    return _words(inspect.type_info(kind), value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest one, if any is near."""
    near = _nearest(name, [*known])
    return f"; did you mean {near!r}?" if near else ""


def _nearest(name: str, names: Collection[str]) -> str:
    """The name that is meant; empty if none is near."""
    return next(iter(difflib.get_close_matches(name, names, n=1)), "")


def _is_finite(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    floats = [one for one in values if isinstance(one, float)]
    return all(math.isfinite(one) and abs(one) <= _LARGEST for one in floats)


def _words(kind: inspect.Type, value: str) -> str:
    named = {inspect.NoneType: "None", inspect.BoolType: "True or False"}
    match kind:
        case inspect.Metadata(extra_json_schema={"description": words}):
            return words
        case inspect.Metadata(type=inside):
            words = _words(inside, value)
        case inspect.UnionType(types=members):
            words = ", or ".join(_words(one, value) for one in members)
        case inspect.LiteralType(values=values):
            names = [*map(str, values)]
            words = ""
            # First, because the list may be long.
            if len(names) > 1 and (near := _nearest(value, names)):
                names.remove(near)
                words = f"{near} (did you mean this?), or "
            words += f"{'one of ' * (len(names) > 1)}{', '.join(names)}"
        case inspect.IntType():
            words = f"an integer {_bounds(kind)}".strip()
        case inspect.FloatType():
            words = f"a number {_bounds(kind)}".strip()
        case inspect.VarTupleType(item_type=item, min_length=least):
            size = "with at least one element, " if least else ""
            words = f"a tuple, {size}each {_words(item, value)}"
        case _:
            words = named.get(type(kind), "a text that is not empty")
    return words


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f"from {kind.ge:,} to {kind.le:,}"
    named = {"above": kind.gt, "of at least": kind.ge, "below": kind.lt, "at most": kind.le}
    return " and ".join(f"{word} {one:,}" for word, one in named.items() if one is not None)
