"""An HTML page of the examples that are most wrong, of the classes and of their confusions.

It is one file that needs no network. Its templates are next to this file; it has the same colours
and cards as the page of sets. What it shows is bounded: all examples, classes and confusions are in
the CSV files beside it (see `train.evaluation.example_table`).
"""

import hashlib
import itertools
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from train.evaluation import score_files
from train.evaluation.example_table import ExampleTable
from train.foundation import files, reading
from train.prediction import html_page
from train.prediction.html_page import words
from train.prediction.thumbnails import Thumbnail

_HERE = Path(__file__).parent
_OF_SETS = Path(html_page.__file__).parent / "style.css"
_STYLE = "\n".join(file.read_text(encoding="utf-8") for file in (_OF_SETS, _HERE / "errors.css"))
_SCRIPT = (_HERE / "errors.js").read_text(encoding="utf-8") + html_page.DROPS
# Thumbnails of photographs have 15 to 25 kB each.
_MOST_BY_LOSS, _MOST = 200, 400
_MOST_CLASSES, _MOST_CONFUSIONS = 500, 100
# The most confusions in a row of the table of classes.
_MOST_CONFUSED = 3
_THUMBNAILS_AHEAD = 32

_templates = words.make_templates(_HERE)


@dataclass(frozen=True)
class ErrorPageFacts:
    """What the page shows beside the examples.

    Attributes:
        title: what was evaluated.
        sets: which classes are in a set, in words.
        example: what an example is called: "image", "row", "name" or "example".
        tables: the CSV files beside the page.
        unreadable: why each file that cannot be read is not there.
        credit: the author and the licence of the image at a place of its split; None if no image
            has them.
    """

    title: str
    sets: str
    example: str
    tables: Mapping[str, Path]
    unreadable: tuple[str, ...] = ()
    credit: Callable[[int], str] | None = None


def write(
    path: Path,
    table: ExampleTable,
    facts: ErrorPageFacts,
    thumbnail: Callable[[int], Thumbnail | None] | None,
) -> None:
    """Writes the page.

    Args:
        path: the file.
        table: the examples.
        facts: what the page shows beside them.
        thumbnail: makes the thumbnail of the example at a place of its split; None if examples do
            not have thumbnails.
    """
    chosen = table.worst(_MOST_BY_LOSS, _MOST)
    shown = {
        "facts": facts,
        "table": _numbers(table),
        "cards": _cards(table, chosen, thumbnail, facts.credit),
        "number": len(chosen),
        "labels": _labels(table, chosen),
        "classes": table.classes[:_MOST_CLASSES],
        "num_classes": len(table.classes),
        "confusions": table.confusions[:_MOST_CONFUSIONS],
        "num_confusions": len(table.confusions),
        "names": table.class_names,
        "are_probabilities": score_files.are_probabilities(table.examples.scores),
        "ks": table.ks,
        "most_confused": _MOST_CONFUSED,
        "most_by_loss": _MOST_BY_LOSS,
        "style": Markup(_STYLE),
        "script": Markup(_SCRIPT),
        "script_digest": b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode(),
    }
    with files.replacing(path) as file:
        _templates.get_template("errors.html").stream(shown).dump(file, encoding="utf-8")


def _numbers(table: ExampleTable) -> dict[str, str]:
    """The numbers at the top of the page."""
    hits, sizes = table.sets.of_labels, table.sets.sizes
    number = len(hits)
    return {
        "Examples": f"{number:,}",
        "Label outside its set": f"{number - int(hits.sum()):,}",
        "Coverage": words.percent(float(hits.mean())),
        "Mean size of sets": f"{float(sizes.mean()):.3g}",
        "Another class is likelier": f"{int((table.examples.ranks > 0).sum()):,}",
    }


def _labels(table: ExampleTable, chosen: np.ndarray) -> list[tuple[int, str, int]]:
    """The classes of the chosen examples, by their names: number, name and examples shown."""
    labels, counts = np.unique(table.examples.labels[chosen], return_counts=True)
    found = zip(labels.tolist(), counts.tolist(), strict=True)
    return sorted(
        ((label, table.class_names[label], count) for label, count in found),
        key=lambda one: one[1],
    )


def _cards(
    table: ExampleTable,
    chosen: np.ndarray,
    thumbnail: Callable[[int], Thumbnail | None] | None,
    credit: Callable[[int], str] | None,
) -> Any:
    """The examples of the page, as the template shows them, each when it is wanted."""
    indices = table.examples.indices
    thumbnails: Any = (None for _ in chosen)
    credited: Iterable[str] = itertools.repeat("", len(chosen))
    if thumbnail is not None and indices is not None:
        places = indices[chosen].tolist()
        thumbnails = reading.in_threads(thumbnail, places, ahead=_THUMBNAILS_AHEAD)
        credited = credited if credit is None else map(credit, places)
    for index, picture, by in zip(chosen.tolist(), thumbnails, credited, strict=True):
        found = table.examples
        yield {
            "name": table.names[index],
            "label": int(found.labels[index]),
            "predicted": int(table.predicted[index]),
            "rank": int(found.ranks[index]),
            "is_known": bool(found.labels[index] < found.scores.shape[-1]),
            "probability": float(table.of_label[index]),
            "highest": float(table.highest[index]),
            "loss": float(found.loss[index]),
            "is_outside": not table.sets.of_labels[index],
            "size": int(table.sets.sizes[index]),
            "thumbnail": picture,
            "credit": by,
        }
