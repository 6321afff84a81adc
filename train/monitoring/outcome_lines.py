"""The outcomes of sets: lines of train.predict, or rows of a table, with the label that was found.

A line is counted once it is complete. How much of a file was counted is kept with a digest of its
last bytes, so that the reading of a file that grows resumes there, and another file is refused.
"""

import contextlib
import csv
import hashlib
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.foundation import fields, files, json_files, names, shapes, text_files
from train.foundation.errors import UserError

# In bytes: a line with a set of 100,000 classes, what is read at once, and the end of what was
# counted, whose digest is kept.
_LONGEST = 2**24
_PART = 2**20
_END = 4096
# The columns of a table, and what separates the names in a set.
_COLUMNS = ("label", "set", "rule")
_DIVIDER = "|"
# The cells of the column none_of_these, which a table may have.
_ANSWERS = {"true": True, "false": False, "": None}

_MEMBER = shapes.record(
    {}, {"class": shapes.string, "index": fields.integer(0), "probability": shapes.NUMBER_OR_NULL}
)
_LINE = shapes.record(
    {"set": shapes.list_of(_MEMBER), "rule": fields.text()}, {"none_of_these": fields.boolean()}
)


@dataclass(frozen=True)
class Outcome:
    """A set whose label was found.

    Attributes:
        rule: the rule of the set, as train.predict writes it.
        missed: whether the label is outside the set.
        probability: the probability of the label; None if it is outside the set, or not known.
        size: the number of classes in the set.
        name: the path or the name of its example; None without one, and for a set of a group.
        label: the class that was found.
    """

    rule: str
    missed: bool
    probability: float | None
    size: int
    name: str | None = None
    label: str = ""


@dataclass(frozen=True)
class Place:
    """How much of a file was counted: lines, bytes, and the SHA-256 of the last of these."""

    lines: int
    bytes: int
    digest: str


BEGIN = Place(0, 0, hashlib.sha256(b"").hexdigest())


@contextlib.contextmanager
def opened(
    path: Path | None, place: Place, class_names: Sequence[str], rule: str | None
) -> Iterator["OutcomeFile"]:
    """Opens the outcomes of a file, or of standard input.

    Args:
        path: the file; None for standard input.
        place: how much of the file was counted before; all of standard input is new.
        class_names: the names of the classes of the run.
        rule: the rule of the sets; None for the rule of the first line.

    Raises:
        UserError: the file cannot be read, is not the one that was counted before, or is a table
            without the columns.
    """
    if path is None:
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as file:
            yield OutcomeFile(file, None, BEGIN, class_names, rule)
        return
    try:
        file = files.open_regular(path)
    except OSError as error:
        raise UserError(f"--outcomes {path} cannot be read: {error.strerror}") from error
    with file:
        yield OutcomeFile(file, path, place, class_names, rule)


