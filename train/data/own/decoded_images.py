"""Small images that are decoded once, and then kept as they were decoded.

To read and decode an image of 32 x 32 pixels takes a third of the time that the network
`strided_cnn` takes to train on it, and every epoch would decode all of them again.
"""

import io
from typing import Any, BinaryIO

from typing_extensions import override

from train.data.crops import ImageReader
from train.data.images import UnreadableImageError
from train.data.own.encoded_images import EncodedImages

# The bytes of all pixels of a source that is kept; the headers add a few in a hundred.
_MOST_BYTES = 2**30


class DecodedImages(EncodedImages):
    """The examples of a source, each as an image file without compression once it was read.

    The file is a BMP file of the upright image in RGB: whoever reads the example gets the pixels
    that the original has. Processes that decode get the source itself, as each of them would keep
    all images.
    """

    def __init__(self, source: EncodedImages, reader: ImageReader) -> None:
        """Nothing is read yet.

        Args:
            source: the examples, as `Records` takes them.
            reader: decodes them; images of its size are kept, and there may be others.
        """
        self._source = source
        self._reader = reader
        self._kept: list[bytes | None] = [None] * len(source)

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process gets."""
        return _itself, (self._source,)

    def __len__(self) -> int:
        """The number of examples."""
        return len(self._source)

    @override
    def name(self, index: int) -> str:
        return self._source.name(index)

    @override
    def read(self, index: int) -> bytes:
        """An image; one that cannot be decoded, or has another size, is as it is in the source."""
        kept = self._kept[index]
        if kept is not None:
            return kept
        encoded = self._source.read(index)
        try:
            image = self._reader.decode(encoded, "")
        except UnreadableImageError:
            return encoded
        if image.size != self._reader.fit.size:
            return encoded
        # Two threads may read the same image, and keep the same.
        file = io.BytesIO()
        # The format without compression that Pillow opens first.
        image.save(file, "BMP")
        kept = self._kept[index] = file.getvalue()
        return kept

    @override
    def open(self, index: int) -> BinaryIO:
        """An image as a file, as it is in the source."""
        return self._source.open(index)


def kept(source: EncodedImages, reader: ImageReader) -> EncodedImages:
    """The source, decoded once if all its images fit into memory.

    Args:
        source: the examples, as `Records` takes them.
        reader: see `DecodedImages`.
    """
    height, width, _ = reader.shape
    if len(source) * height * width * 3 > _MOST_BYTES:
        return source
    return DecodedImages(source, reader)


def _itself(source: EncodedImages) -> EncodedImages:
    return source
