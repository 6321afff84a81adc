"""From the bytes of an image file to the pixels that the network gets."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFile

from train.data import images
from train.data.framing import Framing
from train.data.images import DecodeOptions
from train.data.pictures import Picture, PillowPicture
from train.foundation import packages
from train.foundation.errors import UserError
from train.foundation.spelling import spell


@dataclass(frozen=True)
class ImageReader:
    """The steps by which an image file becomes pixels, in training, evaluation and prediction.

    1. The file is decoded, to eight bits a channel and RGB; see `images.decode`.
    2. The image is rotated as its EXIF orientation says.
    3. A part of it is resized and cropped. Training may draw which part, and change it further.
    4. It becomes grey, for a network that gets one channel.

    The device then normalizes what it gets; see `augmentation.normalize`. A reader is sent to the
    processes that decode.

    Attributes:
        framing: which part of the image becomes the pixels.
        upright: whether images are rotated.
        options: what is made of images that are not opaque, or not complete.
        kind: the package that resizes, and may decode.
    """

    framing: Framing
    upright: bool = True
    options: DecodeOptions = images.USUAL
    kind: type[Picture] = PillowPicture

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the pixels."""
        return self.framing.shape

    @property
    def decoding(self) -> str:
        """The value of `config.dataset.decoding` for the packages that resize."""
        return "exact" if issubclass(self.kind, PillowPicture) else "fast"

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """The pixels of a training image, uint8, changed at random.

        Args:
            encoded: the bytes of its file.
            name: its name in messages.
            draws: numbers in [0, 1), as many as `framing.num_draws`.

        Raises:
            UnreadableImageError: it is not an image, or not all of one, or it is too long and
                narrow to be resized.
        """
        picture = self._opened(encoded, name)
        return self._pixels(self.framing.drawn(picture, draws))

    def for_evaluation(
        self, encoded: bytes, name: str, header: ImageFile.ImageFile | None = None
    ) -> np.ndarray:
        """The pixels of an image, uint8; other arguments and errors are as in `for_training`.

        Args:
            encoded: the bytes of its file.
            name: its name in messages.
            header: see `image_opening.loaded`.
        """
        return self._central(self._opened(encoded, name, header))

    def corners_and_middle(self, encoded: bytes, name: str) -> np.ndarray:
        """The pixels of five crops, uint8 [5, height, width, channels]; see `ten_crops`.

        The last is what `for_evaluation` gives; arguments and errors are as in `for_training`.
        """
        crops = self.framing.corners_and_middle(self._opened(encoded, name))
        return np.stack([self._pixels(crop) for crop in crops])

    def decode(
        self, encoded: bytes, name: str, header: ImageFile.ImageFile | None = None
    ) -> Image.Image:
        """The image in RGB, upright if the reader is; the arguments are as in `for_evaluation`.

        Raises:
            UnreadableImageError: it is not an image, or not all of one.
        """
        image = images.decode(encoded, name, self.options, header)
        return images.turned_upright(image) if self.upright else image

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """The pixels of an image that `decode` gave, as `for_evaluation` makes them.

        Raises:
            UnreadableImageError: it is too long and narrow to be resized.
        """
        return self._central(self._checked(self.kind.of(image), name))

    def _opened(
        self, encoded: bytes, name: str, header: ImageFile.ImageFile | None = None
    ) -> Picture:
        picture = self.kind.of_file(encoded, upright=self.upright)
        if picture is None:
            picture = self.kind.of(self.decode(encoded, name, header))
        return self._checked(picture, name)

    def _checked(self, picture: Picture, name: str) -> Picture:
        images.check_resizable(picture.size, self.framing.shorter_side, name)
        return picture

    def _central(self, picture: Picture) -> np.ndarray:
        return self._pixels(picture.cut(self.framing.fit(picture.size)))

    def _pixels(self, image: Image.Image) -> np.ndarray:
        if self.shape[-1] == 1:
            image = image.convert("L")
        return np.asarray(image).reshape(self.shape)


def kind_of(decoding: str) -> type[Picture]:
    """The packages that `config.dataset.decoding` asks for.

    Raises:
        UserError: one of them is not installed.
    """
    if decoding == "exact":
        return PillowPicture
    try:
        from train.data.fast_images import FastPicture  # noqa: PLC0415
    except ModuleNotFoundError as error:
        field = spell("config.dataset.decoding='fast'")
        raise UserError(packages.missing(field, str(error.name), "fast-images")) from error
    return FastPicture
