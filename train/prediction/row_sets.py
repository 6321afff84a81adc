"""Sets of classes for the rows of a file of features."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from train.data.own import feature_columns, feature_files
from train.foundation.errors import UserError
from train.prediction import class_sets, inference
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet
from train.prediction.trained import TrainedClassifier

_LARGEST_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class RowSet(ClassSet):
    """The set of a row of features.

    Attributes:
        row: the number of the row, from 0.
        name: the name of the row, if the file has names.
    """

    row: int
    name: str | None


@dataclass(frozen=True)
class NamedRows:
    """Rows of features.

    Attributes:
        features: float16 or float32, [n, d].
        names: of the rows; None where the file has none.
        path: the file or the folder that they are read from.
    """

    features: np.ndarray
    names: Sequence[str] | None
    path: Path

    @property
    def files(self) -> list[Path]:
        """The files that they are read from."""
        return list(self.path.glob("*.npy")) if self.path.is_dir() else [self.path]


def read(named: str) -> NamedRows:
    """The rows of the file, or the folder, that --features names.

    Raises:
        UserError: it cannot be read, or its features have another form.
    """
    if not named:
        raise UserError("--features must name a file or a folder; it is empty")
    path = Path(named)
    arrays = feature_files.find(path, "--features")
    features = feature_files.read_features(arrays)
    names = feature_files.read_texts(arrays, "names", len(features))
    return NamedRows(features, names, path)


def check(rows: NamedRows, classifier: TrainedClassifier) -> None:
    """Refuses rows that the classifier cannot take.

    Raises:
        UserError: they have another number of features than those of its training, or a feature is
            not finite.
    """
    (expected,) = classifier.image_shape
    if rows.features.shape[1] != expected:
        raise UserError(
            f"--features must have the {expected} features of the run; {rows.path} has "
            f"{rows.features.shape[1]}"
        )
    feature_columns.check_finite(rows.features, f"--features {rows.path}")


def make_sets(
    classifier: TrainedClassifier, rule: CalibratedRule, rows: NamedRows
) -> Iterator[RowSet]:
    """The set of each row, in their order.

    The batch size is 256, or less if there are fewer rows. The last bits of a probability may
    depend on it.
    """
    number, width = rows.features.shape
    # If there are few rows: the smallest power of two that holds all.
    batch_size = min(_LARGEST_BATCH, 1 << (number - 1).bit_length())
    infer = jax.jit(inference.make(classifier, rule))
    # While the device computes one batch, the previous is yielded.
    running: deque[tuple[int, tuple[jax.Array, jax.Array]]] = deque()
    for start in range(0, number, batch_size):
        part = rows.features[start : start + batch_size]
        # Float32 for every file, so that the program is the exported one.
        batch = np.zeros((batch_size, width), np.float32)
        batch[: len(part)] = part
        running.append((start, infer(batch)))
        if len(running) > 1:
            yield from _finished(*running.popleft(), rows.names, number)
    for started in running:
        yield from _finished(*started, rows.names, number)


def _finished(
    start: int,
    outputs: tuple[jax.Array, jax.Array],
    names: Sequence[str] | None,
    number: int,
) -> Iterator[RowSet]:
    probabilities, chosen = (np.asarray(output) for output in outputs)
    for index, row in enumerate(range(start, min(start + len(chosen), number))):
        yield RowSet(
            row=row,
            name=None if names is None else names[row],
            **class_sets.members(probabilities[index], chosen[index]),
        )
