"""`train.embed` with a small network in the place of ResNet-50, killed in the middle if asked."""

import os
import signal

from tests.train.prediction import small_network
from train import embed as program
from train.prediction.embedding.partial_features import PartialFeatures


def kill_after(batches):
    original = PartialFeatures.add
    calls = 0

    def add(self, readable, features):
        nonlocal calls
        original(self, readable, features)
        calls += 1
        if calls == batches:
            os.kill(os.getpid(), signal.SIGKILL)

    PartialFeatures.add = add


def main():
    small_network.shrink(dict.__setitem__)
    if "KILL_AFTER" in os.environ:
        kill_after(int(os.environ["KILL_AFTER"]))
    program.main()
