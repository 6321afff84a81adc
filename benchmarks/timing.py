"""Interleaved timing, memory, and a description of the machine."""

import concurrent.futures
import importlib.metadata
import multiprocessing
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

# A function that blocks until its work is done.
Contestant = Callable[[], Any]


def blocking(function: Callable[..., Any], *arguments: Any) -> Contestant:
    """Calls the function on the arguments, which are on the device by then."""
    operands = jax.device_put(arguments)
    return lambda: jax.block_until_ready(function(*operands))


def value_and_gradient(loss: Callable[..., jax.Array]) -> Any:
    """The mean loss and its gradient by the first argument, jitted."""
    return jax.jit(jax.value_and_grad(lambda *operands: loss(*operands).mean()))


def forward_and_backward(loss: Callable[..., jax.Array], *arguments: Any) -> Contestant:
    """The mean loss and its gradient by the first argument."""
    return blocking(value_and_gradient(loss), *arguments)


def medians_in_turns(
    contestants: Mapping[str, Contestant], repetitions: int, *, settle: bool = False
) -> dict[str, float]:
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


def in_process_of_its_own(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the function in a new process, so that the peak of memory is the function's."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(function, *arguments).result()


def logit_arrays(compiled: Any, logits: Any) -> float:
    """XLA's temporary memory of a compiled function, in arrays of the logits' size.

    NaN if XLA does not report it.
    """
    analysis = compiled.memory_analysis()
    return float("nan") if analysis is None else analysis.temp_size_in_bytes / logits.nbytes


def extra_memory(function: Contestant) -> int | None:
    """The peak memory of a call in bytes, beyond the current memory of the process.

    None if the system does not report it; only Linux does.
    """
    before, peak = resident_memory(), peak_memory(function)
    return None if before is None or peak is None else peak - before


def peak_memory(function: Contestant) -> int | None:
    """The peak memory of the process during a call in bytes; None if `extra_memory` is None."""
    status, forget = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not forget.exists():
        return None
    forget.write_text("5")  # Resets the peak.
    function()
    return _status_bytes(status, "VmHWM")


def resident_memory() -> int | None:
    """The memory of the process in bytes; None if the system does not report it."""
    status = Path("/proc/self/status")
    return _status_bytes(status, "VmRSS") if status.exists() else None


def _status_bytes(status: Path, name: str) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def machine(*peers: str) -> dict[str, Any]:
    """The hardware and the versions that a result depends on, also of third-party packages."""
    versions = {}
    for package in (*_PACKAGES, *peers):
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
