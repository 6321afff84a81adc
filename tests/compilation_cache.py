"""What XLA compiled, kept between the runs of the tests and shared by all their processes.

JAX writes an entry in place, and never over one that is there. An entry may therefore be read when
it is half written, and stays half written when its writer is killed. JAX sees this by a checksum,
warns, and compiles; the tests ignore that warning.
"""

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path

# JAX's own bound, JAX_COMPILATION_CACHE_MAX_SIZE, needs another package (filelock), takes a lock
# for every entry that it reads, and lists the whole folder for every one that it writes.
MOST_BYTES = 2**30
WARNING = "Error reading persistent compilation cache entry"


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that have JAX keep what it compiles; what the environment sets is left so."""
    wanted = {
        "JAX_COMPILATION_CACHE_DIR": str(_folder(environment) / _what_runs_the_code()),
        # The many small compilations take the time.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONWARNINGS": f"ignore:{WARNING}",
    }
    return {name: environment.get(name, value) for name, value in wanted.items()}


def prune(environment: Mapping[str, str]) -> None:
    """Deletes the entries that were not read for the longest time, until the rest is in bounds."""
    found = []
    for file in _folder(environment).glob("*/*"):
        status = file.stat()
        found.append((status.st_atime, file, status.st_size))
    excess = sum(size for _, _, size in found) - MOST_BYTES
    for _, file, size in sorted(found):
        if excess <= 0:
            return
        # Another run of the tests may delete it too.
        file.unlink(missing_ok=True)
        excess -= size


def _folder(environment: Mapping[str, str]) -> Path:
    """Where all versions' entries are."""
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "topk_jax" / "tests"


def _what_runs_the_code() -> str:
    """A name for the versions that compile, and for the processor that the code is made for."""
    versions = [f"{name}-{importlib.metadata.version(name)}" for name in ("jax", "jaxlib")]
    processor = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    return "-".join((*versions, processor))


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return f"{platform.machine()} {platform.processor()}"
    # The lines of one of its cores say which instructions it has.
    lines = information.read_text().split("\n\n")[0].splitlines()
    told = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
    return "\n".join(line for line in lines if line.startswith(told))
