"""The table for the results of benchmarks.selection."""

from typing import Any

from benchmarks import markdown


def tables(results: dict[str, Any]) -> str:
    """Microseconds by shape, rank and method."""
    rows = results["rows"]
    # In the order of the row that has the most.
    ways = list(max(rows, key=lambda row: len(row["seconds"]))["seconds"])
    return (
        f"{markdown.machine(results['machine'])}; medians of {results['repetitions']} calls in "
        "turns, in microseconds.\n\n"
        + markdown.table(["rows", "L", "k", *ways], (_line(row, ways) for row in rows))
        + "\n"
    )


def _line(row: dict[str, Any], ways: list[str]) -> list[str]:
    return [
        *(f"{row[name]:,}" for name in ("rows", "classes", "k")),
        *(f"{1e6 * row['seconds'][way]:,.0f}" if way in row["seconds"] else "–" for way in ways),
    ]
