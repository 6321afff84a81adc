"""What the data sets of photographs share: large images, decoded on their way to the device."""

from typing import Any

from train.data import images
from train.data.dataset import DatasetSpec


def photograph_spec(**own: Any) -> DatasetSpec:
    """A data set of photographs, from the attributes of `DatasetSpec` that are its own."""
    return DatasetSpec(
        image_shape=(images.CROP, images.CROP, 3),
        # Of ImageNet's training images, which pretrained networks expect for every data set.
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        streamed=True,
        **own,
    )
