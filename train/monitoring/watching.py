"""Counts outcomes that were added to a file: lines of train.predict with the label that was found.

The state has a digest of what was counted, and is written after each part: a monitor that was
killed goes on there, and another file is refused.
"""

import hashlib
import io
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from train.data import grouping
from train.foundation import fields, files, json_files, names, shapes
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.monitoring import promise
from train.monitoring.monitor import Monitor, Outcome
from train.workdir import run_files, runs

# The seconds between two looks at a file that grows.
_PAUSE = 1.0
# In bytes: a line with a set of 100,000 classes, and what is read at once.
_LONGEST = 2**24
_PART = 2**20

_OBJECT = shapes.table_of(shapes.anything)
_MEMBER = shapes.record({"class": shapes.string}, {"probability": shapes.NUMBER_OR_NULL})
_LINE = shapes.record(
    {"set": shapes.list_of(_MEMBER), "rule": fields.text(), "label": fields.text()},
    {"none_of_these": fields.boolean()},
)
_COUNT, _WHEN = fields.integer(0, 2**53), fields.optional(fields.integer(1))
_STATE = shapes.record(
    {"promise": shapes.record({"rule": fields.text()}), "bytes": _COUNT, "digest": shapes.string}
    | {"total_size": _COUNT, "broken_at": _WHEN, "changed_at": _WHEN}
    | dict.fromkeys(("tests", "points"), shapes.list_of(shapes.anything))
)
_WHAT = "the state of a monitor"
BEGIN = (0, hashlib.sha256().hexdigest())


def watch(
    workdir: Path, outcomes: Path | None, state: Path, *, follow: bool, **flags: Any
) -> Monitor:
    """The monitor after all outcomes that are there; None for those of standard input.

    Raises:
        UserError: the state is of something else, or a line is not an outcome of the run. What was
            counted before that line is kept.
    """
    _, results = runs.read_finished(workdir)
    of_rule: Any = promise.of_rule
    promised = partial(of_rule, results, run_files.read_calibration(workdir), **flags)
    monitor, rule, place = None, None, BEGIN
    if state.exists():
        kept = json_files.read(state, _STATE, _WHAT)
        rule, place = kept["promise"]["rule"], (kept["bytes"], kept["digest"])
        monitor = Monitor.start(promised(rule))
        now = monitor.to_plain()["promise"]
        others = [name for name, value in now.items() if value != kept["promise"].get(name)]
        if others:
            of = " and ".join(others)
            raise UserError(f"--state {state} is of another {of}: give another --state")
        try:
            monitor = monitor.restored(kept)
        except (TypeError, ValueError) as error:
            raise UserError(f"{state} is not {_WHAT}: {error}") from error
    classes = run_files.read_classes(workdir).names
    with opened(outcomes) as file:
        lines = OutcomeLines(file, classes, rule, place)
        # For a warning of likely groups in what is there at first; later lines may be few.
        named: list[Outcome] | None = []
        while True:
            for part in lines.read():
                if monitor is None and not part:
                    continue
                monitor = (monitor or Monitor.start(promised(lines.rule))).add(part)
                # The reading of standard input cannot be resumed at a place.
                number, digest = place if outcomes is None else lines.place
                content = {**monitor.to_plain(), "bytes": number, "digest": digest}
                files.write_whole(state, json_files.sealed(content))
                if follow and part:
                    show_line(monitor.in_words()[1])
                if named is not None:
                    named += [one for one in part if one.name is not None]
            if named:
                _, labels = np.unique([one.label for one in named], return_inverse=True)
                where, examples = f"--outcomes {outcomes or '-'}", [one.name or "" for one in named]
                with flags_for_fields({"config.dataset.group": "--group"}):
                    grouping.warn_of_likely(where, examples, labels, "train.predict {flag}")
            named = None
            if not follow or (monitor is not None and monitor.exit_code):
                break
            time.sleep(_PAUSE)
    if monitor is None:
        raise UserError(f"--outcomes {outcomes or '-'} has no outcomes yet")
    return monitor


class OutcomeLines:
    """The outcomes of a file that may grow, or of standard input.

    Their rule is that of the first line. The place is how many bytes were read, and their SHA-256.
    """

    def __init__(
        self, file: io.FileIO, classes: Sequence[str], rule: str | None, place: tuple[int, str]
    ) -> None:
        """Passes over what was counted before; all of standard input is new."""
        self.rule = rule
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
        rest = b""
        while content := self._file.read(_PART):
            *lines, rest = (rest + content).split(b"\n")
            if len(rest) > _LONGEST:
                raise UserError(f"{self._name} has a line of more than {_LONGEST:,} bytes")
            yield from self._counted([line + b"\n" for line in lines])
        try:
            # The last line may lack its end. Without all of its JSON, it may be completed.
            if self._is_file:
                json_files.parse(rest, _OBJECT)
        except ValueError:
            self._file.seek(self.place[0])
        else:
            yield from self._counted([rest])

    def _counted(self, lines: Sequence[bytes]) -> Iterator[list[Outcome]]:
        found: list[Outcome] = []
        for line in lines:
            try:
                found += self._outcome(line) if line.strip() else []
            except ValueError as error:
                yield found
                raise UserError(f"{self._name}, line {self._lines + 1:,}: {error}") from error
            self._pass(line)
        yield found

    def _outcome(self, line: bytes) -> list[Outcome]:
        """The outcome of a line; none of an image that could not be read."""
        value = json_files.parse(line, _OBJECT)
        if "error" in value and "set" not in value:
            return []
        if wrong := _LINE(value):
            raise ValueError(f"it must be {wrong}")
        self.rule = self.rule or value["rule"]
        if value["rule"] != self.rule:
            raise ValueError(f"its set is of {value['rule']}; the sets before are of {self.rule}")
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


def opened(path: Path | None) -> io.FileIO:
    """A file with outcomes; None for standard input."""
    if path is None:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    try:
        return files.open_regular(path)
    except OSError as error:
        raise UserError(f"--outcomes {path} cannot be read: {error.strerror}") from error
