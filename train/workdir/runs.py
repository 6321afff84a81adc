"""A run on disk, its name, and when two runs are the same."""

import copy
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.evaluation.metric import Metric
from train.foundation.errors import UserError
from train.foundation.nested import differences, flatten
from train.workdir import run_files

# These may differ from one start of a run to the next, as the number of devices may.
FIELDS_OF_DEVICES = frozenset({"parallel", "class_devices"})
# These may differ from machine to machine: the results do not depend on them. Images that cannot be
# read are refused or left out, so that the results are the same without them.
FIELDS_OF_THE_MACHINE = frozenset(
    {
        *FIELDS_OF_DEVICES,
        "dataset.data_dir",
        "dataset.num_workers",
        "dataset.max_image_mb",
        "dataset.check_images",
        "dataset.skip_unreadable",
        "checkpoint.every_steps",
        "checkpoint.every_minutes",
        "compilation_cache",
    }
)
DATASET_PATH = "dataset.path"
# These may change when a run goes on, or is finished. The files at another path must be the same.
MAY_CHANGE = FIELDS_OF_THE_MACHINE | {DATASET_PATH}
PLACES_OF_DATA = (DATASET_PATH, "dataset.data_dir")
# Fields that configurations of earlier versions do not have, with the values that their runs used.
ADDED_FIELDS: Mapping[str, Any] = {
    "optimizer.name": "sgd",
    "optimizer.beta2": None,
    "model.width": None,
    "model.depth": None,
    "model.dropout": None,
    "model.stochastic_depth": None,
    "compilation_cache": True,
    "model.start_from": None,
    # Runs of earlier versions normalized as the data set says. They go on so: a run that has
    # begun takes what its `data.json` says, and without it the data set's numbers.
    "model.normalization": None,
    "model.freeze": False,
    "model.normalize_features": False,
    "optimizer.head_learning_rate": None,
    "optimizer.layer_decay": None,
    "optimizer.decay_biases_and_norms": True,
    "loss.label_smoothing": 0.0,
    "dataset.mixup": 0.0,
    "dataset.max_image_mb": 256,
    "dataset.sampling": "uniform",
    "model.new_head": False,
    "model.head": None,
    "model.scale": None,
    "model.learn_scale": False,
    "loss.class_weights": "none",
    "loss.class_weights_beta": 0.9999,
    "loss.class_weights_from": 0.0,
    "eval.temperature": False,
    "class_devices": None,
}

_DECODING = {"dataset.decoding": "exact"}
_UNSEEN_CLASSES = {"dataset.unseen_classes": "refuse"}
_OWN_IMAGES = {
    **_DECODING,
    **_UNSEEN_CLASSES,
    "dataset.transparency": "drop",
    "dataset.read_truncated": False,
    "dataset.check_images": "headers",
    "dataset.train_per_class": None,
    "dataset.imbalance_factor": 1.0,
    "dataset.label_noise": 0.0,
    "dataset.label_noise_kind": "blocks",
}
# The same, of the fields that some data sets alone have.
_ADDED_TO_DATA_SETS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {"dataset.imbalance_factor": 1.0},
    "features": _UNSEEN_CLASSES,
    **dict.fromkeys(("folder", "huggingface", "table", "tfds"), _OWN_IMAGES),
    **dict.fromkeys(("imagenet", "imagenet_lt", "plantnet300k", "plantnet300k_v2"), _DECODING),
    "place_names": {
        "dataset.fewest_names": None,
        "dataset.balanced_per_class": None,
        "dataset.train_size": None,
    },
}
_LABEL_NOISE, _LABEL_NOISE_KIND = "dataset.label_noise", "dataset.label_noise_kind"
# Without a frozen network the second has no meaning.
_FREEZE, _NORMALIZE_FEATURES = "model.freeze", "model.normalize_features"
# Without label noise its kind has no meaning. It is then what all recipes had in earlier versions.
_KIND_WITHOUT_NOISE = "superclass"

# What a run is to do about images that cannot be read, as recipes have it.
_WITHOUT_NAME = {"dataset.skip_unreadable": False, "dataset.check_images": "headers"}

