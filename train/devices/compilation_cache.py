"""Compiled programs on disk, kept between runs and shared by all processes of a user.

The cache is JAX's own. JAX writes an entry in place and never replaces one, so an entry can be read
when it is half written, and stays so when its writer is killed. JAX detects this by a checksum,
warns and compiles; the warning is suppressed here. JAX's bound on the size, JAX_COMPILATION_CACHE_
MAX_SIZE, needs another package, locks for each entry that it reads, and lists the folder for each
entry that it writes; `prune` bounds the folder once per start.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import logging

_MOST_BYTES = 2**30
_WARNING = "Error reading persistent compilation cache entry"
_NOT_WRITTEN = "Error writing persistent compilation cache entry"


def use() -> None:
    """Has this process read and write compiled programs; the environment's settings win.

    A folder that cannot be made or written costs time and nothing else: one line says so.
    """
    import jax  # noqa: PLC0415 (the tests call `settings` before JAX may be imported)

    # JAX defines its options at run time. An empty text turns the cache off.
    given: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    try:
        if given is None:
            wanted = settings(os.environ)["JAX_COMPILATION_CACHE_DIR"]
            Path(wanted).mkdir(parents=True, exist_ok=True)
            prune(os.environ)
            jax.config.update("jax_compilation_cache_dir", wanted)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        elif given and "://" not in given:
            Path(given).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        jax.config.update("jax_compilation_cache_dir", None)
        _say_once(str(error))
    warnings.filterwarnings("ignore", message=_WARNING)
    _shorten_warnings()


@functools.cache
def _say_once(reason: str) -> None:
    logging.warning("compiled programs are not kept: %s", reason)


@functools.cache
def _shorten_warnings() -> None:
    """Has entries that cannot be written shown in one line in all. JAX warns of each in two."""
    show = warnings.showwarning

    def shown(message: Warning | str, *where: Any, **more: Any) -> None:
        entry, _, reason = str(message).partition(": ")
        if entry.startswith(_NOT_WRITTEN):
            # The error ends with the file, which is another one each time.
            _say_once(reason.partition(": '")[0])
        else:
            show(message, *where, **more)

    warnings.showwarning = shown


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that turn the cache on; those that are set keep their values."""
    wanted = {
        "JAX_COMPILATION_CACHE_DIR": str(_folder(environment) / _what_runs_the_code()),
        # Most of the time goes into many small compilations.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONWARNINGS": f"ignore:{_WARNING}",
    }
    return {name: environment.get(name, value) for name, value in wanted.items()}


def prune(environment: Mapping[str, str]) -> None:
    """Deletes the entries that were not read for the longest time, until the rest is in bounds."""
    found = []
    for folder in _listed(_folder(environment)):
        for file in _listed(folder.path):
            # Another process may delete it too.
            with contextlib.suppress(OSError):
                status = file.stat()
                found.append((status.st_atime, file.path, status.st_size))
    excess = sum(size for _, _, size in found) - _MOST_BYTES
    for _, path, size in sorted(found):
        if excess <= 0:
            return
        with contextlib.suppress(OSError):
            Path(path).unlink(missing_ok=True)
        excess -= size


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder. It can be tens of thousands: `Path.glob` takes four times as long."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _folder(environment: Mapping[str, str]) -> Path:
    """The folder of the entries of all versions.

    Raises:
        OSError: the user has no home folder.
    """
    cache = Path(environment.get("XDG_CACHE_HOME", ""))
    # The specification of XDG ignores relative paths: each is another folder in each folder.
    if not cache.is_absolute():
        home = os.path.expanduser("~")  # noqa: PTH111 (Path.home raises errors of another type)
        if not os.path.isabs(home):  # noqa: PTH117
            raise OSError(f"the home folder must be an absolute path; it is {home!r}")
        cache = Path(home) / ".cache"
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
