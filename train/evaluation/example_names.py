"""The names that examples have in reports."""

import dataclasses

import numpy as np

from train.data import records
from train.data.records import Rows, Split
from train.evaluation.predictions import Predictions


def named(examples: Predictions, split: Split, inputs: str) -> Predictions:
    """The predictions with a name for each example.

    An example of a data set without names is "row N" of its features, or a name itself if examples
    are names. Other examples keep what they have; see `Predictions.names_or_numbers`.

    Args:
        examples: the predictions for some examples of the split.
        split: the split.
        inputs: what its examples are; see `DatasetSpec.inputs`.
    """
    if examples.names is not None or examples.indices is None:
        return examples
    if inputs == "names":
        assert not isinstance(split.images, records.Records)
        rows = records.gather(split.images, examples.indices)
        characters = np.ascontiguousarray(rows, np.int32)
        names = characters.view(f"=U{characters.shape[1]}").ravel().astype(object)
    elif isinstance(split.images, Rows):
        places = split.images.indices[examples.indices].tolist()
        names = np.array([f"row {place}" for place in places], object)
    else:
        return examples
    return dataclasses.replace(examples, names=names)
