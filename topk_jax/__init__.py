"""Set-valued classification: losses, sets, calibration and metrics as pure jittable functions."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "heads", "losses", "metrics", "operators", "sets", "taxonomy"]

if TYPE_CHECKING:
    from topk_jax import heads, losses, metrics, operators, sets, taxonomy
else:
    # On first use, as they import JAX. Type checkers would take it for any name.
    def __getattr__(name: str) -> ModuleType:
        if name.startswith("_") or name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
