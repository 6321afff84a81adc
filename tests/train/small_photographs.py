"""`train.main` on photographs of 56 by 56 pixels, for which a network is 16 times as small."""

from train import main as program
from train.data import images


def shrink() -> None:
    images.SHORTER_SIDE, images.CROP = 64, 56


def main() -> None:
    shrink()
    program.main()
