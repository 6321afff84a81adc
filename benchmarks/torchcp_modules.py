"""TorchCP's scores and predictors for classification, without its other modules."""

import importlib
import importlib.metadata
import sys
import types
from pathlib import Path


def load() -> tuple[types.ModuleType, types.ModuleType]:
    """TorchCP's modules `score` and `predictor`."""
    folder = Path(str(importlib.metadata.distribution("torchcp").locate_file("torchcp")))
    # Empty, because TorchCP's own two packages import modules with more dependencies.
    for name, place in (
        ("torchcp", folder),
        ("torchcp.classification", folder / "classification"),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(place)]
        sys.modules[name] = package
    return (
        importlib.import_module("torchcp.classification.score"),
        importlib.import_module("torchcp.classification.predictor"),
    )
