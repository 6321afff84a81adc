"""The kinds of numbers that a cell can have, and how each is read from a finished run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from train.evaluation.metric import SHOTS, Metric
from train.foundation.errors import UserError
from train.series.planned_runs import SPLIT
from train.workdir import run_files
from train.workdir.runs import Run

_PER_CENT = 100.0
_TOP_1 = Metric.accuracy("top", 1).name


class Reading(ABC):
    """A number that is read from the files of a finished run.

    Attributes:
        of_evaluation: whether it is written by `train.evaluate`, which is called after the run.
    """

    of_evaluation: ClassVar[bool] = False

    @abstractmethod
    def read(self, run: Run) -> float | None:
        """The number of a finished run in per cent; None if no example counts for it.

        Raises:
            UserError: a file of the run cannot be read, or does not have the number.
        """

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """A description for other programs."""

    @property
    def shots(self) -> Mapping[str, "Reading"]:
        """The same number on classes of few, medium and many shots; empty if there is none."""
        return {}


@dataclass(frozen=True)
class ResultMetric(Reading):
    """A metric of `results.json`.

    Attributes:
        metric: the metric.
        split: the split that it is measured on.
        with_shots: whether the cell also has its values on few, medium and many shot classes.
    """

    metric: Metric
    split: Literal["validation", "test"] = "test"
    with_shots: bool = False

    @property
    def name(self) -> str:
        """The name of the metric in the file."""
        return self.metric.name

    @property
    def shots(self) -> dict[str, "ResultMetric"]:
        """The metric on classes of few, medium and many shots."""
        return {
            shot: ResultMetric(replace(self.metric, average=shot), self.split)
            for shot in (SHOTS if self.with_shots else ())
        }

    def read(self, run: Run) -> float | None:
        """The metric in per cent."""
        metrics = run.results.get(self.split, {})
        if self.name not in metrics:
            raise UserError(f"the results in {run.workdir} have no {self.name} on {self.split}")
        return per_cent(metrics[self.name])

    def to_json(self) -> dict[str, Any]:
        """Its name and its split."""
        return {"name": self.name, "split": self.split}


@dataclass(frozen=True)
class CountBin(Reading):
    """The test top-1 accuracy on classes with more than `above`, up to `up_to`, training images."""

    above: int
    up_to: int | None
    of_evaluation = True

    def read(self, run: Run) -> float | None:
        """The accuracy in per cent."""
        path, evaluation = _evaluation(run)
        try:
            bins = list(evaluation["accuracy_by_count"])
            bins[0][_TOP_1]
        except (LookupError, TypeError) as error:
            raise _unreadable(path) from error
        for found in bins:
            if (found.get("from"), found.get("to")) == (self.above, self.up_to):
                return per_cent(found.get(_TOP_1))
        raise UserError(
            f"{run.workdir} has no accuracy on classes with more than {self.above} "
            f"training images{'' if self.up_to is None else f', up to {self.up_to}'}"
        )

    def to_json(self) -> dict[str, Any]:
        """Its name, its split and its bounds."""
        return {"name": _TOP_1, "split": SPLIT, "above": self.above, "to": self.up_to}


def per_cent(share: Any) -> float | None:
    """A share in per cent; None for None."""
    return None if share is None else _PER_CENT * float(share)


def _evaluation(run: Run) -> tuple[Path, dict[str, Any]]:
    path = run_files.evaluation(run.workdir, SPLIT)
    try:
        return path, run.evaluation(SPLIT)
    except (OSError, UserError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> UserError:
    return UserError(
        f"{path} cannot be read as an evaluation; delete it, and the same command writes it again"
    )
