"""A command on a published network: a small one, and Pl@ntNet-300K with few small photographs."""

import importlib
import os

from tests.parts.program.data import small
from tests.parts.program.prediction import small_network
from train.data import photographs
from train.data.crops import ImageReader

program = importlib.import_module(os.environ["COMMAND"])


def main():
    small_network.shrink(dict.__setitem__)
    small.shrink(setattr)
    photographs.READER = ImageReader.published(56, 64)
    program.main()
