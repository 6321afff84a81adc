"""Numbers and names as the page has them."""

import math
import os
from pathlib import Path
from typing import Any

from markupsafe import Markup


def percent(probability: float) -> str:
    """A probability for people."""
    if math.isnan(probability):
        return "no number"
    if 0 < probability < 0.001:
        return "< 0.1%"
    # What is not certain is not called so.
    return "> 99.9%" if 0.9995 <= probability < 1 else f"{probability:.1%}"


def number(probability: float) -> float:
    """The probability, or 0 where it is no number."""
    return 0.0 if math.isnan(probability) else probability


def plural(count: int, one: str, several: str | None = None) -> str:
    """A number of things."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def folder(path: Path) -> str:
    """The folder of a file, with a slash at its end; nothing where the path has none."""
    return os.path.join(path.parent, "") if path.parent != Path() else ""  # noqa: PTH118


def encodable(value: Any) -> Any:
    """A text with the bytes replaced that are no text: the name of a file can have some."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
