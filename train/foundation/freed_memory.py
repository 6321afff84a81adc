"""Keeps freed memory in the process, so that each training step uses the same pages again.

glibc's malloc takes blocks of 32 MB or more from the system and gives them back as soon as they are
freed, and it gives back what is free at the end of a heap. XLA allocates and frees its temporary
arrays in every step on the CPU. The system then has to clear all their pages again: up to half of
the time of a run of a small network.
"""

import ctypes
import os
import sys
from collections.abc import Mapping

# Parameters of mallopt, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# Larger blocks are still given back: a heap that keeps them has holes of their size. A ResNet-18
# for 224 x 224 pixels then took twice the memory.
_LARGEST_KEPT = 2**28


def keep() -> None:
    """Keeps what this process frees from now on; the environment's settings of malloc win.

    Does nothing if the C library is not glibc.
    """
    if sys.platform != "linux" or _are_set(os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # It returns 0 if it refuses: glibc before 2.35 takes no such threshold.
    if mallopt is None or not mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT):
        return
    mallopt(_TRIM_THRESHOLD, -1)
    # Heaps of threads have at most 64 MB, and empty heaps are given back whatever the threshold.
    mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    """Gives all pages that are free now to the system; only glibc does so."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if sys.platform == "linux" and trim is not None:
        trim(0)


def _are_set(environment: Mapping[str, str]) -> bool:
    """Whether the user has set malloc's parameters."""
    tunables = environment.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(name.startswith("MALLOC_") for name in environment)
