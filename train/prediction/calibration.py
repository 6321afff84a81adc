"""Thresholds that are calibrated on a run's validation images, and kept beside the run."""

import contextlib
import json
import math
from collections.abc import Callable
from functools import cached_property

from train.evaluation import thresholds
from train.evaluation.predictions import Predictions
from train.foundation import files
from train.foundation.errors import UserError
from train.prediction.trained import TrainedClassifier

# In the workdir.
_FILE = "calibration.json"


class Calibration:
    """The thresholds of a classifier, from what it says of its validation images.

    Each is found once and kept in the workdir, so that a run that is taken to another machine needs
    its data set for a threshold that was not asked for before, and for no other.

    Args:
        classifier: the classifier.
    """

    def __init__(self, classifier: TrainedClassifier) -> None:
        self._classifier = classifier
        self._path = classifier.workdir / _FILE

    def average_k(self, k: float) -> float:
        """The threshold whose sets have K classes on average over the validation images.

        Raises:
            UserError: it is not kept, and the data set is not here.
        """
        return self._threshold(
            f"average_{float(k)}",
            lambda found: float(thresholds.average_k_threshold(found.scores, k)),
        )

    def conformal(self, coverage: float) -> float:
        """The threshold whose sets have the label of a new image with at least that probability.

        Raises:
            UserError: it is not kept, and the data set is not here or too small.
        """
        return self._threshold(
            f"coverage_{coverage}", lambda found: thresholds.conformal_threshold(found, coverage)
        )

    def _threshold(self, name: str, find: Callable[[Predictions], float]) -> float:
        kept = self._read()
        if name not in kept:
            kept[name] = find(self._validation)
            if not math.isfinite(kept[name]):
                # JSON has no such numbers. It is all classes in every set, or none.
                return kept[name]
            # A folder that may not be written to costs time, not the answer.
            with contextlib.suppress(OSError):
                files.write_whole(self._path, files.to_json(kept, indent=1))
        return kept[name]

    def _read(self) -> dict[str, float]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise UserError(f"{self._path} is damaged ({error}); delete it") from error
        if not isinstance(kept, dict) or not all(
            isinstance(value, float) for value in kept.values()
        ):
            raise UserError(f"{self._path} is not a list of thresholds; delete it")
        return kept

    @cached_property
    def _validation(self) -> Predictions:
        return self._classifier.predict("validation")
