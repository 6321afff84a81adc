"""What the benchmarks share: flags, calls that take turns, memory, and the machine."""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

# Seconds of rest between turns.
_REST = 0.05
_PACKAGES = ("jax", "jaxlib", "numpy", "optax")

# A function that blocks until its work is done.
Contestant = Callable[[], Any]
Name = TypeVar("Name")


def parser(doc: str | None, *, repetitions: int, what: str = "timed calls of each") -> Any:
    """A parser with the flags of every benchmark.

    Args:
        doc: the benchmark's docstring.
        repetitions: the default number of measurements.
        what: what is repeated.
    """
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--repetitions", type=int, default=repetitions, help=what)
    made.add_argument("--output", type=Path, help="a JSON file for the results, else printed")
    made.add_argument("--smoke", action="store_true", help="smallest sizes, to see that it works")
    return made


def parse(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The flags as they are given; `--smoke` means two repetitions."""
    given = made.parse_args()
    if given.smoke:
        given.repetitions = 2
    # Before the measurements, not after them.
    if given.output is not None and not given.output.parent.is_dir():
        made.error(f"--output must be in a folder that exists; got {given.output}")
    return given


def write(results: Mapping[str, Any], output: Path | None) -> None:
    """Writes the results as JSON, or prints them without a file."""
    text = json.dumps(results, indent=2) + "\n"
    if output is None:
        print(text)  # noqa: T201
    else:
        output.write_text(text)


def blocking(function: Callable[..., Any], *arguments: Any) -> Contestant:
    """Calls the function on the arguments, which are on the device by then."""
    operands = jax.device_put(arguments)
    return lambda: jax.block_until_ready(function(*operands))


def value_and_gradient(loss: Callable[..., jax.Array]) -> Any:
    """The mean loss and its gradient by the first argument, jitted."""
    return jax.jit(jax.value_and_grad(lambda *operands: loss(*operands).mean()))


def medians_in_turns(
    contestants: Mapping[Name, Contestant], repetitions: int, *, settle: bool = False
) -> dict[Name, float]:
    """The median seconds of each contestant.

    The contestants take turns, so that a slowdown of the machine affects all of them. The first two
    calls of each compile and warm up; they do not count.

    Args:
        contestants: the functions by name.
        repetitions: the timed calls of each.
        settle: whether to start each turn with a pause and a call that does not count. PyTorch's
            threads keep spinning on the cores that the next contestant needs, which must then wake
            its own threads and fill the caches.
    """
    for contestant in contestants.values():
        contestant()
        contestant()
    seconds: dict[Name, list[float]] = {name: [] for name in contestants}
    for _ in range(repetitions):
        for name, contestant in contestants.items():
            if settle:
                time.sleep(_REST)
                contestant()
            start = time.perf_counter()
            contestant()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def logit_arrays(compiled: Any, logits: Any) -> float:
    """XLA's temporary memory of a compiled function, in arrays of the logits' size."""
    return compiled.memory_analysis().temp_size_in_bytes / logits.nbytes


def extra_memory(function: Contestant) -> int:
    """The peak memory of a call in bytes, beyond the memory of the process; Linux only."""
    before = _status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak.
    function()
    return _status_bytes("VmHWM") - before


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def machine(*packages: str) -> dict[str, Any]:
    """The hardware and the versions that a result depends on, also of these packages."""
    versions = {}
    for package in (*_PACKAGES, *packages):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "device": jax.devices()[0].device_kind,
        "processor": ", ".join(models),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }
