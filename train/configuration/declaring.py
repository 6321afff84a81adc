"""How a field of the configuration is declared, and what is made of the declarations."""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from train.foundation import fields
from train.foundation.fields import Field

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Group = TypeVar("_Group", bound="DataclassInstance")
_KEY, _REST = "declared", "rest"
NO_DEFAULT: Any = dataclasses.MISSING


@dataclass(frozen=True)
class Declared:
    """A field as it is declared.

    Attributes:
        doc: what the field does, in words.
        check: what the field may hold.
        default: the value if none is given; `NO_DEFAULT` for a field that a recipe sets.
        type: the type of the values, without None.
        of_machine: whether the field may differ from machine to machine: no result depends on it.
        may_change: whether the field may change when a run resumes, or is finished.
        is_input: whether the field is an input of the compiled step, so that another value does not
            make another program.
        in_recipes: whether recipes have the field. If not, only runs have it, if its value is not
            the default.
    """

    doc: str
    check: Field
    default: Any
    type: type
    of_machine: bool
    may_change: bool
    is_input: bool
    in_recipes: bool


def field(
    doc: str,
    check: Field | None = None,
    *,
    default: Any = NO_DEFAULT,
    of_machine: bool = False,
    may_change: bool = False,
    is_input: bool = False,
    in_recipes: bool = True,
) -> Any:
    """Declares a field of a group, which is a frozen dataclass; see `Declared`.

    Without a check, the type of the field is the check: True or False, a text, or the values of a
    `Literal`. If None is in the type, None is allowed too.
    """
    said = {
        "doc": doc,
        "check": check,
        "of_machine": of_machine,
        "may_change": of_machine or may_change,
        "is_input": is_input,
        "in_recipes": in_recipes,
    }
    return dataclasses.field(default=default, metadata={_KEY: said})


def rest() -> Any:
    """Declares the field of a group that has the values without a declaration, by their names."""
    return dataclasses.field(default_factory=dict, metadata={_REST: True})


@functools.cache
def of_group(group: type["DataclassInstance"]) -> dict[str, Declared]:
    """The fields that a group declares, without its own groups, by their names."""
    hints = typing.get_type_hints(group)
    return {
        one.name: _declared(hints[one.name], one.default, one.metadata[_KEY])
        for one in dataclasses.fields(group)
        if _KEY in one.metadata
    }


def by_dotted_name(
    group: type["DataclassInstance"], prefix: str = "", /, **groups: type
) -> dict[str, Declared]:
    """The fields of a group and of the groups inside it, by their dotted names.

    Args:
        group: the group.
        prefix: the start of the names.
        groups: kinds of the groups inside, if they differ from the declared ones.
    """
    known, inside, found = of_group(group), dict(_groups(group)), dict[str, Declared]()
    for one in dataclasses.fields(group):
        if one.name in known:
            found[f"{prefix}{one.name}"] = known[one.name]
        elif one.name in inside:
            kind = groups.get(one.name, inside[one.name])
            found |= by_dotted_name(kind, f"{prefix}{one.name}.")
    return found


def defaults(group: type["DataclassInstance"], **groups: type) -> dict[str, Any]:
    """The defaults of the fields that recipes have, by dotted names and as JSON has them.

    Args:
        group: the group of the fields.
        groups: as of `by_dotted_name`.
    """
    return {
        name: _thawed(one.default)
        for name, one in by_dotted_name(group, **groups).items()
        if one.in_recipes and one.default is not NO_DEFAULT
    }


def build(
    group: type[_Group], values: Mapping[str, Any], prefix: str = "", /, **groups: type
) -> _Group:
    """The group with values that have been checked.

    Args:
        group: the group.
        values: by their dotted names.
        prefix: the start of the names of the group.
        groups: as for `by_dotted_name`.
    """
    own = {
        name.removeprefix(prefix): _frozen(value)
        for name, value in values.items()
        if name.startswith(prefix)
    }
    known = of_group(group)
    arguments = {
        name: typed(value, known[name].type) for name, value in own.items() if name in known
    }
    for name, inside in _groups(group):
        arguments[name] = build(groups.get(name, inside), values, f"{prefix}{name}.")
    for one in dataclasses.fields(group):
        if _REST in one.metadata:
            arguments[one.name] = {name: own[name] for name in own if name not in known}
    return group(**arguments)


def plain(group: "DataclassInstance") -> dict[str, Any]:
    """The group as JSON has it: nested, without the fields of runs that have their default."""
    known, found = of_group(type(group)), dict[str, Any]()
    for one in dataclasses.fields(group):
        value = getattr(group, one.name)
        if _REST in one.metadata:
            found |= _thawed(value)
        elif one.name not in known:
            found[one.name] = plain(value)
        elif known[one.name].in_recipes or value != known[one.name].default:
            found[one.name] = _thawed(value)
    return found


def inputs(group: "DataclassInstance") -> dict[str, Any]:
    """The values of a group that are inputs of the compiled step, by the names of their fields."""
    known = of_group(type(group))
    return {name: getattr(group, name) for name, one in known.items() if one.is_input}


def typed(value: Any, kind: type) -> Any:
    """The value, as a float for a field of floats: JAX refuses integers of over 32 bits."""
    return float(value) if kind is float and isinstance(value, int) else value


def _groups(group: type["DataclassInstance"]) -> Iterator[tuple[str, type]]:
    """The groups inside a group, by their names."""
    hints = typing.get_type_hints(group)
    for one in dataclasses.fields(group):
        if dataclasses.is_dataclass(hints[one.name]):
            yield one.name, hints[one.name]


def _declared(hint: Any, default: Any, said: Mapping[str, Any]) -> Declared:
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    members = typing.get_args(hint) if is_union else (hint,)
    (kind,) = (member for member in members if member is not types.NoneType)
    check = said["check"] or _check_of(kind)
    if types.NoneType in members and said["in_recipes"]:
        check = fields.optional(check)
    if typing.get_origin(kind) is Literal:
        kind = str
    kind = typing.get_origin(kind) or kind
    return Declared(**{**said, "check": check}, default=default, type=kind)


def _check_of(kind: Any) -> Field:
    if kind is bool:
        return fields.boolean()
    return fields.one_of(typing.get_args(kind)) if kind is not str else fields.text()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _thawed(one) for name, one in value.items()}
    return [*map(_thawed, value)] if isinstance(value, tuple) else value
