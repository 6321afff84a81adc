"""Test metrics of networks on data sets, from finished runs and evaluations.

An evaluation is a file that `train.evaluate --out` wrote, for example of published weights.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from train.foundation import files
from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.papers.figures import selection
from train.reports.metric import AVERAGES, Metric, Rule
from train.run.runs import StoredRun

# The rules of reports whose numbers are metrics of a run.
_RULES: Mapping[str, Rule] = {"top_k": "top", "average_k": "average"}


class _Evaluation(msgspec.Struct):
    """The report of a split of a data set."""

    split: str
    config: dict[str, Any]
    sets: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Tested:
    """The test metrics of a network on a data set.

    Attributes:
        network: the name of the network.
        dataset: the name of the data set.
        loss: the name of the loss that it was trained with.
        metrics: the metrics by name.
        path: the workdir, or the file of the evaluation.
        run: the run; None for an evaluation.
    """

    network: str
    dataset: str
    loss: str
    metrics: Mapping[str, Any]
    path: Path
    run: StoredRun | None


def read(workdirs: Sequence[str]) -> list[Tested]:
    """The test metrics of finished runs.

    Raises:
        UserError: a folder does not exist, has no finished run, or is named twice.
    """
    return [_read_run(run) for run in selection.read_any(workdirs)]


def find(folder: str) -> list[Tested]:
    """The test metrics of the finished runs in a folder's folders, and of evaluations in its files.

    Raises:
        UserError: the folder does not exist, or has neither.
    """
    runs = [_read_run(run) for run in selection.find_any(folder)]
    files = sorted(Path(folder).expanduser().glob("*.json"))
    found = [*runs, *(one for one in map(_read_evaluation, files) if one is not None)]
    if not found:
        raise UserError(
            f"--runs must be a folder of workdirs, or of files that train.evaluate --out wrote; "
            f"{folder} has no finished run and no evaluation of a test split"
        )
    return found


def by_network(
    tested: Sequence[Tested], dataset: str, metric: str, *, loss: str
) -> dict[str, float]:
    """A metric on a data set by network: the mean over seeds if there are several.

    Args:
        tested: the results, of any networks, data sets and losses.
        dataset: the data set of the results that are used.
        metric: the name of the metric.
        loss: the loss of the results that are used.

    Raises:
        UserError: results of one network are not seeds of one experiment, or one lacks the metric.
    """
    found: dict[str, list[Tested]] = defaultdict(list)
    for one in tested:
        if (one.dataset, one.loss) == (dataset, loss):
            found[one.network].append(one)
    for several in found.values():
        _check_seeds(several)
    return {
        network: float(
            np.mean([selection.metric_in(one.metrics, metric, one.path) for one in several])
        )
        for network, several in found.items()
    }


def _check_seeds(several: Sequence[Tested]) -> None:
    for one, other in itertools.combinations(several, 2):
        if one.run is None or other.run is None:
            raise UserError(
                f"{one.path} and {other.path} are both of {one.network} on {one.dataset}: a "
                "network has one point; keep one of them in the folder"
            )
    selection.check_seeds([one.run for one in several if one.run is not None])


def _read_run(run: StoredRun) -> Tested:
    network, dataset, loss = (run.fields[f"{group}.name"] for group in ("model", "dataset", "loss"))
    return Tested(network, dataset, loss, run.results["test"], run.workdir, run)


def _read_evaluation(path: Path) -> Tested | None:
    """The evaluation of a test split in a file; None if the file is something else."""
    try:
        found = files.read(path, _Evaluation, "an evaluation")
        config = dict(flatten(found.config))
        if found.split != "test":
            return None
        network, dataset, loss = (config[f"{group}.name"] for group in ("model", "dataset", "loss"))
        return Tested(network, dataset, loss, _metrics_of(found.sets), path, None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _metrics_of(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The accuracies of top-K and average-K sets in the rows of a report, by the names of a run."""
    found = {}
    for text, row in rows.items():
        kind, _, k = text.partition("=")
        rule = _RULES.get(kind)
        if rule is None or not k.isdecimal():
            continue
        for average in AVERAGES:
            name = "coverage" if average == "micro" else average
            if name in row:
                found[Metric.accuracy(rule, int(k), average).name] = row[name]
    return found
