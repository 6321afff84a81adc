"""Counts outcomes that were added to a file: lines of train.predict with the label that was found.

The state has a digest of what was counted, and is written after each part: a monitor that was
killed goes on there, and another file is refused.
"""

import hashlib
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from train.data import grouping
from train.foundation import fields, files, json_files, names, shapes
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.monitoring.monitor import COUNTED, Monitor, Outcome, promise_of
from train.workdir import run_files, runs

# The seconds between two looks at a file that grows.
_PAUSE = 1.0
# The bytes that are counted at once.
_PART = 2**20

_OBJECT = shapes.table_of(shapes.anything)
_MEMBER = shapes.record({"class": shapes.string}, {"probability": shapes.NUMBER_OR_NULL})
_NUMBERS = shapes.record({"examples": fields.integer(1), "groups": fields.Number(above=0)})
_LINE = shapes.record(
    {"set": shapes.list_of(_MEMBER), "rule": fields.text(), "label": fields.text()},
    {"none_of_these": fields.boolean(), "calibrated_on": _NUMBERS},
)
# A checksum guards the rest.
_STATE = shapes.record(
    {"of": _OBJECT, "sets": _OBJECT, "bytes": fields.integer(0), "digest": shapes.string}
    | dict.fromkeys(COUNTED, shapes.anything)
)
BEGIN = (0, hashlib.sha256().hexdigest())
Sets = Mapping[str, Any]


def watch(
    workdir: Path,
    outcomes: Path | None,
    state: Path,
    *,
    follow: bool,
    coverage: float | None,
    delta: float,
) -> Monitor:
    """The monitor after all outcomes that are there; None for those of standard input.

    Raises:
        UserError: the state is of something else, or a line is not an outcome of the run. What was
            counted before that line is kept.
    """
    _, results = runs.read_finished(workdir)
    of = {"run": results["parameters_digest"], "coverage": coverage, "delta": delta}

    def started(sets: Sets) -> Monitor:
        return Monitor.start(sets["rule"], promise_of(sets, coverage), delta)

    monitor, sets, place = None, None, BEGIN
    if state.exists():
        kept = json_files.read(state, _STATE, "the --state of a monitor")
        if kept["of"] != of:
            asked = "another run, --delta or --coverage"
            raise UserError(f"--state {state} is of {asked}: give another --state")
        sets, place = kept["sets"], (kept["bytes"], kept["digest"])
        monitor = started(sets).restored(kept)
    with opened(outcomes) as file:
        lines = OutcomeLines(file, run_files.read_classes(workdir).names, sets, place)
        while True:
            for part in lines.read():
                if lines.sets is None:
                    continue
                monitor = (monitor or started(lines.sets)).add(part)
                number, digest = lines.place
                counted = {"of": of, "sets": lines.sets, "bytes": number, "digest": digest}
                files.write_whole(state, json_files.sealed(counted | monitor.to_plain()))
                if follow and part:
                    show_line(monitor.in_words()[1])
            if lines.named:
                _warn_of_likely(f"--outcomes {outcomes or '-'}", lines.named)
            # Later lines may be few.
            lines.named = None
            if not follow or (monitor is not None and monitor.exit_code):
                break
            time.sleep(_PAUSE)
    if monitor is None:
        raise UserError(f"--outcomes {outcomes or '-'} has no outcomes yet")
    return monitor


def _warn_of_likely(where: str, named: Sequence[tuple[str, str]]) -> None:
    examples, labels = zip(*named, strict=True)
    _, numbers = np.unique(labels, return_inverse=True)
    with flags_for_fields({"config.dataset.group": "--group"}):
        grouping.warn_of_likely(where, examples, numbers, "train.predict {flag}")


