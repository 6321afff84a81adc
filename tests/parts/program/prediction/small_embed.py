"""`train.embed` with a small network in the place of ResNet-50, killed in the middle if asked."""

import os
import signal

from tests.parts.program.prediction import small_network
from train import embed as program
from train.sharing.part_files import PartFile


def kill_after(batches):
    original = PartFile.add
    calls = 0

    def add(self, result):
        nonlocal calls
        original(self, result)
        calls += 1
        if calls == batches:
            os.kill(os.getpid(), signal.SIGKILL)

    PartFile.add = add


def main():
    small_network.shrink(dict.__setitem__)
    if "KILL_AFTER" in os.environ:
        kill_after(int(os.environ["KILL_AFTER"]))
    program.main()
