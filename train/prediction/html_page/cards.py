"""The part of the page that shows one image."""

import html
import math
import os
from collections.abc import Sequence
from pathlib import Path

from train.prediction.image_sets import ImageSet

# The classes of a set that are seen at once; one more takes no more room than the line that hides
# it.
_SEEN = 5


def card(entry: ImageSet, names: Sequence[str]) -> str:
    """An image, its name and its set."""
    size = len(entry.classes)
    members = [
        _member(names[index], probability)
        for index, probability in zip(entry.classes, entry.probabilities, strict=True)
    ]
    if not members:
        shown = (
            '<p class="empty">No class reaches the threshold. The likeliest is '
            f"<b>{escaped(names[entry.likeliest])}</b>, {percent(entry.highest)}.</p>"
        )
    elif size <= _SEEN + 1:
        shown = f'<ol class="set">{"".join(members)}</ol>'
    else:
        shown = (
            f'<ol class="set">{"".join(members[:_SEEN])}</ol>'
            f"<details><summary>and {size - _SEEN:,} more</summary>"
            f'<ol class="set" start="{_SEEN + 1}">{"".join(members[_SEEN:])}</ol></details>'
        )
    return (
        f'<li class="card" data-size="{size}" data-top="{entry.highest:.9g}">'
        f"<article>{_picture(entry)}"
        f'<div class="words"><h2>{_shown_path(entry.path)}</h2>'
        f'<p class="size">{plural(size, "class", "classes") if size else "empty set"}</p>'
        f"{shown}</div></article></li>\n"
    )


def escaped(text: str) -> str:
    """Text as HTML; bytes in the name of a file that are no text are replaced."""
    return html.escape(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def percent(probability: float) -> str:
    """A probability for people."""
    if math.isnan(probability):
        return "no number"
    if 0 < probability < 0.001:
        return "< 0.1%"
    # What is not certain is not called so.
    return "> 99.9%" if 0.9995 <= probability < 1 else f"{probability:.1%}"


def plural(number: int, one: str, several: str | None = None) -> str:
    """A number of things."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _shown_path(path: Path) -> str:
    """The path of a file, its folder apart."""
    folder = os.path.join(path.parent, "") if path.parent != Path() else ""  # noqa: PTH118
    return f'<span class="folder">{escaped(folder)}</span>{escaped(path.name)}'


def _member(name: str, probability: float) -> str:
    share = 0.0 if math.isnan(probability) else probability
    return (
        f'<li><span class="name">{escaped(name)}</span> '
        f'<span class="probability">{html.escape(percent(probability))}</span>'
        f'<span class="bar" style="--share:{share:.4f}"></span></li>'
    )


def _picture(entry: ImageSet) -> str:
    thumbnail = entry.thumbnail
    if thumbnail is None:
        return ""
    small = ' class="small"' if thumbnail.is_small else ""
    return (
        f'<div class="picture"><img{small} src="{thumbnail.data_uri()}" '
        f'alt="the image {escaped(entry.path.name)}" width="{thumbnail.width}" '
        f'height="{thumbnail.height}" loading="lazy" decoding="async"></div>'
    )
