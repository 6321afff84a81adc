"""Tables in Markdown."""

from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table between empty lines."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"
