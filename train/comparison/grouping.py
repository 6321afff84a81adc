"""Runs in groups: runs of one group differ only in the seed."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.foundation.errors import UserError
from train.foundation.kinds import did_you_mean
from train.run import run_folder
from train.run.runs import StoredRun, identity_without_seed
from train.series.run_fields import short_name, used_fields

_LOSS = "loss.name"
# The columns that come first; the others follow in the order of the configuration.
_FIRST = ("model.name", _LOSS)
# They choose the data; the other fields of the data set choose how these are used.
_DATA_SET = ("dataset.name", "dataset.path", "dataset.part")
_ABSENT = "-"


@dataclass(frozen=True)
class Group:
    """Runs of one configuration with different seeds.

    Attributes:
        fields: the fields that the results depend on, by their dotted names, without the seed.
        runs: the runs by seed.
    """

    fields: Mapping[str, Any]
    runs: Mapping[int, StoredRun]

    def text(self, field: str) -> str:
        """The value of a field as it is shown; a dash if the configuration lacks the field."""
        return _value_text(self.fields[field]) if field in self.fields else _ABSENT


@dataclass(frozen=True)
class RunGroups:
    """The groups of one data set.

    Attributes:
        data_set: its name.
        columns: the heads of the fields in which the groups differ, by the names of the fields.
        groups: the groups, sorted by these fields.
    """

    data_set: str
    columns: Mapping[str, str]
    groups: tuple[Group, ...]

    def label(self, group: Group) -> str:
        """The name of a group: `loss=focal, gamma=2.0`."""
        return ", ".join(f"{head}={group.text(field)}" for field, head in self.columns.items())

    def matching(self, wanted: Mapping[str, str]) -> list[Group]:
        """The groups with these values, as texts, by the heads of columns or the names of fields.

        Raises:
            UserError: no group has such a field.
        """
        by_head = {head: field for field, head in self.columns.items()}
        known = {*by_head, *(field for group in self.groups for field in group.fields)}
        for name in wanted:
            if name not in known:
                raise UserError(f"no run has a field {name!r}{did_you_mean(name, known)}")
        return [
            group
            for group in self.groups
            if all(group.text(by_head.get(name, name)) == text for name, text in wanted.items())
        ]


def group_runs(
    runs: Iterable[StoredRun],
) -> tuple[list[RunGroups], list[tuple[StoredRun, StoredRun]]]:
    """The groups of each data set.

    Returns:
        The groups, and the runs that repeat another run with its seed. Each is paired with that
        run, and only that run is in a group.
    """
    by_data_set: dict[tuple[str, str | None], dict[str, dict[int, StoredRun]]] = {}
    repeated: list[tuple[StoredRun, StoredRun]] = []
    for run in runs:
        # Other files under the same name are another data set.
        data_set = _data_set_name(run), run_folder.read_digest(run.workdir)
        key = json.dumps(_fields(run), sort_keys=True)
        by_seed = by_data_set.setdefault(data_set, {}).setdefault(key, {})
        first = by_seed.setdefault(run.fields["seed"], run)
        if first is not run:
            repeated.append((run, first))
    of_a_name = Counter(name for name, _ in by_data_set)
    found = []
    for (name, digest), of_groups in sorted(by_data_set.items(), key=lambda item: str(item[0])):
        title = name if of_a_name[name] == 1 else f"{name} (files {str(digest)[:8]})"
        groups = [
            Group(_fields(next(iter(by_seed.values()))), dict(sorted(by_seed.items())))
            for by_seed in of_groups.values()
        ]
        columns = _find_differing(groups)
        groups.sort(key=lambda group: [_order(group, field) for field in columns])
        found.append(RunGroups(title, _heads(columns), tuple(groups)))
    return found, repeated


def _fields(run: StoredRun) -> dict[str, Any]:
    return identity_without_seed(used_fields(run))


def _data_set_name(run: StoredRun) -> str:
    parts = (run.fields.get(field) for field in _DATA_SET)
    return " ".join(str(part) for part in parts if part is not None)


def _find_differing(groups: Sequence[Group]) -> list[str]:
    """The fields in which the groups differ, the most important first.

    A field that some groups lack is left out if the groups that have it agree: it is a parameter of
    a loss, and the name of the loss is enough. It is kept if nothing else distinguishes two groups.
    """
    fields = dict.fromkeys(field for group in groups for field in group.fields)
    ordered = [*(field for field in _FIRST if field in fields), *fields]
    differing = [
        field
        for field in dict.fromkeys(ordered)
        if len({group.text(field) for group in groups if field in group.fields}) > 1
    ]
    told_apart = {tuple(group.text(field) for field in differing) for group in groups}
    if len(told_apart) < len(groups):
        return [
            field
            for field in dict.fromkeys(ordered)
            if len({group.text(field) for group in groups}) > 1
        ]
    # A single group is named by its loss.
    return differing or [_LOSS]


def _heads(fields: Sequence[str]) -> dict[str, str]:
    """The heads of columns: the short names of the fields, unless two would be the same."""
    counts = Counter(map(short_name, fields))
    return {
        field: short_name(field) if counts[short_name(field)] == 1 else field for field in fields
    }


def _order(group: Group, field: str) -> tuple[int, float, str]:
    """Sorts absent values first, then numbers by their size, then texts."""
    value = group.fields.get(field)
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    if isinstance(value, list) and all(isinstance(one, int | float) for one in value):
        return (2, 0.0, json.dumps([f"{one:030.10f}" for one in value]))
    return (3, 0.0, str(value))


def _value_text(value: Any) -> str:
    """A value as it is shown: a tuple as the command line takes it."""
    if isinstance(value, list):
        inside = ", ".join(map(_value_text, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)
