"""Thresholds that are not calibrated on the validation examples of a run: made, stored, and read.

`train.evaluate --recalibrate=half` calibrates on new examples and writes the thresholds to a file
of their own; the thresholds of the workdir stay as they are. `--thresholds=FILE` of the commands
reads them in place of the thresholds of the run.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from train.evaluation import promises
from train.evaluation.observations import InGroups
from train.evaluation.predictions import Predictions
from train.evaluation.promises import CalibratedOn
from train.foundation import fields, files, json_files, shapes
from train.foundation.errors import UserError
from train.prediction.calibration import Calibration, plain
from train.prediction.outliers import OutlierScore
from train.prediction.trained import TrainedClassifier
from train.training.state import parameters_digest
from train.workdir import run_shapes

_Found = TypeVar("_Found", float, list[float])

_SHAPE = shapes.record(
    {
        "parameters": fields.text(),
        "calibrated_on": fields.text(),
        "thresholds": run_shapes.CALIBRATION,
    },
    # Files of earlier versions have none.
    {"classes": fields.text()},
)
_WHAT = "thresholds that train.evaluate --recalibrate wrote"


class NewCalibration(Calibration):
    """Thresholds that are calibrated on given examples, and not stored in the workdir.

    Args:
        classifier: the classifier.
        examples: its predictions for examples of classes that it knows; with outlier scores, if
            sets may say "none of these". For sets of observations, these in groups.

    Attributes:
        found: the thresholds that were asked for so far, by their names.
    """

    def __init__(
        self,
        classifier: TrainedClassifier,
        examples: Predictions | InGroups,
    ) -> None:
        super().__init__(
            classifier, examples.combined_by if isinstance(examples, InGroups) else None
        )
        self._examples = examples
        self.found: dict[str, float | list[float]] = {}

    @cached_property
    def _in_groups(self) -> InGroups:
        assert isinstance(self._examples, InGroups)
        return self._examples

    @cached_property
    def _validation(self) -> Predictions:
        if isinstance(self._examples, InGroups):
            return self._examples.observations.predictions
        return self._examples

    def _outliers(self, found: Predictions, score: OutlierScore) -> np.ndarray:
        del score
        assert found.outliers is not None
        return found.outliers

    def _stored(
        self, name: str, find: Callable[[Predictions], _Found], *, is_list: bool = False
    ) -> _Found:
        del is_list
        found = find(self._validation)
        self.found[self._full_name(name)] = found
        self.found[self._full_name(promises.KEPT_AS)] = CalibratedOn.of(self._validation).to_plain()
        return found


def write(
    path: Path, classifier: TrainedClassifier, made: Sequence[NewCalibration], calibrated_on: str
) -> None:
    """Writes the thresholds that several calibrations were asked for.

    Args:
        path: the file.
        classifier: the classifier.
        made: the calibrations.
        calibrated_on: the examples, in words.
    """
    content = {
        "parameters": parameters_digest(classifier.params),
        "classes": _digest(classifier.classes.names),
        "calibrated_on": calibrated_on,
        "thresholds": {name: value for one in made for name, value in one.found.items()},
    }
    files.write_whole(path, json_files.sealed(content, indent=1))


def _digest(names: Sequence[str]) -> str:
    content = json.dumps([*names]).encode()
    return hashlib.sha256(len(content).to_bytes(8, "little") + content).hexdigest()


class GivenCalibration(Calibration):
    """The thresholds in a file that `write` wrote.

    Attributes:
        calibrated_on: the examples that they were calibrated on, in words.

    Args:
        classifier: the classifier.
        path: the file.
        combined_by: see `Calibration`.

    Raises:
        UserError: the file cannot be read, or is for another classifier.
    """

    def __init__(
        self, classifier: TrainedClassifier, path: Path, combined_by: str | None = None
    ) -> None:
        super().__init__(classifier, combined_by)
        try:
            content = json_files.read(path, _SHAPE, _WHAT)
        except OSError as error:
            raise UserError(f"--thresholds {path} cannot be read: {error.strerror}") from error
        except UserError as error:
            raise error.within("--thresholds: ") from error
        if content["parameters"] != parameters_digest(classifier.params):
            raise UserError(
                f"--thresholds {path} was calibrated for another classifier: its parameters differ"
            )
        classes = _digest(classifier.classes.names)
        if content.get("classes", classes) != classes:
            raise UserError(
                f"--thresholds {path} was calibrated for other classes, or for these in another "
                "order"
            )
        self._path = path
        self._given = plain(content["thresholds"])
        self.calibrated_on: str = content["calibrated_on"]

    def values(self, rule: str, after: str = "") -> list[float]:
        """The K of the average-K sets, the coverages, or the risks, that the file has limits for.

        Args:
            rule: "average", "coverage" or "risk", or "new_SCORE" for an outlier score.
            after: what follows the value in the names of these limits.
        """
        starts = self._full_name(f"{rule}_")
        found = (
            name.removeprefix(starts).removesuffix(after)
            for name in self._given
            if name.startswith(starts) and name.endswith(after)
        )
        return sorted(float(value) for value in found if "_" not in value)

    def _stored(
        self, name: str, find: Callable[[Predictions], _Found], *, is_list: bool = False
    ) -> _Found:
        del find
        name = self._full_name(name)
        if name not in self._given:
            raise UserError(
                f"--thresholds {self._path} has no threshold {name}; it has "
                f"{', '.join(self._given)}"
            )
        value: Any = self._given[name]
        if isinstance(value, list) != is_list:
            raise UserError(f"--thresholds {self._path}: {name} has thresholds of another kind")
        found: _Found = value
        return found
