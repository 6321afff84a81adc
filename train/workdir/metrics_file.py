"""The growing metrics of a run: one JSON object per line; a kill may tear the last line."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.workdir import run_shapes


class MetricsFile:
    """The file of a running run. At first it has the lines up to a step, and nothing else.

    Args:
        path: the file, which is made if it does not exist.
        first_step: the last step whose lines are kept.
        digest: the digest of these lines; None if it is not known. If the file is missing, a
            warning is printed and the run continues.

    Raises:
        UserError: the lines have another digest, or the path is a link or a pipe.
    """

    def __init__(self, path: Path, first_step: int, digest: str | None) -> None:
        self.path = path
        is_there = path.exists()
        files.open_to_add(path).close()
        content = _content(path)
        lines, bad = _lines(content)
        kept = b"".join(raw for line, raw in lines if line["step"] <= first_step)
        self._digest = hashlib.sha256(kept)
        if digest not in (None, self._digest.hexdigest()):
            if is_there:
                raise UserError(
                    f"{path} is not what the run wrote up to step {first_step}: it was changed or "
                    "damaged since; delete it to continue without the logged metrics"
                )
            logging.warning("%s is missing: the metrics of %d steps are lost", path, first_step)
        elif digest is None:
            _warn(path, bad)
        if kept != content:
            files.write_whole(path, kept)

    def append(self, line: Mapping[str, Any]) -> None:
        """Adds a line."""
        content = files.to_json(line)
        files.append(self.path, content)
        self._digest.update(content)

    def digest(self) -> str:
        """The SHA-256 of all lines, which are on the disk when it is returned."""
        with files.name_in_errors(self.path), self.path.open("rb") as file:
            os.fsync(file.fileno())
        return self._digest.hexdigest()


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of metrics; it warns of lines that are not metrics."""
    lines, bad = _lines(_content(path))
    _warn(path, bad)
    return [line for line, _ in lines]


def _lines(content: bytes) -> tuple[list[tuple[dict[str, Any], bytes]], list[str]]:
    """The complete lines, each as an object and as its bytes; and what is wrong with others."""
    *raws, _torn = content.split(b"\n")
    lines, bad = [], []
    for number, raw in enumerate(raws, start=1):
        try:
            line: dict[str, Any] = json_files.parse(raw, run_shapes.line_of_metrics)
        except ValueError as error:
            bad.append(f"line {number}: {error}")
        else:
            lines.append((line, raw + b"\n"))
    return lines, bad


def _warn(path: Path, bad: Sequence[str]) -> None:
    if bad:
        logging.warning(
            "%s: lines that are not metrics of a step, and are left out: %d, the first of them %s",
            path,
            len(bad),
            bad[0],
        )


def _content(path: Path) -> bytes:
    try:
        return json_files.read_bytes(path)
    except ValueError as error:
        raise UserError(f"{path} is not the metrics of a run: {error}") from error
