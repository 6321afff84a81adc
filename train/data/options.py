"""Label noise as `config.dataset` has it."""

from train.configuration.datasets import GroupedFields
from train.data.label_noise import GROUPINGS, LabelNoise


def label_noise_of(fields: GroupedFields, superclasses: tuple[int, ...]) -> LabelNoise | None:
    """The label noise that `config.dataset` asks for.

    Args:
        fields: `config.dataset`.
        superclasses: the superclass of each class.
    """
    if fields.label_noise == 0:
        return None
    if fields.label_noise_kind == "superclass":
        return LabelNoise(fields.label_noise, superclasses)
    return LabelNoise(fields.label_noise, GROUPINGS[fields.label_noise_kind](len(superclasses)))
