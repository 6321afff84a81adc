"""A run on disk, its name, and when two runs are the same."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.configuration import FIELDS_OF, Config, DatasetFields, declaring
from train.foundation.errors import UserError
from train.foundation.nested import differences, flatten
from train.reports import metric
from train.run import output_files, run_folder

_PATH = "dataset.path"
PLACES_OF_DATA = (_PATH, "dataset.data_dir")
_DECLARED = {
    name: one
    for kind in FIELDS_OF.values()
    for name, one in declaring.by_dotted_name(Config, dataset=kind).items()
}
# The results do not depend on these. Images that cannot be read are refused or left out, so that
# the results are the same without them.
FIELDS_OF_THE_MACHINE = frozenset(name for name, one in _DECLARED.items() if one.of_machine)
# These may change when a run resumes, or is finished. The files at another path must be the same.
_MAY_CHANGE = {name for name, one in _DECLARED.items() if one.may_change}
_FLOATS = {name for name, one in _DECLARED.items() if one.type is float}


def all_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a nested configuration by dotted names; one that is missing has its default."""
    fields = dict(flatten(config))
    return fields | {name: value for name, value in _defaults(fields).items() if name not in fields}


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by dotted names that the results of a run depend on, in the types of a run's."""
    return {
        name: float(value) if name in _FLOATS and isinstance(value, int) else value
        for name, value in all_fields(config).items()
        if name not in FIELDS_OF_THE_MACHINE
    }


def key(config: Mapping[str, Any]) -> str:
    """A text that is equal for configurations that give the same results."""
    return json.dumps(identity(config), sort_keys=True)


def run_name(config: Mapping[str, Any]) -> str:
    """A name that is different for each identity and has the data set and the loss.

    Fields with their default do not change the name.
    """
    fields = identity(config)
    usual = _defaults(fields)
    told = {
        name: value for name, value in fields.items() if name not in usual or value != usual[name]
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return f"{fields.get('dataset.name')}-{fields.get('loss.name')}-{digest[:8]}"


def _defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the fields of a configuration that have one."""
    kind = FIELDS_OF.get(str(fields.get("dataset.name")), DatasetFields)
    return declaring.defaults(Config, dataset=kind)


@dataclass(frozen=True)
class StoredRun:
    """A run on disk, finished or not.

    Attributes:
        workdir: where it is.
        config: its nested configuration, as it was written.
    """

    workdir: Path
    config: Mapping[str, Any]

    @classmethod
    def read(cls, workdir: Path) -> "StoredRun | None":
        """The run in a workdir; None if there is none."""
        config = run_folder.read_config(workdir)
        if config is None and run_folder.read_results(workdir) is not None:
            raise UserError(f"{workdir} is damaged (it has results and no config.json): delete it")
        return None if config is None else cls(workdir, config)

    @functools.cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of the configuration by dotted names; sets of all classes are left out."""
        fields = all_fields(self.config)
        if self._results is not None and "select_by" in fields:
            given = fields["eval.ks"], fields["select_by"], self._results["num_classes"]
            fields["eval.ks"], select_by = metric.of_classes(*given)
            fields["select_by"] = select_by.name
        return fields

    @functools.cached_property
    def key(self) -> str:
        """A text that is equal for runs that give the same results."""
        return key(self.config)

    @property
    def is_finished(self) -> bool:
        """Whether the run has results; a `UserError` if they are damaged."""
        return self._results is not None

    @property
    def results(self) -> Mapping[str, Any]:
        """The contents of `results.json`; a `UserError` if the run is not finished."""
        if self._results is None:
            raise UserError(f"{self.workdir} has no finished run")
        return self._results

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return run_folder.read_metrics(self.workdir)

    @functools.cached_property
    def _results(self) -> dict[str, Any] | None:
        return run_folder.read_results(self.workdir)


def read_finished(workdir: Path, flag: str = "--workdir") -> StoredRun:
    """The finished run in a workdir, which a flag gives.

    Raises:
        UserError: there is none, or its files are damaged.
    """
    run = StoredRun.read(workdir)
    if run is None or not run.is_finished:
        is_not = "holds no run" if run is None else "has a run that is not finished"
        but = f"{workdir} {is_not if workdir.exists() else 'does not exist'}"
        raise UserError(field=flag, must_be="the folder of a finished run", but=but)
    return run


def check_continues(config: Config, workdir: Path) -> None:
    """Whether a configuration may begin in a workdir, or continue the run in it.

    Fields of the machine, and the place of its data, may change when the run continues.

    Raises:
        UserError: the workdir is a file, or holds a run of another configuration.
    """
    output_files.check_is_folder("workdir", workdir)
    earlier = run_folder.read_config(workdir)
    if earlier is None:
        if run_folder.has_checkpoints(workdir):
            raise UserError(f"--workdir {workdir} holds checkpoints but no {run_folder.CONFIG}")
        return
    # Without a digest it is not known whether the data at another path are the same.
    fixed = set() if run_folder.read_digest(workdir) else {_PATH}
    before, now = (
        {name: value for name, value in identity(one).items() if name not in _MAY_CHANGE - fixed}
        for one in (earlier, config.to_plain())
    )
    if differing := differences(before, now):
        raise UserError(
            f"--workdir {workdir} holds a run of another configuration ({'; '.join(differing)}); "
            "give another --workdir"
        )
