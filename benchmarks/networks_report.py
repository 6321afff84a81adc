"""The tables of a result of benchmarks.networks."""

from typing import Any

from benchmarks import markdown
from benchmarks.networks import CHANNELS_LAST, COMPILED, EAGER, FORWARD, GRADIENTS, HERE

_CONTESTANTS = (HERE, EAGER, CHANNELS_LAST, COMPILED)
_MEGABYTE = 1e6


def tables(results: dict[str, Any]) -> str:
    """Images per second forward and with gradients, memory and time of compilation."""
    settings = results["settings"]
    batch = settings["batch_size"]
    networks = results["networks"]
    measured = {name: one for name, one in networks.items() if "failure" not in one}
    present = [
        contestant
        for contestant in _CONTESTANTS
        if any(contestant in one["contestants"] for one in measured.values())
    ]
    size = settings["image_size"]
    parts = [
        f"{markdown.machine(results['machine'])}; {size} by {size} pixels, batch {batch}, float32; "
        f"medians of {settings['repetitions']} calls in turns. `PyTorch` is eager.",
    ]
    for which, title in ((FORWARD, "forward"), (GRADIENTS, "forward and backward")):
        parts += [
            f"Images per second, {title}:",
            markdown.table(
                ["network", *present, "here / PyTorch", "here / channels_last"],
                (
                    [
                        f"`{name}`",
                        *(_rate(one["contestants"], other, which, batch) for other in present),
                        *(
                            _ratio(one["contestants"], other, which)
                            for other in (EAGER, CHANNELS_LAST)
                        ),
                    ]
                    for name, one in measured.items()
                ),
            ),
        ]
    parts += [
        "Memory of forward and backward, without parameters and images, in MB; the time of "
        "compilation of both functions, in seconds:",
        markdown.table(
            [
                *("network", "parameters"),
                *(f"{name}, MB" for name in present),
                *(f"{name}, compilation" for name in (HERE, COMPILED) if name in present),
            ],
            (
                [
                    f"`{name}`",
                    f"{one['parameters']:,}",
                    *(_memory(one["contestants"].get(other)) for other in present),
                    *(
                        _compilation(one["contestants"].get(other))
                        for other in (HERE, COMPILED)
                        if other in present
                    ),
                ]
                for name, one in measured.items()
            ),
        ),
    ]
    failures = {name: one["failure"] for name, one in networks.items() if "failure" in one} | {
        f"{name}, {contestant}": reason
        for name, one in measured.items()
        for contestant, reason in one["failures"].items()
    }
    if failures:
        parts += [
            "Not measured:",
            "\n".join(f"- {name}: {reason}" for name, reason in failures.items()),
        ]
    return "\n\n".join(parts) + "\n"


def _rate(contestants: dict[str, Any], name: str, which: str, batch: int) -> str:
    return f"{batch / contestants[name][which]:.1f}" if name in contestants else "–"


def _ratio(contestants: dict[str, Any], other: str, which: str) -> str:
    return f"{contestants[other][which] / contestants[HERE][which]:.2f}"


def _memory(contestant: dict[str, Any] | None) -> str:
    if contestant is None or contestant["memory"] is None:
        return "–"
    return f"{contestant['memory'] / _MEGABYTE:,.0f}"


def _compilation(contestant: dict[str, Any] | None) -> str:
    return "–" if contestant is None else f"{contestant['compile_seconds']:.0f}"
