"""The page of the examples that are most wrong, of the classes and of their confusions.

What it shows is bounded: all examples, classes and confusions are in tables beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from train.data import reading
from train.data.examples import Examples
from train.prediction import pages, thumbnails
from train.prediction.thumbnails import Thumbnail
from train.reports.examples import ExampleTable

# Thumbnails of photographs have 15 to 25 kB each.
_MOST_BY_LOSS, _MOST = 200, 400
_MOST_CLASSES, _MOST_CONFUSIONS = 500, 100
_THUMBNAILS_AHEAD = 32


def write(
    path: Path,
    table: ExampleTable,
    examples: Examples | None,
    *,
    title: str,
    sets: str,
    example: str,
    tables: Mapping[str, Path],
    unreadable: Sequence[str] = (),
) -> None:
    """Writes the page.

    Args:
        path: the file.
        table: the examples that are evaluated, with places among `examples`.
        examples: what thumbnails and credits are of; None for scores from a file.
        title: what was evaluated.
        sets: which classes are in a set, in words.
        example: what an example is called.
        tables: the CSV files beside the page, by what they have.
        unreadable: why each file that cannot be read is not there.
    """
    chosen = table.worst(_MOST_BY_LOSS, _MOST)
    shown, are_probabilities = table.examples.labels[chosen], table.examples.are_probabilities()
    pages.write(
        path,
        "error_page.html",
        ("cards.js", "error_page.js"),
        title=f"Errors of {title}",
        rule=sets,
        table=_numbers(table) | {f"All {what}": file.name for what, file in tables.items()},
        unreadable=unreadable,
        example=example,
        most_by_loss=_MOST_BY_LOSS,
        score=pages.percent if are_probabilities else "{:.4g}".format,
        examples=table,
        cards=_cards(table, chosen, examples),
        labels=_names(table, shown),
        predictions=_names(table, table.predicted[chosen]),
        classes=table.classes[:_MOST_CLASSES],
        confusions=table.confusions[:_MOST_CONFUSIONS],
    )


def _numbers(table: ExampleTable) -> dict[str, str]:
    """The numbers at the top of the page."""
    hits, sizes = table.sets.of_labels, table.sets.sizes
    return {
        "Examples": f"{len(hits):,}",
        "Label outside its set": f"{int((~hits).sum()):,}",
        "Coverage": pages.percent(float(hits.mean())),
        "Mean size of sets": f"{float(sizes.mean()):.3g}",
        "Another class is likelier": f"{int((table.examples.ranks > 0).sum()):,}",
    }


def _names(table: ExampleTable, classes: np.ndarray) -> list[tuple[str, int, int]]:
    """The classes that examples of the page have, by their names, with their numbers."""
    found = zip(*np.unique(classes, return_counts=True), strict=True)
    return sorted((table.class_names[one], int(one), int(count)) for one, count in found)


def _cards(
    table: ExampleTable, chosen: np.ndarray, examples: Examples | None
) -> Iterator[tuple[int, Thumbnail | None, str]]:
    """The examples of the page: their numbers in the table, thumbnails and credits."""
    thumbnail = None if examples is None else thumbnails.of_examples(examples)
    if examples is None or thumbnail is None:
        yield from ((index, None, "") for index in chosen.tolist())
        return
    indices = table.examples.indices
    places = (chosen if indices is None else indices[chosen]).tolist()
    pictures = reading.in_threads(thumbnail, places, ahead=_THUMBNAILS_AHEAD)
    yield from zip(chosen.tolist(), pictures, map(examples.credit, places), strict=True)
