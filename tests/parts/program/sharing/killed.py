"""A command that shares its work, and is killed when its part has some results."""

import importlib
import os
import signal

from tests.parts.program.prediction import small_network
from train.prediction import observation_sets
from train.sharing.part_files import PartFile

_COMMAND = os.environ.get("SHARED_COMMAND")
# Defines the flags.
program = None if _COMMAND is None else importlib.import_module(f"train.{_COMMAND}")


def kill_after(results):
    original = PartFile.add

    def add(self, result):
        original(self, result)
        if self.done == results:
            os.kill(os.getpid(), signal.SIGKILL)

    PartFile.add = add


def main():
    small_network.shrink(dict.__setitem__)
    # So that few photographs are several units.
    observation_sets._EXAMPLES_TOGETHER = 100
    if "KILL_AFTER" in os.environ:
        kill_after(int(os.environ["KILL_AFTER"]))
    program.main()
