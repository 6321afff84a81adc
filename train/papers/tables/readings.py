"""A cell's number from the files that one of its runs left."""

from pathlib import Path
from typing import Any

from train.evaluation.metric import Metric, rule_name
from train.foundation.errors import UserError
from train.papers.tables.planned_runs import SPLIT
from train.papers.tables.table import (
    AnyMetric,
    CountBin,
    FirstEpochMean,
    LastEpoch,
    ResultMetric,
    SetSizeShare,
)
from train.workdir import run_files
from train.workdir.runs import Run

_PER_CENT = 100.0
_TOP_1 = Metric.accuracy("top", 1).name


def read(metric: AnyMetric, run: Run) -> float | None:
    """The number of a finished run, shares in per cent; None where no example counts for it.

    Raises:
        UserError: a file of the run cannot be read, or has no such metric.
    """
    match metric:
        case ResultMetric():
            return _read_result(metric, run)
        case CountBin():
            return _read_count_bin(metric, run)
        case SetSizeShare():
            return _read_set_size_share(metric, run)
        case LastEpoch():
            return per_cent(run.last_epoch(metric.metric))
        case FirstEpochMean():
            return run.first_epoch_mean(metric.name)


def per_cent(share: Any) -> float | None:
    """A share in per cent; None where there is none."""
    return None if share is None else _PER_CENT * float(share)


def _read_result(metric: ResultMetric, run: Run) -> float | None:
    metrics = run.results.get(metric.split, {})
    if metric.name not in metrics:
        raise UserError(f"the results in {run.workdir} have no {metric.name} on {metric.split}")
    return per_cent(metrics[metric.name])


def _read_count_bin(metric: CountBin, run: Run) -> float | None:
    path, evaluation = _evaluation(run)
    try:
        bins = list(evaluation["accuracy_by_count"])
        bins[0][_TOP_1]
    except (LookupError, TypeError) as error:
        raise _unreadable(path) from error
    for found in bins:
        if (found.get("from"), found.get("to")) == (metric.above, metric.up_to):
            return per_cent(found.get(_TOP_1))
    raise UserError(
        f"{run.workdir} has no accuracy on classes with more than {metric.above} "
        f"training images{'' if metric.up_to is None else f', up to {metric.up_to}'}"
    )


def _read_set_size_share(metric: SetSizeShare, run: Run) -> float | None:
    path, evaluation = _evaluation(run)
    try:
        # Counts of images by the size of their set, from 0.
        counts = list(evaluation["set_size_counts"][rule_name("average", metric.k)]["all"])
        return per_cent(counts[metric.size] / sum(counts))
    except (LookupError, TypeError, ZeroDivisionError) as error:
        raise _unreadable(path) from error


def _evaluation(run: Run) -> tuple[Path, dict[str, Any]]:
    path = run_files.evaluation(run.workdir, SPLIT)
    try:
        return path, run.evaluation(SPLIT)
    except (OSError, UserError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> UserError:
    return UserError(
        f"{path} cannot be read as what train.evaluate leaves; delete it, and the same command "
        "makes it anew"
    )
