"""Fields of `config.dataset` that several data sets have."""

from collections.abc import Mapping
from typing import Any

from train.data.label_noise import GROUPINGS, LabelNoise
from train.foundation import fields

# The number of training examples that are used; None for all.
TRAIN_SIZE = {"train_size": fields.optional(fields.integer(1))}

# The training examples of the largest class for one of the smallest; 1 for classes as they are.
IMBALANCE_FACTOR = {"imbalance_factor": fields.Number(at_least=1)}

# The number of examples held out of the prepared training split.
VALIDATION_SIZE = {"validation_size": fields.integer(1)}

# How streamed images are read.
STREAMED = {
    # The number of processes that decode; with 0, threads of the program's own process decode.
    "num_workers": fields.integer(0, 256),
    # Whether an image that cannot be decoded is left out and counted; otherwise it stops the run.
    "skip_unreadable": fields.boolean(),
}

LABEL_NOISE: dict[str, fields.Field] = {
    "label_noise": fields.Number(at_least=0, at_most=1),
    "label_noise_kind": fields.one_of(("superclass", *GROUPINGS)),
}


def label_noise_of(options: Mapping[str, Any], superclasses: tuple[int, ...]) -> LabelNoise | None:
    """The label noise that `config.dataset` asks for.

    Args:
        options: the fields of `config.dataset`.
        superclasses: the superclass of each class.
    """
    probability, kind = options["label_noise"], options["label_noise_kind"]
    if probability == 0:
        return None
    if kind == "superclass":
        return LabelNoise(probability, superclasses)
    return LabelNoise(probability, GROUPINGS[kind](len(superclasses)))
