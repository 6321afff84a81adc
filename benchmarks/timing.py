"""Interleaved timing, and a description of the machine."""

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

# Seconds of rest between turns.
_REST = 0.05
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "torch", "pytopk")


def medians_in_turns(
    contestants: Mapping[str, Callable[[], Any]], repetitions: int, *, settle: bool = False
) -> dict[str, float]:
    """The median seconds of each contestant.

    The contestants take turns, so that a slowdown of the machine affects all of them. The first two
    calls of each compile and warm up; they do not count.

    Args:
        contestants: functions that block until their work is done.
        repetitions: the timed calls of each.
        settle: whether to begin each turn with a pause and a call that does not count. PyTorch's
            threads keep spinning on the cores that the next contestant needs, which must then wake
            its own threads and fill the caches.
    """
    for contestant in contestants.values():
        contestant()
        contestant()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repetitions):
        for name, contestant in contestants.items():
            if settle:
                time.sleep(_REST)
                contestant()
            start = time.perf_counter()
            contestant()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def extra_memory(function: Callable[[], Any]) -> int | None:
    """The peak memory of a call in bytes, beyond the current memory of the process.

    None if the system does not report it; only Linux does.
    """
    status, forget = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not forget.exists():
        return None
    forget.write_text("5")  # Resets the peak.
    before = _status_bytes(status, "VmRSS")
    function()
    return _status_bytes(status, "VmHWM") - before


def _status_bytes(status: Path, name: str) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def machine() -> dict[str, Any]:
    """The hardware and the versions that a result depends on."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": jax.devices()[0].device_kind,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
