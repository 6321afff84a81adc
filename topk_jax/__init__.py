"""Set-valued classification: losses, sets, calibration and metrics as pure jittable functions."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "drift",
    "heads",
    "losses",
    "metrics",
    "operators",
    "rules",
    "sets",
    "taxonomy",
]

if TYPE_CHECKING:
    from topk_jax import drift, heads, losses, metrics, operators, rules, sets, taxonomy
else:
    # The modules are imported on first use, because they import JAX. Type checkers would accept any
    # name here.
    def __getattr__(name: str) -> ModuleType:
        if not name.startswith("_"):
            if name in __all__:
                return importlib.import_module(f"{__name__}.{name}")
            modules = (f"{__name__}.{one}" for one in __all__ if not one.startswith("_"))
            with_it = [one for one in modules if name in importlib.import_module(one).__all__]
            if with_it:
                raise AttributeError(
                    f"module {__name__!r} has no attribute {name!r}; see {' and '.join(with_it)}",
                    name=name,
                )
        # Python suggests a similar name of the object.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}",
            name=name,
            obj=sys.modules[__name__],
        )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
