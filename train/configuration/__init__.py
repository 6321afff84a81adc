"""The fields of a configuration, each declared once, and the parse that checks all of them."""

from train.configuration.datasets import FIELDS_OF, DatasetFields
from train.configuration.groups import (
    CheckpointFields,
    Config,
    EvaluationFields,
    LossFields,
    ModelFields,
    OptimizerFields,
)

__all__ = [
    "FIELDS_OF",
    "CheckpointFields",
    "Config",
    "DatasetFields",
    "EvaluationFields",
    "LossFields",
    "ModelFields",
    "OptimizerFields",
]
