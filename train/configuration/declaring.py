"""How a field of the configuration is declared, and what is made of the declarations."""

import dataclasses
import functools
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NO_DEFAULT: Any = dataclasses.MISSING


def field(
    doc: str,
    *,
    default: Any = NO_DEFAULT,
    of_machine: bool = False,
    may_change: bool = False,
    is_input: bool = False,
    **bounds: Any,
) -> Any:
    """Declares a field of a group, which is a frozen dataclass.

    Args:
        doc: what the field does, in words.
        default: the value if none is given; `NO_DEFAULT` for a field that a recipe sets.
        of_machine: whether the field may differ from machine to machine: no result depends on it.
        may_change: whether the field may change when a run resumes, or is finished.
        is_input: whether the field is an input of the compiled step, so that another value does not
            make another program.
        bounds: of the values, as `msgspec.Meta` has them: `gt`, `ge`, `lt`, `le`, `min_length`. A
            text is not empty.
    """
    traits = (doc, of_machine, of_machine or may_change, is_input)
    return dataclasses.field(default=default, metadata={"bounds": bounds, "traits": traits})


class Declared(NamedTuple):
    """A declared field; see `field`.

    Attributes:
        kind: the type with the bounds, and with None if the field may be None.
        type: the type of the values.
    """

    kind: Any
    type: type
    default: Any
    doc: str
    of_machine: bool
    may_change: bool
    is_input: bool


@functools.cache
def of_group(group: type["DataclassInstance"]) -> dict[str, Declared]:
    """The fields that a group declares, without its own groups, by their names."""
    hints = typing.get_type_hints(group, include_extras=True)
    return {
        one.name: _declared(hints[one.name], one)
        for one in dataclasses.fields(group)
        if one.metadata
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
    found: dict[str, Declared] = {}
    for name, inside in groups_of(group).items():
        found |= by_dotted_name(groups.get(name, inside), f"{prefix}{name}.")
    return found | {f"{prefix}{name}": one for name, one in of_group(group).items()}


def defaults(group: type["DataclassInstance"], **groups: type) -> dict[str, Any]:
    """The defaults of fields by their dotted names, as JSON has them; see `by_dotted_name`."""
    return {
        name: list(one.default) if one.type is tuple else one.default
        for name, one in by_dotted_name(group, **groups).items()
        if one.default is not NO_DEFAULT
    }


def inputs(group: "DataclassInstance") -> dict[str, Any]:
    """The values of a group that are inputs of the compiled step, by the names of their fields."""
    known = of_group(type(group))
    return {name: getattr(group, name) for name, one in known.items() if one.is_input}


@functools.cache
def groups_of(group: type["DataclassInstance"]) -> dict[str, type]:
    """The groups inside a group, by their names."""
    hints: dict[str, type] = typing.get_type_hints(group)
    return {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}


def _declared(hint: Any, one: "dataclasses.Field[Any]") -> Declared:
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    members = typing.get_args(hint) if is_union else (hint,)
    (member,) = (member for member in members if member is not types.NoneType)
    bounds = ({"min_length": 1} if member is str else {}) | one.metadata["bounds"]
    kind: Any = Annotated[member, msgspec.Meta(**bounds)]
    type_ = str if typing.get_origin(member) is Literal else typing.get_origin(member) or member
    return Declared(kind | None if is_union else kind, type_, one.default, *one.metadata["traits"])
