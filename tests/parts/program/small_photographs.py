"""`train.main` on photographs of 56 by 56 pixels, for which a network is 16 times as small."""

from train import main as program
from train.data import photographs
from train.data.crops import ImageReader


def shrink() -> None:
    photographs.READER = ImageReader.published(56, 64)


def main() -> None:
    shrink()
    program.main()
