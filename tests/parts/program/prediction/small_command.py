"""A command with a small network in the place of ResNet-50."""

import importlib
import os

from tests.parts.program.prediction import small_network

program = importlib.import_module(os.environ["COMMAND"])


def main():
    small_network.shrink(dict.__setitem__)
    program.main()
