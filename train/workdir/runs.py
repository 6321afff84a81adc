"""A run on disk, its name, and when two runs are the same."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.configuration import FIELDS_OF, Config, DatasetFields, declaring
from train.foundation.errors import UserError
from train.foundation.nested import differences, flatten
from train.reports.metric import Metric
from train.workdir import run_files

DATASET_PATH = "dataset.path"
PLACES_OF_DATA = (DATASET_PATH, "dataset.data_dir")
_DECLARED = {
    name: one
    for kind in FIELDS_OF.values()
    for name, one in declaring.by_dotted_name(Config, dataset=kind).items()
}
# These may differ from machine to machine: the results do not depend on them. Images that cannot be
# read are refused or left out, so that the results are the same without them.
FIELDS_OF_THE_MACHINE = frozenset(name for name, one in _DECLARED.items() if one.of_machine)
# These may change when a run resumes, or is finished. The files at another path must be the same.
MAY_CHANGE = frozenset(name for name, one in _DECLARED.items() if one.may_change)
# What a run does about images that cannot be read. Without --workdir a run is found
# by its name, even if one of these differs.
_NOT_IN_NAME = ("dataset.skip_unreadable",)
# The second of each pair has no effect if the first is 0 or False.
_ONLY_WITH = (
    ("dataset.label_noise", "dataset.label_noise_kind"),
    ("model.freeze", "model.normalize_features"),
)


def all_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a nested configuration by dotted names; one that is missing has its default."""
    fields = dict(flatten(config))
    return fields | {name: value for name, value in _defaults(fields).items() if name not in fields}


def canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """Like `all_fields`, but a field without effect in this run has its default."""
    fields = all_fields(config)
    usual = _defaults(fields)
    for needed, name in _ONLY_WITH:
        if name in fields and not fields.get(needed):
            fields[name] = usual.get(name)
    return fields


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by dotted names that the results of a run depend on, in the types of a run's."""
    return {
        name: declaring.typed(value, _DECLARED[name].type) if name in _DECLARED else value
        for name, value in canonical(config).items()
        if name not in FIELDS_OF_THE_MACHINE
    }


def identity_without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are equal in all seeds of one experiment."""
    return {name: value for name, value in identity(config).items() if name != "seed"}


def key(config: Mapping[str, Any]) -> str:
    """The identity as a text; it is equal for configurations of the same run."""
    return json.dumps(identity(config), sort_keys=True)


def run_name(config: Mapping[str, Any]) -> str:
    """A name that is different for each configuration and has the data set and the loss.

    Fields with their default do not change the name.
    """
    fields = canonical(config)
    usual = _defaults(fields)
    told = {
        name: value
        for name, value in fields.items()
        if name not in _NOT_IN_NAME and (name not in usual or value != usual[name])
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return f"{fields.get('dataset.name')}-{fields.get('loss.name')}-{digest[:8]}"


def _defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the fields of a configuration that have one."""
    kind = FIELDS_OF.get(str(fields.get("dataset.name")), DatasetFields)
    return declaring.defaults(Config, dataset=kind)


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not.

    Attributes:
        workdir: where it is.
        config: its nested configuration, as it was written.
    """

    workdir: Path
    config: Mapping[str, Any]

    @classmethod
    def read(cls, workdir: Path) -> "Run | None":
        """The run in a workdir; None if there is none.

        Raises:
            UserError: `config.json` is not a configuration.
        """
        config = run_files.read_config(workdir)
        if config is not None:
            return cls(workdir, config)
        results = run_files.read_results(workdir)
        # Results that were copied without the configuration have it too.
        return None if results is None else cls(workdir, results.get("config") or {})

    @functools.cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of the configuration by dotted names."""
        return all_fields(self.config)

    @functools.cached_property
    def key(self) -> str:
        """A text that is equal for runs that give the same results."""
        return key(self.config)

    @property
    def is_finished(self) -> bool:
        """Whether the run has results that can be read."""
        return self._results is not None

    @property
    def results(self) -> Mapping[str, Any]:
        """The contents of `results.json`.

        Raises:
            UserError: the run is not finished.
        """
        if self._results is None:
            raise UserError(f"{self.workdir} has no finished run")
        return self._results

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`.

        Raises:
            UserError: there is no such file.
        """
        return run_files.read_metrics(self.workdir)

    def first_epoch_mean(self, name: str) -> float:
        """The mean of a metric of the training steps over the first epoch.

        Raises:
            UserError: the run did not log it throughout that epoch.
        """
        first_epoch = [
            line
            for line in self.metrics()
            if line.get("split") == "train" and line.get("epoch") == 1
        ]
        values = [line[name] for line in first_epoch if isinstance(line.get(name), int | float)]
        if not values or len(values) < len(first_epoch):
            raise UserError(
                f"{self.workdir / run_files.METRICS} has no {name} for all of the first epoch"
            )
        # A line is the mean over the steps since the line before.
        steps = np.diff([0, *(line["step"] for line in first_epoch)])
        return float(np.average(values, weights=steps))

    def validation(self, metric: Metric) -> float | None:
        """A metric of the validation split with the selected parameters; None without a value.

        Raises:
            UserError: the run is not finished, or has no such metric.
        """
        found = self.results.get("validation", {})
        if metric.name not in found:
            raise UserError(f"{self.workdir} has no {metric.name} on validation to tune by")
        value = found[metric.name]
        return None if value is None else float(value)

    @functools.cached_property
    def _results(self) -> dict[str, Any] | None:
        results = run_files.read_results(self.workdir)
        if results is not None:
            check_same_run(self.workdir, self.config, results)
        return results


def read_finished(workdir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration and the results of the finished run in a workdir.

    Raises:
        UserError: there is none, or its files are not of one run.
    """
    if not workdir.is_dir():
        raise UserError(f"--workdir must be the folder of a finished run; there is no {workdir}")
    config = run_files.read_config(workdir)
    if config is None:
        raise UserError(f"--workdir must be the folder of a finished run; {workdir} holds no run")
    results = run_files.read_results(workdir)
    if results is None:
        reason = run_files.why_no_results(workdir)
        state = f"the run in {workdir} is not finished" if reason is None else reason
        raise UserError(
            f"--workdir must be the folder of a finished run; {state}: the command that started it "
            "continues it"
        )
    check_same_run(workdir, config, results)
    return config, results


def check_same_run(workdir: Path, config: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Raises `UserError` if the configuration of a workdir is not the one that its results have."""
    # Results of earlier versions may not have it.
    found, of_results = (identity(one) for one in (config, results.get("config", config)))
    # A user who moved the data set changes the configuration.
    of_results[DATASET_PATH] = found.get(DATASET_PATH)
    found.setdefault(DATASET_PATH, None)
    if differing := differences(found, of_results):
        raise UserError(
            f"{run_files.CONFIG} and {run_files.RESULTS} in {workdir} are not of one run, because "
            f"they differ in {differing[0]}: one of them was changed"
        )
