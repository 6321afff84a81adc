"""When two runs are the same: the fields of a configuration that say so, and a run's name."""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from train.foundation.nested import flatten

# These may differ from machine to machine: no number of the results depends on them.
FIELDS_OF_THE_MACHINE = frozenset(
    {
        "dataset.data_dir",
        "dataset.num_workers",
        "checkpoint.every_steps",
        "checkpoint.every_minutes",
        "parallel",
        "compilation_cache",
    }
)
# Fields that configurations of earlier versions lack, with the value that those runs had.
ADDED_FIELDS: Mapping[str, Any] = {"optimizer.name": "sgd", "compilation_cache": True}


def with_added_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, perhaps of an earlier version, with the fields that were added since."""
    filled = copy.deepcopy(dict(config))
    for name, value in ADDED_FIELDS.items():
        group, field = _group_and_field(filled, name)
        group.setdefault(field, value)
    return filled


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by dotted names that the results of a run depend on."""
    fields = {**ADDED_FIELDS, **dict(flatten(config))}
    return {name: value for name, value in fields.items() if name not in FIELDS_OF_THE_MACHINE}


def identity_without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are equal in all seeds of one experiment."""
    return {name: value for name, value in identity(config).items() if name != "seed"}


def run_name(config: Mapping[str, Any]) -> str:
    """A name that is the same for the same configuration and no other, and says what it is."""
    # Without what earlier versions did not write, so that their runs are found by this name.
    earlier = copy.deepcopy(dict(config))
    for name, value in ADDED_FIELDS.items():
        group, field = _group_and_field(earlier, name)
        if group.get(field) == value:
            del group[field]
    digest = hashlib.sha256(json.dumps(earlier, sort_keys=True).encode()).hexdigest()
    values = dict(flatten(config))
    return f"{values.get('dataset.name')}-{values.get('loss.name')}-{digest[:8]}"


def _group_and_field(config: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The group of a field and its name there; an empty group where the configuration has none."""
    *groups, field = name.split(".")
    group: Any = config
    for part in groups:
        group = group.get(part)
        if not isinstance(group, dict):
            return {}, field
    return group, field
