"""A command on a published network: a small one, and Pl@ntNet-300K with few small photographs."""

import importlib
import os

from tests.parts.program.data import small
from tests.parts.program.prediction import small_network
from train.data import photographs

program = importlib.import_module(os.environ["COMMAND"])


def main():
    small_network.shrink(dict.__setitem__)
    small.shrink(setattr)
    photographs.SHORTER_SIDE, photographs.CROP = 64, 56
    program.main()
