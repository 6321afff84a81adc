"""Memory that a command frees is used again, and not taken from the system again."""

import os
import platform
import subprocess
import sys

import pytest

from tests.parts.program.forked import ROOT

# Ten blocks of 64 MB one after another, in a thread as XLA's are. Without huge pages (41 is
# PR_SET_THP_DISABLE): with huge pages, a new block takes 32 faults instead of 16,384, and the count
# no longer shows how much memory was new.
_COMMAND = """
import ctypes, resource, sys, threading
from train.foundation import command_line

if ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) != 0:
    sys.exit("the system does not leave huge pages out")

def allocate():
    for size in [2**26] * 10:
        b"x" * size

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def command():
    before = page_faults()
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    print(page_faults() - before)

sys.argv = ["command"]
command_line.run(command)
"""


def page_faults(**of_user):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MALLOC_") and name != "GLIBC_TUNABLES"
    }
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND],
        cwd=ROOT,
        env={**environment, **of_user},
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another one")
def test_what_a_command_frees_it_uses_again():
    kept = page_faults()
    # The user's settings win: these are glibc's own, with which each block is new.
    by_variable = page_faults(MALLOC_MMAP_THRESHOLD_="131072")
    by_tunable = page_faults(GLIBC_TUNABLES="glibc.malloc.mmap_threshold=131072")
    # One block in place of ten, and some pages of the thread.
    assert kept * 5 < min(by_variable, by_tunable)
