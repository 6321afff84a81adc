"""The table for the results of benchmarks.selection."""

from typing import Any

from benchmarks import markdown


def tables(results: dict[str, Any]) -> str:
    """Nanoseconds per entry, by shape, rank and method."""
    rows = results["rows"]
    ways = list(rows[0]["seconds"])
    return (
        f"{markdown.machine(results['machine'])}; medians of {results['repetitions']} calls in "
        "turns, in nanoseconds per entry.\n\n"
        + markdown.table(["rows", "L", "k", *ways], (_line(row, ways) for row in rows))
        + "\n"
    )


def _line(row: dict[str, Any], ways: list[str]) -> list[str]:
    entries = row["rows"] * row["classes"]
    return [
        *(f"{row[name]:,}" for name in ("rows", "classes", "k")),
        *(
            f"{1e9 * row['seconds'][way] / entries:.2f}" if way in row["seconds"] else "–"
            for way in ways
        ),
    ]
