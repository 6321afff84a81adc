"""Fields of `config.dataset` that `synthetic_species` and `synthetic_latents` share."""

from collections.abc import Mapping
from typing import Any

from train.foundation import fields

# More do not fit into the memory of a host: a class has a name, a count and a prior there.
MOST_CLASSES = 10**8

# Of any machine. What fits into the memory of this one is known when the examples are made.
MOST_EXAMPLES = 10**15

SIZES = {
    name: fields.integer(1, MOST_EXAMPLES) for name in ("num_train", "num_validation", "num_test")
}

OPTIONS: dict[str, fields.Field] = {
    "num_classes": fields.integer(2, MOST_CLASSES),
    "num_genera": fields.integer(1),
    "ambiguity": fields.Number(above=0),
    "long_tail_exponent": fields.Number(at_least=0),
    # Of the data set, not of the run.
    "data_seed": fields.integer(0, 2**32 - 1),
    **SIZES,
}


def law_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `LatentSpecies`.

    Args:
        options: the fields of `config.dataset`.
    """
    names = ("num_classes", "num_genera", "ambiguity", "long_tail_exponent")
    return {name: options[name] for name in names} | {"seed": options["data_seed"]}
