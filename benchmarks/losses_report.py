"""Tables for the results of benchmarks.losses."""

from typing import Any

from benchmarks import markdown

_OURS = "noised_top_k_hinge"
_TIMES = {
    "seconds": "Compared with others:",
    "expected": "The exact expectation beside the noised loss with ten samples:",
    "flat_in_k": "By K:",
}


def tables(results: dict[str, Any]) -> str:
    """Milliseconds by shape and contestant, ratios to ours, and the memory."""
    machine = markdown.machine(results["machine"])
    of_times = (
        f"; medians of {results['repetitions']} calls in turns, in milliseconds, and in brackets "
        "as a multiple of the noised loss with one key"
    )
    parts = [f"{machine}{of_times if _TIMES.keys() & results else ''}."]
    for section, title in _TIMES.items():
        if section in results:
            parts += [title, _times(results[section])]
    if "memory" in results:
        parts += [
            "Memory in arrays of [batch, L]; what the process takes includes the gradient, one "
            "array:",
            markdown.table(
                ["batch", "L", "M", "K", "temporaries of XLA", "taken by the process"],
                ([*_shape(row), *_arrays(row)] for row in results["memory"]),
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _times(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0]["seconds"])
    return markdown.table(
        ["batch", "L", "M", "K", *names],
        ([*_shape(row), *(_time(row, name) for name in names)] for row in rows),
    )


def _time(row: dict[str, Any], name: str) -> str:
    seconds = row["seconds"]
    return f"{1e3 * seconds[name]:.2f} ({seconds[name] / seconds[_OURS]:.2f})"


def _shape(row: dict[str, Any]) -> list[str]:
    return [f"{row[name]:,}" for name in ("batch", "classes", "M", "K")]


def _arrays(row: dict[str, Any]) -> list[str]:
    counts = (row["logit_arrays"], row["process_arrays"])
    return ["unknown" if count is None else f"{count:.2f}" for count in counts]
