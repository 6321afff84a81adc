"""The finished runs of a figure: how they are found and labelled, and which are seeds."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from train.foundation.errors import UserError
from train.foundation.kinds import did_you_mean
from train.foundation.nested import differences
from train.run import run_folder
from train.run.runs import StoredRun, identity_without_seed
from train.series.run_fields import check_fields, used_fields
from train.training.losses import SYMBOLS, find_loss


def read(workdirs: Iterable[str]) -> list[StoredRun]:
    """The finished runs in workdirs, all of one data set.

    Raises:
        UserError: a folder does not exist, has no finished run, or is named twice.
    """
    return _check_one_data_set(read_any(workdirs))


def read_any(workdirs: Iterable[str]) -> list[StoredRun]:
    """The finished runs in workdirs, of any data sets.

    Raises:
        UserError: a folder does not exist, has no finished run, or is named twice.
    """
    paths = [Path(workdir).expanduser() for workdir in workdirs]
    for path, other in itertools.combinations(paths, 2):
        if path.resolve() == other.resolve():
            raise UserError(f"--workdirs names {path} twice")
    return [_read(path) for path in paths]


def find(folder: str) -> list[StoredRun]:
    """The finished runs in the folders of a folder, all of one data set.

    Raises:
        UserError: the folder does not exist or has no finished run.
    """
    return _check_one_data_set(find_some(folder))


def find_some(folder: str) -> list[StoredRun]:
    """The finished runs in the folders of a folder, of any data sets.

    Raises:
        UserError: the folder does not exist or has no finished run.
    """
    found = find_any(folder)
    if not found:
        raise UserError(
            f"--runs must be a folder of workdirs; {folder} has none with a finished run"
        )
    return found


def find_any(folder: str) -> list[StoredRun]:
    """The finished runs in the folders of a folder, in the order of their names.

    Raises:
        UserError: the folder does not exist, or the results of a run in it are damaged.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UserError(f"--runs must be a folder of workdirs; there is no folder {path}")
    workdirs = sorted(path.iterdir())
    return [_read(workdir) for workdir in workdirs if run_folder.read_results(workdir) is not None]


def labels(runs: Sequence[StoredRun], *, without: str | None = None) -> list[str]:
    """The labels of runs in a legend: the loss, and how the run differs from others of that loss.

    Runs with the same label are drawn as one line. Labels can differ by the parameters of the loss
    and by the model, but not by the field `without`, which is the axis of the figure.
    """
    identities = [
        {
            name: value
            for name, value in used_fields(run).items()
            if (name.startswith("loss.") or name == "model.name") and name != without
        }
        for run in runs
    ]
    return [
        ", ".join([find_loss(run.fields["loss.name"]).title, *_distinctions(identity, identities)])
        for run, identity in zip(runs, identities, strict=True)
    ]


def by_label(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """The runs by label; runs of one label are seeds of one experiment.

    Raises:
        UserError: runs of one label differ in more than the seed.
    """
    found: dict[str, list[StoredRun]] = defaultdict(list)
    for run, label in zip(runs, labels(runs), strict=True):
        found[label].append(run)
    for seeds in found.values():
        check_seeds(seeds)
    return dict(found)


def check_seeds(runs: Sequence[StoredRun]) -> None:
    """Raises `UserError` unless the runs are different seeds of one experiment."""
    experiments = [identity_without_seed(used_fields(run)) for run in runs]
    for (run, ours), (other, others) in itertools.combinations(
        zip(runs, experiments, strict=True), 2
    ):
        if differing := differences(ours, others):
            raise UserError(
                f"{run.workdir} and {other.workdir} would be seeds of one experiment, but they "
                f"differ in {differing[0]}"
            )
        if run.fields["seed"] == other.fields["seed"]:
            raise UserError(
                f"{run.workdir} and {other.workdir} are the same experiment with the same seed, "
                f"{run.fields['seed']}"
            )


def test_metric(run: StoredRun, name: str) -> float:
    """A metric of the test split.

    Raises:
        UserError: the run has no such metric, or it has no value.
    """
    return metric_in(run.results["test"], name, run.workdir)


def metric_in(metrics: Mapping[str, Any], name: str, path: Path) -> float:
    """A metric of a test split, of the results in a folder or file.

    Raises:
        UserError: there is no such metric, or it has no value.
    """
    if name not in metrics:
        hint = did_you_mean(name, metrics)
        raise UserError(f"the results in {path} have no test metric {name!r}{hint}")
    if metrics[name] is None:
        raise UserError(f"the test metric {name} has no value in {path}")
    return float(metrics[name])


def number(run: StoredRun, field: str) -> float | None:
    """A field of the configuration as a number; None if the run does not have or use it.

    Raises:
        UserError: the value is not a number.
    """
    value = used_fields(run).get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"config.{field} must be a number; it is {value!r} in {run.workdir}")
    return float(value)


def check_field(runs: Sequence[StoredRun], field: str) -> None:
    """Raises `UserError` if none of the runs has a value of the field."""
    known = [used_fields(run) for run in runs]
    if all(fields.get(field) is None for fields in known):
        hint = did_you_mean(field, {name for fields in known for name in fields} - {field})
        raise UserError(f"no run has a value of config.{field} that it makes use of{hint}")


def symbol(field: str) -> str:
    """The symbol or the words for a field of the configuration on axes and in legends."""
    group, _, name = field.rpartition(".")
    in_words = name.replace("_", " ")
    return SYMBOLS.get(name, in_words) if group == "loss" else in_words


def _distinctions(
    identity: Mapping[str, Any], identities: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    """The values of the fields in which runs of one loss differ, and the model if models differ."""
    rivals = [other for other in identities if other["loss.name"] == identity["loss.name"]]
    for name, value in identity.items():
        among = identities if name == "model.name" else rivals
        if any(other.get(name) != value for other in among):
            yield value if name == "model.name" else f"{symbol(name)} = {value}"


def _read(workdir: Path) -> StoredRun:
    if not workdir.is_dir():
        raise UserError(f"there is no workdir {workdir}")
    run = StoredRun.read(workdir)
    if run is None or not run.is_finished:
        raise UserError(f"{workdir} has no finished run")
    check_fields(run, ("loss.name", "model.name", "dataset.name", "seed"))
    return run


def _check_one_data_set(runs: list[StoredRun]) -> list[StoredRun]:
    names = sorted({run.fields["dataset.name"] for run in runs})
    if len(names) > 1:
        raise UserError(
            f"the runs are of several data sets, {', '.join(names)}: a figure has one; name "
            "the runs of one with --workdirs"
        )
    return runs
