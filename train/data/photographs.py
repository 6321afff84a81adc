"""What the published data sets of photographs share."""

from typing import Any

from train.configuration.datasets import StreamedFields
from train.data.crops import ImageReader
from train.data.prepared_spec import PreparedSpec

# The mean and deviation of ImageNet's training images. Pretrained networks expect these for every
# data set.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
IMAGENET_ATTRIBUTION = (
    "ImageNet (https://www.image-net.org), for non-commercial research and education"
)
READER = ImageReader.published(224, 256)


def photograph_spec(fields: StreamedFields, **own: Any) -> PreparedSpec:
    """A data set of photographs.

    Args:
        fields: `config.dataset`.
        own: the attributes of `PreparedSpec` that are its own.
    """
    return PreparedSpec(
        name=fields.name,
        image_shape=READER.shape,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        reader=READER,
        **own,
    )
