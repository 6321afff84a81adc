"""Markdown for tables of results."""

from collections.abc import Iterable, Mapping
from typing import Any


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table with one line per row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(machine: Mapping[str, Any]) -> str:
    """The hardware and the versions of a result, as `timing.machine` gives them."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['device']}, {machine['processor']}, {machine['cores']} cores; Python "
        f"{machine['python']}, {versions}"
    )
