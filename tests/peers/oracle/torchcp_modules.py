"""TorchCP's scores, predictors and losses for classification, without its other modules."""

import importlib
import importlib.metadata
import sys
import types
from pathlib import Path


def load() -> tuple[types.ModuleType, types.ModuleType]:
    """TorchCP's modules `score` and `predictor`."""
    return load_one("score"), load_one("predictor")


def load_one(name: str) -> types.ModuleType:
    """A module of TorchCP's `classification`, as "loss.conftr"."""
    folder = Path(str(importlib.metadata.distribution("torchcp").locate_file("torchcp")))
    # Empty, because TorchCP's own two packages import modules with more dependencies.
    for parent, place in (
        ("torchcp", folder),
        ("torchcp.classification", folder / "classification"),
        ("torchcp.classification.loss", folder / "classification" / "loss"),
    ):
        if parent not in sys.modules:
            package = types.ModuleType(parent)
            package.__path__ = [str(place)]
            sys.modules[parent] = package
    return importlib.import_module(f"torchcp.classification.{name}")
