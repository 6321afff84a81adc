"""Which flags a command needs, and which go together: rows, which one function checks.

A row names flags, or NAME=VALUE for a flag with that value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import flags

from train.foundation.errors import UserError
from train.foundation.fields import Field

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Needed:
    """One of some flags is needed.

    Attributes:
        names: the flags.
        what: what they give, for messages.
    """

    names: tuple[str, ...]
    what: str

    def check(self, given: Given) -> None:
        """Raises `UserError` if none is given."""
        if not any(_is_given(name, given) for name in self.names):
            one_of = "" if len(self.names) == 1 else "one of "
            raise UserError(f"{one_of}{_listed(self.names, 'and')} is needed: {self.what}")


@dataclass(frozen=True)
class Exclusive:
    """Only one of some flags can be given."""

    names: tuple[str, ...]

    def check(self, given: Given) -> None:
        """Raises `UserError` if several are."""
        found = [name for name in self.names if _is_given(name, given)]
        if len(found) > 1:
            got = "both" if len(self.names) == 2 else _listed(found, "and")
            raise UserError(f"only one of {_listed(self.names, 'and')} can be given; got {got}")


@dataclass(frozen=True)
class Together:
    """All of some flags are given, or none."""

    names: tuple[str, ...]

    def check(self, given: Given) -> None:
        """Raises `UserError` if only some are."""
        missing = [name for name in self.names if not _is_given(name, given)]
        if missing and len(missing) < len(self.names):
            raise UserError(
                f"{_listed(self.names, 'and')} must be given together; --{missing[0]} is missing"
            )


@dataclass(frozen=True)
class Flag:
    """What holds if a flag is given.

    Attributes:
        name: the flag.
        may_be: its values.
        needs: flags, one of which is given, too.
        excludes: flags that are not given.
        because: why it needs or excludes them.
    """

    name: str
    may_be: Field | None = None
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    because: str = ""

    def check(self, given: Given) -> None:
        """Raises `UserError` if it does not hold."""
        if not _is_given(self.name, given):
            return
        why = f": {self.because}" if self.because else ""
        if self.needs and not any(_is_given(name, given) for name in self.needs):
            other, has_value, _ = self.needs[0].partition("=")
            got = f"; got --{other}={given[other]}" if has_value and other in given else ""
            raise UserError(f"--{self.name} needs {_listed(self.needs, 'or')}{why}{got}")
        for other in self.excludes:
            if _is_given(other, given):
                raise UserError(f"--{self.name} cannot be given with --{other}{why}")
        if self.may_be is not None and (wrong := self.may_be(given[self.name])):
            raise UserError(field=f"--{self.name}", must_be=wrong, got=given[self.name])


Row = Needed | Exclusive | Together | Flag


def declare(*rows: Row) -> tuple[Row, ...]:
    """The rows of a command whose flags are defined; --help has the flags that a flag needs."""
    for row in rows:
        if isinstance(row, Flag) and row.needs and row.name in flags.FLAGS:
            flag = flags.FLAGS[row.name]
            flag.help = f"With {_listed(row.needs, 'or')}: {flag.help}"
    return rows


def check(rows: Iterable[Row], given: Given | None = None) -> None:
    """Raises `UserError` for the first row that does not hold.

    Args:
        rows: see `declare`.
        given: the values of the flags that are given, by their names; None for the command line.
    """
    given = _given() if given is None else given
    for row in rows:
        row.check(given)


def _given() -> Given:
    """The values of the flags that are given, or have a default other than False."""
    every = ((name, flags.FLAGS[name]) for name in flags.FLAGS)
    return {
        name: flag.value
        for name, flag in every
        if flag.value not in (None, []) and not (flag.value is False is flag.default)
    }


def _is_given(name: str, given: Given) -> bool:
    name, has_value, value = name.partition("=")
    return name in given and (not has_value or str(given[name]) == value)


def _listed(names: Sequence[str], word: str) -> str:
    *first, last = (f"--{name}" for name in names)
    return f"{', '.join(first)} {word} {last}" if first else last
