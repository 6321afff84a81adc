"""Counts outcomes that were added to a file: lines of train.predict with the label that was found.

The state has a digest of what was counted, and is written after each part: a monitor that was
killed goes on there, and another file is refused.
"""

import hashlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from train.data import grouping
from train.foundation import fields, files, json_files, names, shapes
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.monitoring import promise
from train.monitoring.monitor import Monitor, Outcome
from train.monitoring.promise import Promise
from train.workdir import run_files, runs

# The seconds between two looks at a file that grows.
_PAUSE = 1.0
# In bytes: a line with a set of 100,000 classes, and what is counted at once.
_LONGEST = 2**24
_PART = 2**20

_OBJECT = shapes.table_of(shapes.anything)
_MEMBER = shapes.record({"class": shapes.string}, {"probability": shapes.NUMBER_OR_NULL})
_NUMBERS = shapes.record({"examples": fields.integer(1), "groups": fields.Number(above=0)})
# What the lines of one monitor have in common.
_SETS = shapes.record({"rule": fields.text()}, {"calibrated_on": _NUMBERS})
_LINE = shapes.record(
    {"set": shapes.list_of(_MEMBER), "rule": fields.text(), "label": fields.text()},
    {"none_of_these": fields.boolean(), "calibrated_on": _NUMBERS},
)
# A checksum guards the rest.
_STATE = shapes.record(
    {"promise": shapes.record({}), "sets": _SETS, "bytes": fields.integer(0)}
    | {"digest": shapes.string}
)
_WHAT = "the state of a monitor"
BEGIN = (0, hashlib.sha256().hexdigest())
Sets = Mapping[str, Any]


def watch(
    workdir: Path, outcomes: Path | None, state: Path, *, follow: bool, **flags: Any
) -> Monitor:
    """The monitor after all outcomes that are there; None for those of standard input.

    Raises:
        UserError: the state is of something else, or a line is not an outcome of the run. What was
            counted before that line is kept.
    """
    _, results = runs.read_finished(workdir)

    def promised(sets: Sets) -> Promise:
        return promise.of_sets(sets, results["parameters_digest"], **flags)

    monitor, sets, place = None, None, BEGIN
    if state.exists():
        kept = json_files.read(state, _STATE, _WHAT)
        sets, place = kept["sets"], (kept["bytes"], kept["digest"])
        monitor = _restored(state, kept, promised)
    where = str(outcomes or "-")
    with opened(outcomes) as file:
        lines = OutcomeLines(file, run_files.read_classes(workdir).names, sets, place)
        # For a warning of likely groups in what is there at first; later lines may be few.
        named: list[Outcome] | None = []
        while True:
            for part in lines.read():
                if monitor is None and lines.sets is not None:
                    monitor = Monitor.start(promised(lines.sets))
                if monitor is None:
                    continue
                monitor = monitor.add(part)
                # The reading of standard input cannot be resumed at a place.
                number, digest = place if outcomes is None else lines.place
                counted = {"sets": lines.sets, "bytes": number, "digest": digest}
                files.write_whole(state, json_files.sealed({**monitor.to_plain(), **counted}))
                if follow and part:
                    show_line(monitor.in_words()[1])
                if named is not None:
                    named += [one for one in part if one.name is not None]
            if named:
                _warn_of_likely(where, named)
            named = None
            if not follow or (monitor is not None and monitor.exit_code):
                break
            time.sleep(_PAUSE)
    if monitor is None:
        raise UserError(f"--outcomes {where} has no outcomes yet")
    return monitor


def _restored(state: Path, kept: Mapping[str, Any], promised: Callable[[Sets], Promise]) -> Monitor:
    """The monitor of a state, which is of the promise of the command."""
    monitor = Monitor.start(promised(kept["sets"]))
    now = monitor.to_plain()["promise"]
    if others := [name for name, value in now.items() if value != kept["promise"].get(name)]:
        of = " and ".join(others)
        raise UserError(f"--state {state} is of another {of}: give another --state")
    try:
        return monitor.restored(kept)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{state} is not {_WHAT}: {error}") from error


