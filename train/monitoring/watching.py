"""Counts outcomes that were added to a file: lines of train.predict with the label that was found.

The state has a digest of what was counted, and is written after each part: a monitor that was
killed goes on there, and another file is refused.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np

from train.data import grouping
from train.foundation import files, kinds, names
from train.foundation.console import show_line
from train.foundation.errors import UserError, errors_told, naming_flags
from train.monitoring.monitor import Monitor, Outcome, promise_of
from train.run import run_folder, runs

# The seconds between two looks at a file that grows.
_PAUSE = 1.0
# The bytes that are counted at once.
_PART = 2**20

BEGIN = (0, hashlib.sha256().hexdigest())
Sets = Mapping[str, Any]


class _Member(msgspec.Struct):
    name: str = msgspec.field(name="class")
    probability: float | None = None


class _Numbers(msgspec.Struct):
    examples: Annotated[int, msgspec.Meta(ge=1)]
    groups: Annotated[float, msgspec.Meta(gt=0)]


class _Line(msgspec.Struct):
    """A line of train.predict with the label that was found."""

    set: list[_Member]
    rule: str
    label: str
    calibrated_on: _Numbers | None = None
    none_of_these: bool | None = None


class _State(msgspec.Struct):
    """What the sets are of, the place in the file of outcomes, and what was counted."""

    of: dict[str, Any]
    sets: dict[str, Any]
    bytes: int
    digest: str
    counted: dict[str, Any]


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
    results = runs.read_finished(workdir).results
    of = {"run": results["parameters_digest"], "coverage": coverage, "delta": delta}

    def started(sets: Sets) -> Monitor:
        return Monitor.start(sets["rule"], promise_of(sets, coverage), delta)

    monitor, sets, place = None, None, BEGIN
    if state.exists():
        kept = files.read(state, _State, "the --state of a monitor")
        if kept.of != of:
            asked = "another run, --delta or --coverage"
            raise UserError(f"--state {state} is of {asked}: give another --state")
        sets, place = kept.sets, (kept.bytes, kept.digest)
        monitor = started(sets).restored(kept.counted)
    with opened(outcomes) as file:
        lines = OutcomeLines(file, run_folder.read_classes(workdir).names, sets, place)
        while True:
            for part in lines.read():
                if lines.sets is None:
                    continue
                monitor = (monitor or started(lines.sets)).add(part)
                number, digest = lines.place
                new = _State(of, dict(lines.sets), number, digest, monitor.to_plain())
                files.write_whole(state, files.to_json(new))
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
    with naming_flags({"config.dataset.group": "--group"}):
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
        value = _parsed(line)
        if "error" in value and "set" not in value:
            return []
        one = msgspec.convert(value, _Line)
        sets: Sets = {name: value[name] for name in ("rule", "calibrated_on") if name in value}
        self.sets = self.sets or sets
        if sets != self.sets:
            this, before = (json.dumps(of, ensure_ascii=False) for of in (sets, self.sets))
            raise ValueError(f"its set is of {this}; the sets before are of {before}")
        probabilities = {self._class(member.name, "set"): member.probability for member in one.set}
        label = names.same_form(one.label)
        # A new class, which "none of these" is right for.
        is_new = one.none_of_these is not None and label not in self._classes
        if not is_new:
            label = self._class(one.label, "label")
        name = None if "group" in value else value.get("path", value.get("name"))
        if self.named is not None and isinstance(name, str):
            self.named.append((name, label))
        missed = not one.none_of_these if is_new else label not in probabilities
        return [Outcome(missed, probabilities.get(label), len(one.set))]

    def _class(self, name: str, what: str) -> str:
        known = self._classes.get(names.same_form(name))
        if known is None:
            near = kinds.did_you_mean(name, self._classes)
            raise ValueError(f"its {what} has {name!r}, which is not a class of the run{near}")
        return known


def _parsed(line: bytes) -> dict[str, Any]:
    return msgspec.json.decode(line, type=dict[str, Any])


def _is_whole(line: bytes) -> bool:
    try:
        _parsed(line)
    except ValueError:
        return False
    return True


def opened(path: Path | None) -> BinaryIO:
    """A file with outcomes; None for standard input."""
    if path is None:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    with errors_told(f"--outcomes {path} cannot be read"):
        return path.open("rb")
