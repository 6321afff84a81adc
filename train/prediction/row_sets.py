"""Sets and probabilities of the rows of a file of features."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data import grouping
from train.data.sources import features as feature_source
from train.data.sources.features import Arrays
from train.foundation.errors import UserError
from train.prediction import batching, class_sets, inference
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Scored
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

    @property
    def origin(self) -> dict[str, Any]:
        """The number of the row, and its name."""
        return {"row": self.row} if self.name is None else {"row": self.row, "name": self.name}

    @property
    def title(self) -> str:
        """The name of the row, or else its number."""
        return f"row {self.row}" if self.name is None else self.name


@dataclass(frozen=True)
class NamedRows:
    """Rows of features.

    Attributes:
        rows: their numbers in the file, [n].
        features: all features of the file, float16 or float32, [N, d].
        names: the names of all rows of the file; None if it does not have them.
        path: the file or the folder that they are read from.
        arrays: all arrays there.
        embedded_by: what `train.embed` knows of the network that made them, if it did.
    """

    rows: np.ndarray
    features: np.ndarray
    names: Sequence[str] | None
    path: Path
    arrays: Arrays
    embedded_by: Mapping[str, Any] | None = None
    described = "what --features is read from"

    @property
    def files(self) -> list[Path]:
        """The files that they are read from."""
        return list(self.path.glob("*.np[yz]")) if self.path.is_dir() else [self.path]

    def __len__(self) -> int:
        return len(self.rows)

    def check(self, classifier: TrainedClassifier) -> None:
        """Refuses a classifier that does not take the rows, and rows that no classifier takes.

        Raises:
            UserError: it takes no features or another number of them, or a feature is not finite.
        """
        classifier.check_takes("features")
        (expected,) = classifier.image_shape
        if self.features.shape[1] != expected:
            raise UserError(
                f"--features must have the {expected} features of the run; {self.path} has "
                f"{self.features.shape[1]}"
            )
        known, own = classifier.assembly.data.facts.embedded_by, self.embedded_by
        if known and own and known["parameters_digest"] != own["parameters_digest"]:
            raise UserError(
                f"--features {self.path} are of {own['network']} with other weights than the "
                f"{known['network']} that made the features of the run"
            )
        feature_source.check_finite(self.features, f"--features {self.path}")

    def take(self, places: np.ndarray) -> "NamedRows":
        """Some of the rows."""
        return dataclasses.replace(self, rows=self.rows[places])

    def make_sets(
        self, classifier: TrainedClassifier, rule: CalibratedRule, *, thumbnails: bool
    ) -> Iterator[RowSet]:
        """The set of each row, in their order.

        The batch size is 256, or less if there are fewer rows. The last bits of a probability may
        depend on it, and on the place of the row in its batch.

        Args:
            classifier: the classifier.
            rule: the rule that makes the sets.
            thumbnails: not used, because rows have none.
        """
        del thumbnails
        inputs = self._batches([np.arange(len(self))])
        for rows, probabilities, answer in inference.infer_batches(classifier, rule, inputs):
            for index, row in enumerate(rows):
                yield RowSet(
                    row=row,
                    name=None if self.names is None else self.names[row],
                    **class_sets.members(probabilities[index], answer, index, rule),
                )

    def score(
        self, classifier: TrainedClassifier, orders: Sequence[np.ndarray], thumbnails: np.ndarray
    ) -> Iterator[Scored]:
        """The probabilities of the rows at some indices, in their order.

        Args:
            classifier: the classifier.
            orders: the indices; each array starts a new batch.
            thumbnails: not used, because rows have none.
        """
        del thumbnails
        inputs = self._batches(orders)
        for rows, probabilities in inference.infer_scores(classifier, inputs):
            yield from map(Scored, probabilities[: len(rows)])

    def inputs(
        self, classifier: TrainedClassifier, sets: Sequence[ClassSet]
    ) -> list[np.ndarray | None]:
        """The row of each set."""
        del classifier
        rows = np.array([one.row for one in sets if isinstance(one, RowSet)], np.int64)
        return [*self.features[rows].astype(np.float32)]

    def find_groups(self, grammar: str) -> np.ndarray:
        """The group of each row: an array of the file, or by `grouping` in the names.

        Raises:
            UserError: there is no such array, and the rows have no names; or the grammar is wrong,
                or finds no group.
        """
        given = self.arrays.texts(grammar, len(self.features))
        if given is not None:
            return given
        has = ", ".join(self.arrays.names)
        if self.names is None:
            raise UserError(
                field="--group",
                must_be=f"an array of {self.path}, which has no names to search: {has}",
                got=grammar,
            )
        try:
            return grouping.find(grammar, self.names, field="--group", may_be_one=True)
        except UserError as error:
            raise error.within(after=f"; {self.path} has the arrays {has}") from error

    def describe(self, indices: Sequence[int]) -> dict[str, Any]:
        """Some rows, as fields of a line of JSON."""
        rows = self.rows[list(indices)].tolist()
        if self.names is None:
            return {"rows": rows}
        return {"rows": rows, "example_names": [self.names[row] for row in rows]}

    def _batches(self, orders: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
        """The numbers of the rows of each batch, and these rows with zeros up to its size."""
        size = batching.batch_size(len(self), _LARGEST_BATCH)
        for places in batching.divided(orders, size):
            rows = self.rows[places]
            # Float32 for every file, so that the program is the exported one.
            batch = np.zeros((size, self.features.shape[1]), np.float32)
            batch[: len(rows)] = self.features[rows]
            yield rows.tolist(), batch


def read(named: str) -> NamedRows:
    """The rows of the file, or the folder, that --features names.

    Raises:
        UserError: it cannot be read, or its features have another form.
    """
    if not named:
        raise UserError("--features must name a file or a folder; it is empty")
    path = Path(named)
    found = feature_source.find(path, labelled=False, field="--features")
    arrays = feature_source.arrays(path, "--features")
    names = None if found.names is None else found.names.tolist()
    embedded_by = feature_source.embedded_by(arrays)
    return NamedRows(found.places, found.array, names, path, arrays, embedded_by)
