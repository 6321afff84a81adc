"""Nested configurations by the dotted names of their fields, and how two of them differ."""

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a nested configuration by their dotted names; an empty group is one."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differences(config: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The fields in which two configurations differ, each as `name: value -> other value`."""
    values, others = dict(flatten(config)), dict(flatten(other))
    return [
        f"{name}: {values.get(name)!r} -> {others.get(name)!r}"
        for name in sorted({*values, *others})
        if values.get(name) != others.get(name)
    ]
