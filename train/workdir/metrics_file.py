"""The metrics of a run as they grow: a JSON object a line, of which a kill may tear the last."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import logging

from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.workdir import run_shapes


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of metrics; it warns of those that are none."""
    return [line for line, _ in _lines(path)]


def drop_lines_after(path: Path, first_step: int) -> None:
    """Removes the lines of later steps than `first_step`, and what is no line."""
    content = _content(path)
    kept = b"".join(raw for line, raw in _lines(path) if line["step"] <= first_step)
    if kept != content:
        files.write_whole(path, kept)


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The complete lines, each as an object and as its bytes."""
    *raws, _torn = _content(path).split(b"\n")
    bad = []
    for number, raw in enumerate(raws, start=1):
        try:
            line: dict[str, Any] = json_files.parse(raw, run_shapes.line_of_metrics)
        except ValueError as error:
            bad.append(f"line {number}: {error}")
        else:
            yield line, raw + b"\n"
    if bad:
        logging.warning(
            "%s: lines that are no metrics of a step, and are left out: %d, the first of them %s",
            path,
            len(bad),
            bad[0],
        )


def _content(path: Path) -> bytes:
    try:
        return json_files.read_bytes(path)
    except ValueError as error:
        raise UserError(f"{path} is not the metrics of a run: {error}") from error
