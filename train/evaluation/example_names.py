"""The names that examples have in reports."""

import dataclasses

import numpy as np

from train.data.records import Rows, Split
from train.evaluation.predictions import Predictions


def named(examples: Predictions, split: Split) -> Predictions:
    """The predictions with a name for each example.

    A row of features without a name is "row N". Other examples keep what they have; see
    `Predictions.names_or_numbers`.

    Args:
        examples: the predictions for some examples of the split.
        split: the split.
    """
    rows, indices = split.images, examples.indices
    if examples.names is not None or indices is None or not isinstance(rows, Rows):
        return examples
    names = np.array([f"row {place}" for place in rows.indices[indices].tolist()], object)
    return dataclasses.replace(examples, names=names)
