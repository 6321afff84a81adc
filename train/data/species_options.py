"""What `synthetic_species` and `synthetic_latents` make of `config.dataset`."""

from typing import Any

from train.configuration.datasets import SpeciesFields


def law_arguments(fields: SpeciesFields) -> dict[str, Any]:
    """The arguments of `LatentSpecies`.

    Args:
        fields: `config.dataset`.
    """
    return {
        "num_classes": fields.num_classes,
        "num_genera": fields.num_genera,
        "ambiguity": fields.ambiguity,
        "long_tail_exponent": fields.long_tail_exponent,
        "seed": fields.data_seed,
    }
