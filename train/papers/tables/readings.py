"""The kinds of numbers that a cell can have, and how each is read from a finished run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from train.foundation.errors import UserError
from train.reports.metric import SHOTS, Metric
from train.reports.outcomes import Outcomes
from train.run import run_folder
from train.run.runs import StoredRun
from train.series.planned_runs import SPLIT

_PER_CENT = 100.0
_TOP_1 = Metric.accuracy("top", 1)


class Reading(ABC):
    """A number that is read from the files of a finished run."""

    @abstractmethod
    def read(self, run: StoredRun) -> float | None:
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

    def read(self, run: StoredRun) -> float | None:
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

    def read(self, run: StoredRun) -> float | None:
        """The accuracy in per cent."""
        outcomes = Outcomes.read(run_folder.outcomes(run.workdir, SPLIT))
        counts = np.array(run_folder.read_classes(run.workdir).training_images)[outcomes.labels]
        # The lowest group has the classes without any training image, too.
        chosen = (counts > self.above) | (self.above == 0)
        if self.up_to is not None:
            chosen &= counts <= self.up_to
        hits = outcomes.hits(_TOP_1)[chosen]
        return per_cent(hits.mean() if hits.size else None)

    def to_json(self) -> dict[str, Any]:
        """Its name, its split and its bounds."""
        return {"name": _TOP_1.name, "split": SPLIT, "above": self.above, "to": self.up_to}


def per_cent(share: Any) -> float | None:
    """A share in per cent; None for None."""
    return None if share is None else _PER_CENT * float(share)
