"""`train.main` on photographs of 56 by 56 pixels, for which a network is 16 times as small."""

from train import main as program
from train.data import photographs


def shrink() -> None:
    photographs.SHORTER_SIDE, photographs.CROP = 64, 56


def main() -> None:
    shrink()
    program.main()