# In the configuration of a finished run whose head was tau-normalized afterwards, and in no recipe.
TAU_NORMALIZED = "model.tau_normalized"


def added_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that earlier versions did not have, of a configuration with its data set."""
    name = str(dict(flatten(config)).get("dataset.name"))
    return {**ADDED_FIELDS, **_ADDED_TO_DATA_SETS.get(name, {})}


def with_added_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, perhaps of an earlier version, with the fields that were added since."""
    filled = copy.deepcopy(dict(config))
    for name, value in added_fields(config).items():
        group, field = _group_and_field(filled, name)
        group.setdefault(field, value)
    return filled


def all_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration by dotted names, with those that were added since."""
    fields = dict(flatten(config))
    for name, value in added_fields(config).items():
        fields.setdefault(name, value)
    return fields


def canonical(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by dotted names, where one that means nothing in this run has its usual value."""
    result = dict(fields)
    if fields.get(_LABEL_NOISE) == 0 and _LABEL_NOISE_KIND in fields:
        usual = added_fields(fields).get(_LABEL_NOISE_KIND, _KIND_WITHOUT_NOISE)
        result[_LABEL_NOISE_KIND] = usual
    if not fields.get(_FREEZE) and _NORMALIZE_FEATURES in fields:
        result[_NORMALIZE_FEATURES] = ADDED_FIELDS[_NORMALIZE_FEATURES]
    return result


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by dotted names that the results of a run depend on."""
    return {
        name: value
        for name, value in canonical(all_fields(config)).items()
        if name not in FIELDS_OF_THE_MACHINE
    }


def identity_without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are equal in all seeds of one experiment."""
    return {name: value for name, value in identity(config).items() if name != "seed"}


def key(config: Mapping[str, Any]) -> str:
    """The identity as a text; it is equal for configurations of the same run."""
    return json.dumps(identity(config), sort_keys=True)


def run_name(config: Mapping[str, Any]) -> str:
    """A name that is different for each configuration and says the data set and the loss."""
    earlier = copy.deepcopy(dict(config))
    for name in (_LABEL_NOISE_KIND, _NORMALIZE_FEATURES):
        group, field = _group_and_field(earlier, name)
        if field in group:
            group[field] = canonical(dict(flatten(config)))[name]
    # Without --workdir a run is found by its name, also when one of these is another.
    for name, value in _WITHOUT_NAME.items():
        group, field = _group_and_field(earlier, name)
        if field in group:
            group[field] = value
    # Added fields with their default are left out: the name is then that of earlier versions.
    for name, value in added_fields(config).items():
        group, field = _group_and_field(earlier, name)
        if group.get(field) == value:
            group.pop(field, None)
    digest = hashlib.sha256(json.dumps(earlier, sort_keys=True).encode()).hexdigest()
    values = dict(flatten(config))
    return f"{values.get('dataset.name')}-{values.get('loss.name')}-{digest[:8]}"


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
        """The fields of the configuration by dotted names, with those that were added since."""
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
        """What `results.json` has.

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

    def evaluation(self, split: str) -> dict[str, Any]:
        """The evaluation of a split by `train.evaluate`.

        Raises:
            UserError: there is no such file, or it is not an evaluation of that split.
        """
        return run_files.read_evaluation(self.workdir, split)

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


def check_same_run(workdir: Path, config: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Raises `UserError` if the configuration of a workdir is not the one that its results have."""
    # Results of earlier versions may have none.
    found, of_results = (identity(one) for one in (config, results.get("config", config)))
    # Whoever moved the data set says so in the configuration.
    of_results[DATASET_PATH] = found.get(DATASET_PATH)
    found.setdefault(DATASET_PATH, None)
    if differing := differences(found, of_results):
        raise UserError(
            f"{run_files.CONFIG} and {run_files.RESULTS} in {workdir} are not of one run, for they "
            f"differ in {differing[0]}: one of them was changed"
        )


def _group_and_field(config: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The group of a field and its name there; a new group if the configuration has none."""
    *groups, field = name.split(".")
    group: Any = config
    for part in groups:
        group = group.get(part)
        if not isinstance(group, dict):
            return {}, field
    return group, field
