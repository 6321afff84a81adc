"""What the table of a person's marks has of each example beside its label: the cells of its rows.

Photographs have a row each, with their path; photographs of one observation have its name as their
group. Other examples have one row, with what identifies them.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from train.foundation.names import in_utf8
from train.prediction.class_sets import ClassSet


def of(entry: ClassSet) -> tuple[Sequence[str], str]:
    """The names of the columns, and the cells of the rows as JSON.

    Paths are absolute, because nobody knows which folder the table will be saved in.
    """
    origin = entry.origin
    if entry.photographs:
        paths = [in_utf8(os.path.abspath(one.path)) for one in entry.photographs]  # noqa: PTH100
        columns = {"path": paths}
    elif "group" in origin:
        columns = {name: origin[f"{name}s"] for name in ("row", "name") if f"{name}s" in origin}
    else:
        columns = {name: [value] for name, value in origin.items()}
    if "row" in columns:
        # The name that other tables have for rows without names.
        columns.setdefault("name", [f"row {row}" for row in columns["row"]])
    if "group" in origin:
        # An example that is a group of its own has no name of a group.
        group = in_utf8(origin["group"] or "")
        columns["group"] = [group] * len(next(iter(columns.values())))
    rows = zip(*columns.values(), strict=True)
    return list(columns), to_json([list(map(str, row)) for row in rows])


def other_label(name: str, label: str) -> str | None:
    """What tables call a class, as JSON; None if a page calls it the same."""
    return None if label == name and name.isprintable() else to_json(label)


def to_json(value: Any) -> str:
    """A value as JSON without characters that a page would escape once more."""
    return json.dumps(value).replace("\x7f", r"\u007f")
