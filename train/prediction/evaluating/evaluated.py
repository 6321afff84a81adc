"""What train.evaluate has evaluated, and its examples in tables and on a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data.examples import Examples
from train.evaluation import example_sets, metric
from train.evaluation.example_table import ExampleTable
from train.evaluation.predictions import Predictions
from train.evaluation.summaries import Sets
from train.prediction import error_page, example_thumbnails

_PAGE = ".html"


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What was evaluated, to be shown and written.

    Attributes:
        title: what it is.
        report: the report.
        examples: the predictions for the examples that are evaluated.
        class_names: the names of the classes, with those that are not known.
        class_counts: the training images of each class; None if they are not known.
        sets: the sets of a program; None for those that the report has thresholds of.
        split: the examples; None for scores from a file.
        inputs: what the examples are, as `DatasetSpec.inputs`; "examples" if that is not known.
        unreadable: why each image that cannot be read is not there.
    """

    title: str
    report: dict[str, Any]
    examples: Predictions
    class_names: Sequence[str]
    class_counts: np.ndarray | None
    sets: Sets | None = None
    split: Examples | None = None
    inputs: str = "examples"
    unreadable: tuple[str, ...] = ()

    def write_examples(self, path: Path) -> dict[str, Path]:
        """Writes the tables of the examples, and their page if the file is one.

        Returns:
            The files, by what they have.
        """
        metrics = metric.from_json(self.report["metrics"])
        ks = sorted({one.k for one in metrics if one.rule == "top" and one.k is not None})
        sets, in_words = self._sets(max(ks))
        table = ExampleTable.of(self.examples, sets, self.class_names, ks)
        written = table.write(path)
        if path.suffix != _PAGE:
            return written
        thumbnail = credit = None
        if self.split is not None:
            credit = self.split.credit
            thumbnail = example_thumbnails.of_split(self.split, self.inputs)
        example = self.inputs.removesuffix("s")
        facts = error_page.ErrorPageFacts(
            self.title, in_words, example, written, self.unreadable, credit
        )
        error_page.write(path, table, facts, thumbnail)
        return {**written, "page of errors": path}

    def _sets(self, k: int) -> tuple[Sets, str]:
        """The sets of the examples, and their rule in words."""
        if self.sets is None:
            return example_sets.of_report(self.report, self.examples, k)
        return self.sets, f"The sets are those of the program: {self.report['sets']['rule']}."
