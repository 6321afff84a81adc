"""Thresholds that are calibrated on the validation images, and stored in the workdir of a run."""

import contextlib
import json
import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from train.evaluation import thresholds
from train.evaluation.predictions import Predictions
from train.foundation import files
from train.foundation.errors import UserError
from train.prediction.trained import TrainedClassifier
from train.workdir import run_files


class Calibration:
    """The thresholds of a classifier, computed from its predictions for the validation images.

    Each threshold is computed once and stored in the workdir. A run that was copied to another
    machine therefore needs its data set only for thresholds that were not computed before. Of a
    published network, which has no workdir, nothing is stored.

    Args:
        classifier: the classifier.
    """

    def __init__(self, classifier: TrainedClassifier) -> None:
        self._classifier = classifier
        self._path = (
            None if classifier.workdir is None else classifier.workdir / run_files.CALIBRATION
        )

    def average_k(self, k: float) -> float:
        """The threshold whose sets have K classes on average over the validation images.

        Raises:
            UserError: it is not stored, and the data set is not on this machine.
        """
        return self._threshold(
            f"average_{float(k)}",
            lambda found: float(thresholds.average_k_threshold(found.scores, k)),
        )

    def conformal(self, coverage: float) -> float:
        """The threshold whose sets contain the label of a new image with at least this probability.

        Raises:
            UserError: it is not stored, and the data set is not on this machine or is too small.
        """
        return self._threshold(
            f"coverage_{coverage}", lambda found: thresholds.conformal_threshold(found, coverage)
        )

    def _threshold(self, name: str, find: Callable[[Predictions], float]) -> float:
        if self._path is None:
            return find(self._validation)
        stored = _read(self._path)
        if name not in stored:
            stored[name] = find(self._validation)
            if not math.isfinite(stored[name]):
                # JSON has no infinity. Such a threshold puts all classes in every set, or none.
                return stored[name]
            # Without permission to write, the threshold is computed again the next time.
            with contextlib.suppress(OSError):
                files.write_whole(self._path, files.to_json(stored, indent=1))
        return stored[name]

    @cached_property
    def _validation(self) -> Predictions:
        return self._classifier.predict("validation")


def _read(path: Path) -> dict[str, float]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); delete it") from error
    if not isinstance(stored, dict) or not all(
        isinstance(value, float) for value in stored.values()
    ):
        raise UserError(f"{path} is not a list of thresholds; delete it")
    return stored
