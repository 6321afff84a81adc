"""`train.main` with a ResNet-50 that compiles in a second."""

from tests.parts.program.models.tiny import SMALL_RESNET
from train import main as program
from train.models import MODELS


def main():
    MODELS["resnet50"] = SMALL_RESNET
    program.main()
