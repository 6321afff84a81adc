"""What all pages have: templates that escape, a style, scripts, and words for numbers."""

import hashlib
import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from train.foundation import files
from train.foundation.console import printable

_HERE = Path(__file__).parent
_AFTER_WHICH_NAMES_BREAK = re.compile(r"(?<=[_\-/])")


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


STYLE, DROPS = _text("style.css"), _text("drops.js")


def percent(probability: float) -> str:
    """A probability in per cent."""
    if math.isnan(probability):
        return "no number"
    if 0 < probability < 0.001:
        return "< 0.1%"
    # Only a certain class gets 100%.
    return "> 99.9%" if 0.9995 <= probability < 1 else f"{probability:.1%}"


def plural(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: "1 class" or "2 classes"."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def breakable(name: str) -> Markup:
    """The name of a file, which may be broken after `_`, `-` and `/`."""
    parts = _AFTER_WHICH_NAMES_BREAK.split(printable(name))
    return Markup("<wbr>").join(map(escape, parts))


def to_json(value: Any) -> str:
    """A value as JSON without characters that a page would escape once more."""
    return json.dumps(value).replace("\x7f", r"\u007f")


def _printable(value: Any) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if is_text else value


_templates = Environment(
    loader=FileSystemLoader(_HERE),
    autoescape=True,
    finalize=_printable,
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)
_templates.filters |= {"percent": percent, "plural": plural, "breakable": breakable}


def write(path: Path, template: str, scripts: Sequence[str], **shown: Any) -> None:
    """Writes a page.

    Args:
        path: the file.
        template: its template.
        scripts: files of scripts; each uses what the files before it define.
        shown: what the template shows; a name that is missing raises.
    """
    script = DROPS + "".join(map(_text, scripts))
    parts = _templates.get_template(template).generate(
        style=Markup(STYLE),
        script=Markup(script),
        script_digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **shown,
    )
    with files.replacing(path) as file:
        file.writelines(part.encode() for part in parts)