class OutcomeLines:
    """The outcomes of a file that may grow, or of standard input.

    Their sets are those of the first line: its rule, and what this is calibrated on. The place is
    how many bytes of the file were read, and their SHA-256.
    """

    def __init__(
        self, file: BinaryIO, classes: Sequence[str], sets: Sets | None, place: tuple[int, str]
    ) -> None:
        """Passes over what was counted before; all of standard input is new."""
        self.sets, self.place = sets, place
        # The names and labels of single examples, which may be of one group.
        self.named: list[tuple[str, str]] | None = []
        # Standard input has a number instead.
        self._file, self._is_file = file, not isinstance(file.name, int)
        self._name = f"--outcomes {file.name if self._is_file else '-'}"
        self._classes = {names.same_form(name): name for name in classes}
        self._digest, self._lines = hashlib.sha256(), 0
        if not self._is_file:
            return
        self.place = BEGIN
        while content := self._file.read(min(place[0] - self.place[0], _PART)):
            self._pass(content)
        if self.place != place:
            raise UserError(
                f"{self._name} is not the file whose first {place[0]:,} bytes were "
                "counted: give that file, which may have grown, or only new lines on standard input"
            )

    def _pass(self, content: bytes) -> None:
        self._lines += content.count(b"\n")
        if self._is_file:
            self._digest.update(content)
            self.place = self.place[0] + len(content), self._digest.hexdigest()

    def read(self) -> Iterator[list[Outcome]]:
        """The outcomes that are there now, in parts; `place` is then the end of that part.

        Raises:
            UserError: a line is not a set with a label of the run. The lines before it were given.
        """
        found: list[Outcome] = []
        size = 0
        while line := self._file.readline():
            # The end of the last line may come yet.
            if self._is_file and not line.endswith(b"\n") and not _is_whole(line):
                self._file.seek(self.place[0])
                break
            try:
                found += self._outcome(line) if line.strip() else []
            except ValueError as error:
                yield found
                raise UserError(f"{self._name}, line {self._lines + 1:,}: {error}") from error
            self._pass(line)
            size += len(line)
            if size > _PART:
                yield found
                found, size = [], 0
        yield found

    def _outcome(self, line: bytes) -> list[Outcome]:
        """The outcome of a line; none of an image that could not be read."""
        value = json_files.parse(line, _OBJECT)
        if "error" in value and "set" not in value:
            return []
        if wrong := _LINE(value):
            raise ValueError(f"it must be {wrong}")
        sets = {name: value[name] for name in ("rule", "calibrated_on") if name in value}
        self.sets = self.sets or sets
        if sets != self.sets:
            one, before = (json.dumps(of, ensure_ascii=False) for of in (sets, self.sets))
            raise ValueError(f"its set is of {one}; the sets before are of {before}")
        probabilities = {
            self._class(member["class"], "set"): member.get("probability")
            for member in value["set"]
        }
        label = names.same_form(value["label"])
        # A new class, which "none of these" is right for.
        is_new = "none_of_these" in value and label not in self._classes
        if not is_new:
            label = self._class(value["label"], "label")
        name = None if "group" in value else value.get("path", value.get("name"))
        if self.named is not None and isinstance(name, str):
            self.named.append((name, label))
        missed = not value["none_of_these"] if is_new else label not in probabilities
        return [Outcome(missed, probabilities.get(label), len(value["set"]))]

    def _class(self, name: str, what: str) -> str:
        known = self._classes.get(names.same_form(name))
        if known is None:
            near = fields.did_you_mean(name, self._classes)
            raise ValueError(f"its {what} has {name!r}, which is not a class of the run{near}")
        return known


def _is_whole(line: bytes) -> bool:
    try:
        json_files.parse(line, _OBJECT)
    except ValueError:
        return False
    return True


def opened(path: Path | None) -> BinaryIO:
    """A file with outcomes; None for standard input."""
    if path is None:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return io.BufferedReader(files.open_regular(path))
    except OSError as error:
        raise UserError(f"--outcomes {path} cannot be read: {error.strerror}") from error
