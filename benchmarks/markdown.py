"""Markdown for tables of results."""

from collections.abc import Iterable


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A table, a line a row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
