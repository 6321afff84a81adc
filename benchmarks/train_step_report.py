"""The tables of a result of benchmarks.train_step."""

from typing import Any

from benchmarks import markdown


def tables(results: dict[str, Any]) -> str:
    """Times of a step and of only the loss, and what the loss adds to the step of cross-entropy."""
    parts = [
        f"{markdown.machine(results['machine'])}; medians of {results['step_repetitions']} steps "
        f"and of {results['loss_repetitions']} evaluations of the loss alone, in turns."
    ]
    for model in results["models"]:
        parts += [
            f"`{model['model']}`, {model['parameters']:,} parameters, batch {model['batch']}, "
            f"{model['size']} by {model['size']} pixels, {model['classes']:,} classes:",
            markdown.table(
                [
                    *("loss", "K", "M", "loss alone, ms", "more than cross-entropy, % of a step"),
                    *("step, ms", "images/s", "step, % over cross-entropy"),
                ],
                (_line(row) for row in model["losses"]),
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _line(row: dict[str, Any]) -> list[str]:
    return [
        row["loss"],
        *("–" if row[name] is None else str(row[name]) for name in ("K", "M")),
        f"{1e3 * row['loss_seconds']:.2f}",
        f"{row['loss_overhead_percent']:.3f}",
        *(
            [
                f"{1e3 * row['step_seconds']:,.1f}",
                f"{row['images_per_second']:.1f}",
                f"{row['step_overhead_percent']:+.1f}",
            ]
            if "step_seconds" in row
            else ["–"] * 3
        ),
    ]
