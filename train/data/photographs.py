"""What the published data sets of photographs share."""

from typing import Any

from train.configuration.datasets import StreamedFields
from train.data import image_reader
from train.data.framing import PublishedFraming
from train.data.image_reader import ImageReader
from train.data.prepared_spec import PreparedSpec

# The mean and deviation of ImageNet's training images. Pretrained networks expect these for every
# data set.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# The shorter side after resizing.
SHORTER_SIDE = 256
IMAGENET_ATTRIBUTION = (
    "ImageNet (https://www.image-net.org), for non-commercial research and education"
)
# The height and width of a crop.
CROP = 224


def photograph_spec(fields: StreamedFields, **own: Any) -> PreparedSpec:
    """A data set of photographs.

    Args:
        fields: `config.dataset`.
        own: the attributes of `PreparedSpec` that are its own.
    """
    reader = reader_of(fields.decoding)
    return PreparedSpec(
        name=fields.name,
        image_shape=reader.shape,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        reader=reader,
        **own,
    )


def reader_of(decoding: str) -> ImageReader:
    """How photographs become pixels, by the value of `config.dataset.decoding`.

    The EXIF orientation is not applied: torchvision's `ImageFolder`, which gave the published
    results, does not apply it either.
    """
    framing = PublishedFraming((CROP, CROP, 3), SHORTER_SIDE)
    return ImageReader(framing, upright=False, kind=image_reader.kind_of(decoding))
