"""Compiled programs on disk, kept between runs and shared by all processes of a user.

The cache is JAX's own. JAX writes an entry in place and never replaces one, so an entry can be read
when it is half written, and stays so when its writer is killed. JAX detects this by a checksum,
warns and compiles; its warnings, one for each program, are suppressed here. JAX's bound on the
size, JAX_COMPILATION_CACHE_MAX_SIZE, needs another package, locks for each entry that it reads, and
lists the folder for each entry that it writes; `prune` bounds the folder once per start.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path

from train.foundation import environment

_MOST_BYTES = 2**30
_WARNINGS = tuple(
    f"Error {doing} persistent compilation cache entry" for doing in ("reading", "writing")
)


def use() -> None:
    """Has this process read and write compiled programs; the environment's settings win.

    A folder that cannot be written to is not an error; see `environment.has_cache`.
    """
    import jax  # noqa: PLC0415 (the tests call `settings` before JAX may be imported)

    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    # JAX defines its options at run time.
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = settings(os.environ)["JAX_COMPILATION_CACHE_DIR"]
    if not environment.has_cache(Path(folder)):
        return
    with contextlib.suppress(OSError):
        prune(os.environ)
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that turn the cache on; those that are set keep their values."""
    wanted = {
        "JAX_COMPILATION_CACHE_DIR": str(_folder(variables) / _what_runs_the_code()),
        # Most of the time goes into many small compilations.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONWARNINGS": ",".join(f"ignore:{message}" for message in _WARNINGS),
    }
    return {name: variables.get(name, value) for name, value in wanted.items()}


def prune(variables: Mapping[str, str]) -> None:
    """Deletes the entries that were not read for the longest time, until the rest is in bounds."""
    found = []
    for folder in _listed(_folder(variables)):
        for file in _listed(folder.path):
            # Another process may delete it too.
            with contextlib.suppress(FileNotFoundError):
                status = file.stat()
                found.append((status.st_atime, file.path, status.st_size))
    excess = sum(size for _, _, size in found) - _MOST_BYTES
    for _, path, size in sorted(found):
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder. It can be tens of thousands: `Path.glob` takes four times as long."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folder(variables: Mapping[str, str]) -> Path:
    """The folder of the entries of all versions."""
    cache = Path(variables.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        # The default in the specification of the variable.
        cache = Path.home() / ".cache"
    return cache / "topk_jax" / "compiled"


def _what_runs_the_code() -> str:
    """A name for the versions that compile, and for the processor that the code is made for."""
    versions = [f"{name}-{importlib.metadata.version(name)}" for name in ("jax", "jaxlib")]
    processor = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    return "-".join((*versions, processor))


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return f"{platform.machine()} {platform.processor()}"
    # The lines of one core name its instructions.
    lines = information.read_text().split("\n\n")[0].splitlines()
    names = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
    return "\n".join(line for line in lines if line.startswith(names))