def _warn_of_likely(where: str, named: Sequence[Outcome]) -> None:
    _, labels = np.unique([one.label for one in named], return_inverse=True)
    with flags_for_fields({"config.dataset.group": "--group"}):
        examples = [one.name or "" for one in named]
        grouping.warn_of_likely(f"--outcomes {where}", examples, labels, "train.predict {flag}")


class OutcomeLines:
    """The outcomes of a file that may grow, or of standard input.

    Their sets are those of the first line: its rule, and what this is calibrated on. The place is
    how many bytes were read, and their SHA-256.
    """

    def __init__(
        self, file: BinaryIO, classes: Sequence[str], sets: Sets | None, place: tuple[int, str]
    ) -> None:
        """Passes over what was counted before; all of standard input is new."""
        self.sets = sets
        self.place = BEGIN
        # Standard input has a number instead.
        self._file, self._is_file = file, not isinstance(file.name, int)
        self._name = str(file.name) if self._is_file else "standard input"
        self._classes = {names.same_form(name): name for name in classes}
        self._digest, self._lines = hashlib.sha256(), 0
        if not self._is_file:
            return
        while content := self._file.read(min(place[0] - self.place[0], _PART)):
            self._pass(content)
        if self.place != place:
            raise UserError(
                f"--outcomes {self._name} is not the file whose first {place[0]:,} bytes were "
                "counted: give that file, which may have grown, or only new lines on standard input"
            )

    def _pass(self, content: bytes) -> None:
        self._digest.update(content)
        self._lines += content.count(b"\n")
        self.place = self.place[0] + len(content), self._digest.hexdigest()

    def read(self) -> Iterator[list[Outcome]]:
        """The outcomes that are there now, in parts; `place` is then the end of that part.

        Raises:
            UserError: a line is not a set with a label of the run. The lines before it were given.
        """
        found: list[Outcome] = []
        begun = self.place[0]
        while line := self._file.readline(_LONGEST):
            try:
                if self._is_torn(line):
                    self._file.seek(self.place[0])
                    break
                found += self._outcome(line) if line.strip() else []
            except ValueError as error:
                yield found
                raise UserError(f"{self._name}, line {self._lines + 1:,}: {error}") from error
            self._pass(line)
            if self.place[0] - begun > _PART:
                yield found
                found, begun = [], self.place[0]
        yield found

    def _is_torn(self, line: bytes) -> bool:
        """Whether it is the last line of a file, and lacks its end, which may come yet."""
        if line.endswith(b"\n") or not self._is_file:
            return False
        if len(line) == _LONGEST:
            raise ValueError(f"it has more than {_LONGEST:,} bytes")
        try:
            json_files.parse(line, _OBJECT)
        except ValueError:
            return True
        return False

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
            one, before = map(_in_words, (sets, self.sets))
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
        missed = not value["none_of_these"] if is_new else label not in probabilities
        name = None if "group" in value else value.get("path", value.get("name"))
        size, name = len(value["set"]), name if isinstance(name, str) else None
        return [Outcome(missed, probabilities.get(label), size, name, label)]

    def _class(self, name: str, what: str) -> str:
        known = self._classes.get(names.same_form(name))
        if known is None:
            near = fields.did_you_mean(name, self._classes)
            raise ValueError(f"its {what} has {name!r}, which is not a class of the run{near}")
        return known


def _in_words(sets: Sets) -> str:
    numbers = sets.get("calibrated_on")
    return sets["rule"] + (f", calibrated on {numbers['examples']:,} examples" if numbers else "")


def opened(path: Path | None) -> BinaryIO:
    """A file with outcomes; None for standard input."""
    if path is None:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return io.BufferedReader(files.open_regular(path))
    except OSError as error:
        raise UserError(f"--outcomes {path} cannot be read: {error.strerror}") from error
