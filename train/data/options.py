"""Fields of `config.dataset` that several data sets have."""

from collections.abc import Mapping
from typing import Any

from train.data import label_noise
from train.data.label_noise import LabelNoise
from train.foundation import fields

# The number of training examples that are used; None for all.
TRAIN_SIZE = {"train_size": fields.optional(fields.integer(1))}

# The number of examples held out of the prepared training split.
VALIDATION_SIZE = {"validation_size": fields.integer(1)}

# How streamed images are read.
STREAMED = {
    # The number of processes that decode; with 0, threads of the program's own process decode.
    "num_workers": fields.integer(0),
    # Whether an image that cannot be decoded is left out and counted; otherwise it stops the run.
    "skip_unreadable": fields.boolean(),
}

LABEL_NOISE: dict[str, fields.Field] = {
    "label_noise": fields.Number(at_least=0, at_most=1),
    "label_noise_kind": fields.one_of(("superclass", "blocks")),
}


def label_noise_of(options: Mapping[str, Any], superclasses: tuple[int, ...]) -> LabelNoise | None:
    """The label noise that `config.dataset` asks for.

    Args:
        options: the fields of `config.dataset`.
        superclasses: the superclass of each class.
    """
    if options["label_noise"] == 0:
        return None
    if options["label_noise_kind"] == "superclass":
        return LabelNoise(options["label_noise"], superclasses)
    return LabelNoise(options["label_noise"], label_noise.blocks(len(superclasses)))
