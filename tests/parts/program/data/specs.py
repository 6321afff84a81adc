"""Data sets of the fields that a test gives."""

from collections.abc import Mapping
from typing import Any

from train import data
from train.data import DatasetSpec


def dataset_spec(fields: Mapping[str, Any]) -> DatasetSpec:
    """The data set of `config.dataset`, whose batches no test of it makes."""
    return data.read({"batch_size": 1, **fields})