class OutcomeFile:
    """The outcomes of an open file, or of standard input.

    Attributes:
        place: how much of the file was read.
    """

    def __init__(
        self,
        file: io.FileIO,
        path: Path | None,
        place: Place,
        class_names: Sequence[str],
        rule: str | None,
    ) -> None:
        self._file = file
        self._path = path
        self._name = "standard input" if path is None else str(path)
        self._classes = {names.same_form(name): index for index, name in enumerate(class_names)}
        self._num_classes = len(class_names)
        self._rule = rule
        self._columns: list[str] | None = None
        self._end = b""
        self.place = place
        if path is None:
            return
        if path.suffix.lower() == ".csv":
            # Longer than the cells that Python's reader takes by itself.
            csv.field_size_limit(_LONGEST)
            self._columns = self._head()
        file.seek(max(place.bytes - _END, 0))
        self._end = file.read(min(place.bytes, _END))
        if hashlib.sha256(self._end).hexdigest() != place.digest:
            raise UserError(
                f"--outcomes {path} is not the file whose first {place.bytes:,} bytes were "
                "counted: give that file, which may have grown, or only new lines on standard "
                "input"
            )

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
            yield from self._outcomes([line + b"\n" for line in lines])
        # The last line may lack its end. A line that is only partly written is not JSON. In a file
        # it may be completed; standard input has ended, and it is a mistake there.
        if self._path is None or (self._columns is None and _is_json(rest)):
            yield from self._outcomes([rest])
        else:
            # It is read again when it is complete.
            self._file.seek(self.place.bytes)

    def _outcomes(self, lines: Sequence[bytes]) -> Iterator[list[Outcome]]:
        found, mistake, read = [], None, 0
        for line in lines:
            try:
                outcome = self._outcome(line)
            except ValueError as error:
                number = self.place.lines + read + 1
                mistake = UserError(f"{self._name}, line {number:,}: {error}")
                break
            read += 1
            if outcome is not None:
                found.append(outcome)
        counted = b"".join(lines[:read])
        self._end = (self._end + counted)[-_END:]
        self.place = Place(
            # The end of the last line may come later.
            self.place.lines + counted.count(b"\n"),
            self.place.bytes + len(counted),
            hashlib.sha256(self._end).hexdigest(),
        )
        yield found
        if mistake is not None:
            raise mistake

    def _outcome(self, line: bytes) -> Outcome | None:
        """The outcome of a line; None if it has none.

        Raises:
            ValueError: the line is not what it must be.
        """
        if not line.strip():
            return None
        if self._columns is not None:
            return self._of_row(line)
        value = json_files.parse(line, shapes.table_of(shapes.anything))
        if "error" in value and "set" not in value:
            # An image that could not be read.
            return None
        if wrong := _LINE(value):
            raise ValueError(f"it must be {wrong}")
        return self._of_set(value)

    def _of_row(self, line: bytes) -> Outcome | None:
        try:
            cells = next(csv.reader(io.StringIO(text_files.decoded(line))))
        except csv.Error as error:
            raise ValueError(error) from error
        assert self._columns is not None
        if cells == self._columns:
            return None
        if len(cells) != len(self._columns):
            raise ValueError(f"it must have {len(self._columns)} cells; it has {len(cells)}")
        row = dict(zip(self._columns, cells, strict=True))
        members = [{"class": name} for name in row["set"].split(_DIVIDER) if name.strip()]
        says_none = row.get("none_of_these", "")
        # Programs write truth values in either case.
        if says_none.lower() not in _ANSWERS:
            raise ValueError(f"its none_of_these must be true or false; it is {says_none!r}")
        return self._of_set(row | {"set": members, "none_of_these": _ANSWERS[says_none.lower()]})

    def _of_set(self, value: Mapping[str, Any]) -> Outcome:
        if not isinstance(label := value.get("label"), str) or not label:
            raise ValueError("it has no label: the class that was found, as a text")
        self._rule = self._rule or value["rule"]
        if value["rule"] != self._rule:
            raise ValueError(f"its set is of {value['rule']}; the sets before are of {self._rule}")
        probability, says_none = None, value.get("none_of_these")
        name = None if "group" in value else value.get("path", value.get("name"))
        name = name if isinstance(name, str) else None
        if says_none is not None and names.same_form(label) not in self._classes:
            # A new class, which "none of these" is right for.
            return Outcome(value["rule"], not says_none, None, len(value["set"]), name, label)
        found = self._index(label, "label")
        missed = True
        for member in value["set"]:
            index = member.get("index")
            if index is None:
                index = self._index(member.get("class", ""), "set")
            elif index >= self._num_classes:
                raise ValueError(f"its set has class {index}, and the run has {self._num_classes}")
            if index == found:
                missed, probability = False, member.get("probability")
        return Outcome(value["rule"], missed, probability, len(value["set"]), name, label)

    def _index(self, name: str, what: str) -> int:
        index = self._classes.get(names.same_form(name))
        if index is None:
            raise ValueError(
                f"its {what} has {name!r}, which is not a class of the run"
                f"{fields.did_you_mean(name, self._classes)}"
            )
        return index

    def _head(self) -> list[str]:
        """The columns of a table."""
        line = self._file.read(_PART).partition(b"\n")[0]
        try:
            columns = next(csv.reader(io.StringIO(text_files.decoded(line))), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{self._name} is not a table: {error}") from error
        if missing := [column for column in _COLUMNS if column not in columns]:
            raise UserError(
                f"{self._name} must have the columns {', '.join(_COLUMNS)}; it has no {missing[0]}"
            )
        return columns


def _is_json(line: bytes) -> bool:
    try:
        json_files.parse(line, shapes.table_of(shapes.anything))
    except ValueError:
        return False
    return True
