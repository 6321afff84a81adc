"""Formats numbers and names for pages, and makes the templates that use them."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from train.foundation.printable import printable


def percent(probability: float) -> str:
    """A probability in per cent."""
    if math.isnan(probability):
        return "no number"
    if 0 < probability < 0.001:
        return "< 0.1%"
    # Only a certain class gets 100%.
    return "> 99.9%" if 0.9995 <= probability < 1 else f"{probability:.1%}"


def number(probability: float) -> float:
    """The probability, or 0 if it is NaN."""
    return 0.0 if math.isnan(probability) else probability


def plural(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: "1 class" or "2 classes"."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def common_folder(paths: Sequence[Path]) -> str:
    """The folder of all files with a slash at its end; empty without one, or with several."""
    folders = {path.parent for path in paths} - {Path()}
    return os.path.join(folders.pop(), "") if len(folders) == 1 else ""  # noqa: PTH118


def plain(value: Any) -> Any:
    """A text with literals for characters that control a terminal or cannot be in a page."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if is_text else value


def make_templates(folder: Path) -> Environment:
    """The templates in a folder; what they print is escaped, and a name that is missing raises."""
    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=plain,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {function.__name__: function for function in (number, percent, plural)}
    return templates
