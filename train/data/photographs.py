"""What the published data sets of photographs share."""

from typing import Any

from train.configuration.datasets import StreamedFields
from train.data import decoding, images
from train.data.photograph_reader import PhotographReader
from train.data.prepared_spec import PreparedSpec

# Of ImageNet's training images, which pretrained networks expect for every data set.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def photograph_spec(fields: StreamedFields, **own: Any) -> PreparedSpec:
    """A data set of photographs.

    Args:
        fields: `config.dataset`.
        own: the attributes of `PreparedSpec` that are its own.
    """
    shape = (images.CROP, images.CROP, 3)
    return PreparedSpec(
        name=fields.name,
        image_shape=shape,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        reader=decoding.chosen(fields.decoding, PhotographReader, _fast)(shape),
        **own,
    )


def _fast() -> type[PhotographReader]:
    from train.data.fast_photographs import FastPhotographReader  # noqa: PLC0415

    return FastPhotographReader
