"""Tables for the results of benchmarks.collection."""

from typing import Any

from benchmarks import markdown

_BASE = "cross_entropy"


def tables(results: dict[str, Any]) -> str:
    """Time, memory and non-zeros of the losses; relaxations by temperature; conformal sets."""
    rows = results["losses"]
    shapes = [f"{row['batch']} × {row['classes']:,}" for row in rows]
    conformal = results["conformal"]
    temperatures = list(next(iter(results["relaxations"].values())))
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; medians of {results['repetitions']} calls in "
            "turns. Forward and backward, as a multiple of cross-entropy, and in brackets how many "
            "times as long the authors' code takes in PyTorch:",
            markdown.table(
                ["loss", *shapes],
                ([f"`{name}`", *(_time(row, name) for row in rows)] for name in rows[0]["losses"]),
            ),
            "The largest relative difference of a mean loss from the authors', where both have no "
            f"noise: {_difference(rows):.1e}.",
            "Temporary memory in arrays of the logits, and in brackets the classes of an example "
            "that have a gradient:",
            markdown.table(
                ["loss", *shapes],
                ([f"`{name}`", *(_size(row, name) for row in rows)] for name in rows[0]["losses"]),
            ),
            "The distance of the memberships from those of the hard top 5 of 1,000 normal scores, "
            "by temperature; 1 is that of two sets without a common class:",
            markdown.table(
                ["operator", *temperatures],
                (
                    [f"`{name}`", *(f"{distances[tau]:.3f}" for tau in temperatures)]
                    for name, distances in results["relaxations"].items()
                ),
            ),
            f"Conformal sets of {conformal['examples']:,} examples with {conformal['classes']:,} "
            "classes, in seconds, and in brackets how many times as long TorchCP takes:",
            markdown.table(
                ["kind", "calibrate", "predict", "both"],
                ([f"`{kind}`", *_conformal(one)] for kind, one in conformal["kinds"].items()),
            ),
        ]
    )


def _difference(rows: list[dict[str, Any]]) -> float:
    return max(
        abs(one["value"] / one["their_value"] - 1)
        for row in rows
        for name, one in row["losses"].items()
        if "their_value" in one and name != "noised_top_k_hinge"
    )


def _time(row: dict[str, Any], name: str) -> str:
    one = row["losses"][name]
    ratio = f"{one['seconds'] / row['losses'][_BASE]['seconds']:.1f}"
    return ratio + _in_brackets(one["their_seconds"], one["seconds"])


def _size(row: dict[str, Any], name: str) -> str:
    one = row["losses"][name]
    return f"{one['logit_arrays']:.1f} ({one['nonzeros']:,.0f})"


def _conformal(seconds: dict[str, float]) -> list[str]:
    def told(*which: str) -> str:
        ours = sum(seconds[name] for name in which)
        theirs = [seconds.get(f"their {name}") for name in which]
        known = [one for one in theirs if one is not None]
        return f"{ours:.2f}" + _in_brackets(sum(known) if known else None, ours)

    return [told("calibrate"), told("predict"), told("calibrate", "predict")]


def _in_brackets(theirs: float | None, ours: float) -> str:
    return "" if theirs is None else f" ({theirs / ours:.1f})"
