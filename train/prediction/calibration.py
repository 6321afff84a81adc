"""Thresholds that are calibrated on the validation images, and stored in the workdir of a run."""

import contextlib
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from train.evaluation import (
    combinations,
    conformal_sets,
    cost_thresholds,
    example_groups,
    named_costs,
    new_classes,
    promises,
    selective,
    set_rules,
    thresholds,
)
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.conformal_sets import ConformalSets
from train.evaluation.new_classes import NewClassLimits
from train.evaluation.observations import Combination, InGroups
from train.evaluation.predictions import Predictions
from train.evaluation.promises import CalibratedOn
from train.evaluation.set_rules import SetRule
from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.prediction import outliers
from train.prediction.outliers import OutlierScore
from train.prediction.trained import TrainedClassifier
from train.workdir import run_files

# One threshold, or one for each class.
_Found = TypeVar("_Found", float, list[float])


class Calibration:
    """The thresholds of a classifier, computed from its predictions for the validation images.

    Each threshold is computed once and stored in the workdir. A run that was copied to another
    machine therefore needs its data set only for thresholds that were not computed before. For a
    published network, which has no workdir, nothing is stored.

    Args:
        classifier: the classifier.
        combined_by: how the validation examples of an observation are combined, one of
            `combinations.COMBINATIONS`; the thresholds are then calibrated on the observations.
            None to calibrate on examples.
    """

    def __init__(self, classifier: TrainedClassifier, combined_by: str | None = None) -> None:
        self._classifier = classifier
        self._combined_by = combined_by
        self._path = (
            None if classifier.workdir is None else classifier.workdir / run_files.CALIBRATION
        )

    def combination(self) -> Combination | None:
        """How the examples of an observation are combined; None without observations.

        Raises:
            UserError: weights are needed that are not stored, and the data set is not on this
                machine or has no observations.
        """
        name = self._combined_by
        if name != combinations.TRAINED:
            return None if name is None else Combination(name)

        def find(_: Predictions) -> list[float]:
            weights = self._in_groups.combination.weights
            assert weights is not None
            return list(weights)

        weights = self._stored("weights", find, is_list=True)
        self._check_number(weights, 2)
        return Combination(name, (weights[0], weights[1]))

    def average_k(self, k: float) -> float:
        """The threshold whose sets have K classes on average over the validation images.

        Raises:
            UserError: it is not stored, and the data set is not on this machine.
        """
        return self._stored(
            f"average_{float(k)}",
            lambda found: float(thresholds.average_k_threshold(found.scores, k)),
        )

    def conformal(self, coverage: float) -> float:
        """The threshold whose sets contain the label of a new image with at least this probability.

        Raises:
            UserError: it is not stored, and the data set is not on this machine or is too small.
        """

        def find(found: Predictions) -> float:
            self._check_observations(found, coverage)
            return thresholds.conformal_threshold(found, coverage)

        return self._stored(f"coverage_{coverage}", find)

    def conformal_sets(self, coverage: float, rule: ConformalRule) -> ConformalSets:
        """The sets of a rule with a score that have the label with at least that probability.

        It warns of classes that are in every set, because too few examples have them.

        Raises:
            UserError: the rule needs something that the classifier does not have, or its limits are
                not stored, and the data set is not on this machine or is too small.
        """
        return self.without_check(coverage, rule).checked(coverage)

    def without_check(self, coverage: float, rule: ConformalRule) -> ConformalSets:
        """`conformal_sets`, even if every class is in every set, for limits that are kept."""
        counts = self._classifier.class_counts if rule.needs_class_counts else None
        tree = self._classifier.tree if rule.needs_taxonomy else None
        # Before the validation examples are predicted.
        if reason := conformal_sets.why_not_with(rule, counts, tree):
            raise UserError(reason)

        def find(found: Predictions) -> list[float]:
            if rule.quantile != "classes":
                self._check_observations(found, coverage)
            limits = conformal_sets.without_check(rule, found, coverage, counts, tree).limits
            plain: list[float] = np.atleast_1d(limits).tolist()
            return plain

        # With other parameters, a limit belongs to another score.
        parameters = [f"{name}={value}" for name, value in rule.parameters.items()]
        if tree is not None:
            # Another --taxonomy can be given.
            parameters.append(f"taxonomy={tree.digest}")
        name = "_".join([f"coverage_{coverage}", rule.name, *parameters])
        limits = self._stored(name, find, is_list=True)
        self._check_number(limits, 1 if rule.quantile == "all" else self._classifier.num_classes)
        array = np.asarray(limits[0] if rule.quantile == "all" else limits, np.float32)
        return ConformalSets(rule, array, counts, tree)

    def sets_of(self, coverage: float, rule: ConformalRule) -> SetRule:
        """The sets of any rule that have the label with at least that probability.

        Raises:
            UserError: see `conformal_sets`.
        """
        if rule.score is None:
            return set_rules.at_threshold(self.conformal(coverage))
        return self.conformal_sets(coverage, rule)

    def new_classes(self, coverage: float, score: OutlierScore) -> NewClassLimits:
        """The limits of sets with a coverage that may say "none of these".

        Raises:
            UserError: they are not stored, and the data set is not on this machine or is too small.
        """

        def find(found: Predictions) -> list[float]:
            limits = new_classes.limits(self._outliers(found, score), found.drawn_labels, coverage)
            return [limits.known_to, limits.new_from]

        limits = self._stored(f"new_{score.name}_{coverage}", find, is_list=True)
        self._check_number(limits, 2)
        return NewClassLimits(*limits)

    def selective(self, error: float) -> float:
        """The probability above which the likeliest class is wrong at most at this rate.

        Raises:
            UserError: it is not stored, and the data set is not on this machine; or no answers are
                shown to be so good.
        """
        return self._stored(f"max_error_{error}", lambda found: selective.threshold(found, error))

    def _outliers(self, found: Predictions, score: OutlierScore) -> np.ndarray:
        """The outlier scores of the examples that thresholds are calibrated on."""
        validation = self._classifier.load_dataset().validation
        measured = outliers.measure(found, score, validation, "validation").outliers
        assert measured is not None
        return measured

    def risk(self, risk: float, costs_name: str) -> float:
        """The threshold whose sets cost at most `risk` on average over new images.

        Args:
            risk: the bound of the mean cost.
            costs_name: the costs, as --costs has them.

        Raises:
            UserError: there are no such costs, or it is not stored, and the data set is not on this
                machine or is too small.
        """
        classifier = self._classifier
        costs = named_costs.named(
            costs_name, classifier.classes.names, classifier.class_counts, classifier.tree
        )
        return self._stored(
            f"risk_{risk}_{costs.digest}",
            lambda found: cost_thresholds.threshold(found, costs, risk),
        )

    def _check_observations(self, found: Predictions, coverage: float) -> None:
        """Refuses too few observations; too few examples are refused where they are used."""
        if self._combined_by is not None:
            thresholds.check_enough(len(found.labels), coverage, "observations")

    def _check_number(self, limits: list[float], number: int) -> None:
        if len(limits) != number:
            raise UserError(
                f"{self._path} has {len(limits)} limits in place of {number}; delete it"
            )

    def _stored(
        self, name: str, find: Callable[[Predictions], _Found], *, is_list: bool = False
    ) -> _Found:
        """The value stored under a name; if there is none, `find` computes it to be stored."""
        name = self._full_name(name)
        if self._path is None:
            return find(self._validation)
        stored = plain(run_files.read_calibration(self._path.parent))
        if name not in stored:
            found = find(self._validation)
            if not _can_be_stored(found):
                return found
            stored[name] = found
            stored[self._full_name(promises.KEPT_AS)] = _count(self._validation)
            # Without permission to write, the threshold is computed again the next time.
            with contextlib.suppress(OSError):
                files.write_whole(self._path, json_files.sealed(stored, indent=1))
        value: _Found = stored[name]
        if isinstance(value, list) != is_list:
            raise UserError(f"{self._path} has thresholds of another kind; delete it")
        return value

    def _full_name(self, name: str) -> str:
        return combinations.name_in_files(name, self._combined_by)

    def counted(self) -> CalibratedOn | None:
        """How many examples calibrate the thresholds; None if nobody kept it or can count them."""
        with contextlib.suppress(UserError):
            numbers = self._stored(promises.KEPT_AS, _count, is_list=True)
            self._check_number(numbers, 2)
            return CalibratedOn.from_plain(numbers)
        return None

    def most_combined(self) -> int:
        """The most examples of a validation observation.

        Raises:
            UserError: it is not stored, and the data set is not on this machine.
        """

        def find(_: Predictions) -> float:
            groups = self._in_groups.examples.groups
            assert groups is not None
            return float(np.bincount(example_groups.numbered(groups)[1]).max())

        return int(self._stored("most_combined", find))

    @cached_property
    def _validation(self) -> Predictions:
        if self._combined_by is None:
            return self._classifier.predict("validation")
        return self._in_groups.observations.predictions

    @cached_property
    def _in_groups(self) -> InGroups:
        """The examples of the validation observations."""
        assert self._combined_by is not None
        # Before anything is predicted.
        if self._classifier.load_dataset().validation.groups is None:
            raise UserError(
                "--group needs a run with groups, on whose validation observations sets are "
                "calibrated, and this one has none: train with config.dataset.group, or give "
                "--top_k and no --combine=trained"
            )
        return InGroups(self._classifier.predict("validation"), self._combined_by)


def _count(found: Predictions) -> list[float]:
    """How many examples thresholds come from, as files have it."""
    return CalibratedOn.of(found).to_plain()


def plain(stored: dict[str, Any]) -> dict[str, Any]:
    """The thresholds of a file by their names; null is the threshold that no score fails.

    That is infinity in a list, whose limits are from above, and else minus infinity.
    """
    return {
        name: [math.inf if limit is None else limit for limit in value]
        if isinstance(value, list)
        else -math.inf
        if value is None
        else value
        for name, value in stored.items()
    }


def _can_be_stored(found: float | list[float]) -> bool:
    """Whether the file can have what was found. In a list, infinity becomes null, but NaN cannot.

    A single threshold must be finite: an infinite one puts all classes in every set, or none.
    """
    if isinstance(found, list):
        return not any(map(math.isnan, found))
    return math.isfinite(found)
