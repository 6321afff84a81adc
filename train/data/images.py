"""Opens and decodes image files; whatever is wrong with one is told in one line."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image, UnidentifiedImageError

from train.data import steps
from train.foundation.errors import UserError, first_line

FORMATS, opened = steps.FORMATS, steps.opened
DECODE: steps.Step = {"step": "decode", "mode": "RGB"}
ORIENT: steps.Step = {"step": "orient"}


class UnreadableImageError(UserError):
    """A file that is not an image, or not all of one."""


def decode(
    encoded: bytes | Image.Image, name: str, by: Sequence[steps.Step] = (DECODE, ORIENT)
) -> Image.Image:
    """The image in RGB, without its transparency; of values of 16 bits the high eight.

    Args:
        encoded: the bytes of a file, or what `opened` returned for it.
        name: its name in messages.
        by: the steps that decode it; see `steps`.

    Raises:
        UnreadableImageError: it is not an image, or not all of one.
    """
    with told(name):
        return steps.run(encoded, by)


@contextlib.contextmanager
def told(name: str) -> Iterator[Any]:
    """Turns whatever is raised inside into an `UnreadableImageError` with the name of the image."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"{name} is not an image") from error
    except Exception as error:  # Whatever a damaged file makes Pillow's many readers raise.
        raise UnreadableImageError(f"cannot decode {name}: {first_line(error)}") from error
