"""A cell's number from the files that one of its runs left."""

from pathlib import Path
from typing import Any

from train.evaluation import metric_names
from train.foundation.errors import UserError
from train.papers.tables.runs import SPLIT, Run, RunsFolder
from train.papers.tables.table import (
    AnyMetric,
    CountBin,
    FirstEpochMean,
    LastEpoch,
    Metric,
    SetSizeShare,
)
from train.workdir import run_files

_PER_CENT = 100.0


def read(metric: AnyMetric, run: Run, folder: RunsFolder) -> float | None:
    """The number of a finished run, shares in per cent; None where no example counts for it.

    Raises:
        UserError: a file of the run cannot be read, or has no such metric.
    """
    match metric:
        case Metric():
            return _read_result(metric, run, folder)
        case CountBin():
            return _read_count_bin(metric, run, folder)
        case SetSizeShare():
            return _read_set_size_share(metric, run, folder)
        case LastEpoch():
            return per_cent(run_files.last_epoch(folder.workdir(run), metric.name))
        case FirstEpochMean():
            return run_files.first_epoch_mean(folder.workdir(run), metric.name)


def per_cent(share: Any) -> float | None:
    """A share in per cent; None where there is none."""
    return None if share is None else _PER_CENT * float(share)


def _read_result(metric: Metric, run: Run, folder: RunsFolder) -> float | None:
    metrics = (folder.results(run) or {}).get(metric.split, {})
    if metric.name not in metrics:
        where = folder.workdir(run)
        raise UserError(f"the results in {where} have no {metric.name} on {metric.split}")
    return per_cent(metrics[metric.name])


def _read_count_bin(metric: CountBin, run: Run, folder: RunsFolder) -> float | None:
    path, evaluation = _evaluation(run, folder)
    try:
        bins = list(evaluation["accuracy_by_count"])
        bins[0]["top_1_accuracy"]
    except (LookupError, TypeError) as error:
        raise _unreadable(path) from error
    for found in bins:
        if (found.get("from"), found.get("to")) == (metric.above, metric.up_to):
            return per_cent(found.get("top_1_accuracy"))
    raise UserError(
        f"{folder.workdir(run)} has no accuracy on classes with more than {metric.above} "
        f"training images{'' if metric.up_to is None else f', up to {metric.up_to}'}"
    )


def _read_set_size_share(metric: SetSizeShare, run: Run, folder: RunsFolder) -> float | None:
    path, evaluation = _evaluation(run, folder)
    try:
        # Counts of images by the size of their set, from 0.
        counts = list(evaluation["set_size_counts"][metric_names.average_k(metric.k)]["all"])
        return per_cent(counts[metric.size] / sum(counts))
    except (LookupError, TypeError, ZeroDivisionError) as error:
        raise _unreadable(path) from error


def _evaluation(run: Run, folder: RunsFolder) -> tuple[Path, dict[str, Any]]:
    path = folder.evaluation(run)
    try:
        return path, run_files.read_evaluation(path.parent, SPLIT)
    except (OSError, UserError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> UserError:
    return UserError(
        f"{path} cannot be read as what train.evaluate leaves; delete it, and the same command "
        "makes it anew"
    )
