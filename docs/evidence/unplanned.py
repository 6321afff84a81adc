"""Differences that no study planned, computed later from the hits or the accuracies of its runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import better_heads
import numpy as np
from answers import results
from texts import scores

from train.series.contrasts import Contrast


@dataclass(frozen=True)
class Unplanned:
    """A difference of two arms in one or several studies.

    In the name of a metric {k} is the K of the study. Without a name it is the one that the study
    selects by.

    Attributes:
        studies: the names of the studies.
        first: an arm of them.
        second: the arm that is subtracted.
        metric: the accuracy of both.
        second_metric: that of the second arm, if it is another one.
        less_metric: the difference of the arms in this metric is subtracted from their difference.
        less_study: the difference of the arms in this study is subtracted from it.
    """

    studies: Sequence[str]
    first: str
    second: str
    metric: str = ""
    second_metric: str = ""
    less_metric: str = ""
    less_study: str = ""

    @property
    def found(self) -> list[tuple[str, Contrast]]:
        """The numbers of each study."""
        return [(study, self._in_study(study)) for study in self.studies]

    def _in_study(self, study: str) -> Contrast:
        of_study = results(study)
        metric = _name(of_study, self.metric)
        has_hits = metric in _arm(of_study, self.first)["hits"]
        if has_hits and not (self.second_metric or self.less_metric or self.less_study):
            arms = (_arm(of_study, self.first), _arm(of_study, self.second))
            return better_heads.difference_of_hits(of_study, *arms, metric)
        values = self._by_seed(study, self.metric, self.second_metric)
        if self.less_metric or self.less_study:
            values -= self._by_seed(self.less_study or study, self.less_metric)
        return better_heads.difference_of_accuracies(values)

    def _by_seed(self, study: str, metric: str, second_metric: str = "") -> np.ndarray:
        of_study = results(study)
        first, second = (
            np.asarray(scores(of_study, _arm(of_study, arm), _name(of_study, name)))
            for arm, name in ((self.first, metric), (self.second, second_metric or metric))
        )
        return first - second


def _arm(of_study: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    (arm,) = (one for one in of_study["arms"] if one["name"] == name)
    return arm


def _name(of_study: Mapping[str, Any], metric: str) -> str:
    selected: str = of_study["select_by"]
    return metric.replace("{k}", "".join(re.findall(r"\d+", selected))) or selected
