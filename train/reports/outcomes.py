"""Which examples of a split have their label in a set: one file of a run for each test split."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.data.truths import Truths
from train.foundation import files
from train.foundation.errors import UserError, first_line
from train.reports.metric import Metric

# The first attributes, in their order.
_IN_FILES = ("labels", "ranks", "average_ks", "in_average_sets", "average_set_sizes")


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of the examples of a split; accuracies are their means.

    Attributes:
        labels: the class of each example, int32 [n].
        ranks: how many classes come before the label, int32 [n]. A rank of 0 is a top-1 hit.
        average_ks: the K of the average-K sets, int32 [m].
        in_average_sets: whether each of these sets has the label, bool [m, n]; if the truth is more
            than one class, the share of the truth that it has, float64.
        average_set_sizes: how many classes each of these sets has, int32 [m, n].
        truths: what the labels stand for, [n], if the truth of an example is more than one class;
            else None. They are not in the file.
        class_ranks: the ranks of all classes of the truths, [n, m].
    """

    labels: np.ndarray
    ranks: np.ndarray
    average_ks: np.ndarray
    in_average_sets: np.ndarray
    average_set_sizes: np.ndarray
    truths: Truths | None = None
    class_ranks: np.ndarray | None = None

    @property
    def counted_labels(self) -> np.ndarray:
        """The labels [v] that reports count: all classes of an example whose truth is several."""
        return self.labels if self.truths is None else self.truths.entries()

    @property
    def are_of_labels(self) -> bool:
        """Whether the truth of each example is only its label."""
        return self.in_average_sets.dtype.kind == "b"

    @classmethod
    def read(cls, path: Path) -> "Outcomes":
        """The outcomes in a file of a run.

        Raises:
            UserError: there is no such file, or it is damaged.
        """
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
                return cls(*(arrays[name] for name in _IN_FILES))
        except FileNotFoundError as error:
            raise UserError(
                f"there is no {path}: the run is not finished, or is of an earlier version. "
                "To write it, delete results.json and repeat the command of the run"
            ) from error
        except Exception as error:  # A damaged or another file can raise any of these.
            raise UserError(f"{path} has no outcomes of a split: {first_line(error)}") from error

    def write(self, path: Path) -> None:
        """Writes them as an .npz file, with one array for each attribute."""
        content = io.BytesIO()
        arrays = {name: getattr(self, name) for name in _IN_FILES}
        np.savez_compressed(content, **arrays)
        files.write_whole(path, content.getvalue())

    def hits(self, metric: Metric) -> np.ndarray:
        """Whether the sets of an accuracy have the label, bool [n].

        They are of all examples, whatever the mean of the metric is over.

        Raises:
            UserError: the run was not evaluated with this K.
        """
        assert metric.k is not None
        if metric.rule == "top":
            if self.truths is not None and self.class_ranks is not None:
                return self.truths.mean(self.class_ranks < metric.k)
            hits: np.ndarray = self.ranks < metric.k
            return hits
        found: np.ndarray = self.in_average_sets[self._row(metric.k)]
        return found

    def sizes(self, k: int) -> np.ndarray:
        """The numbers of classes of the average-K sets, int32 [n].

        Raises:
            UserError: the run was not evaluated with this K.
        """
        found: np.ndarray = self.average_set_sizes[self._row(k)]
        return found

    def _row(self, k: int) -> int:
        rows = np.flatnonzero(self.average_ks == k)
        if not rows.size:
            had = ", ".join(map(str, self.average_ks))
            raise UserError(f"average_{k} needs {k} in config.eval.ks; the run has {had}")
        return int(rows[0])
