"""From the body of a request to the arrays that the program takes."""

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import ImageFile

from train.classifiers.classifier import Classifier
from train.data.crops import ImageReader
from train.data.images import UnreadableImageError
from train.serving import json_bodies, multipart, served_images
from train.serving.limits import MOST_EXAMPLES, Limits, RefusalError

JSON = "application/json"
FORM = "multipart/form-data"


@dataclass(frozen=True)
class Parsed:
    """The examples of a request as they have come.

    Attributes:
        examples: files of images, or lists of numbers.
        headers: of the images.
        pixels: of all images together.
    """

    examples: list[Any]
    headers: Sequence[ImageFile.ImageFile] = ()
    pixels: int = 0


@dataclass(frozen=True)
class RequestReader:
    """Reads the examples of requests.

    Attributes:
        classifier: the program.
        limits: the limits of requests.
    """

    classifier: Classifier
    limits: Limits

    def check_type(self, content_type: str, encoding: str) -> None:
        """Refuses a body by its headers, before it is read.

        Raises:
            RefusalError: the body has another type, or is compressed.
        """
        taken = (JSON, FORM) if self.classifier.inputs == "images" else (JSON,)
        if _media_type(content_type) not in taken:
            raise RefusalError(415, f"the Content-Type must be {' or '.join(taken)}")
        if encoding not in ("", "identity"):
            raise RefusalError(415, "a body with a Content-Encoding is not read")

    def parse(self, content_type: str, body: bytes) -> Parsed:
        """The examples, which are not decoded yet.

        Args:
            content_type: the header.
            body: the bytes.

        Raises:
            RefusalError: the body is not what is expected, or has too large images.
        """
        examples = self._examples(content_type, body)
        if not examples:
            raise RefusalError(400, f"the request has no {self.classifier.inputs}")
        if self.classifier.reader is None:
            return Parsed(examples)
        headers, left = [], self.limits.pixels
        for encoded, name in zip(examples, _names_of(examples), strict=True):
            header, pixels = served_images.read_header(encoded, self.classifier.reader, name, left)
            headers.append(header)
            left -= pixels
        return Parsed(examples, headers, self.limits.pixels - left)

    def decode(self, parsed: Parsed, until: float) -> list[np.ndarray]:
        """The examples, each as the program takes it.

        Args:
            parsed: what has come.
            until: the time of `time.monotonic` after which nobody waits for them.

        Raises:
            RefusalError: one of them is not what is expected.
            TimeoutError: it is later.
        """
        if self.classifier.reader is not None:
            return self._pixels(parsed, self.classifier.reader, until)
        return [self._row(one, f"example {index}") for index, one in enumerate(parsed.examples)]

    def _examples(self, content_type: str, body: bytes) -> list[Any]:
        if _media_type(content_type) == FORM:
            return multipart.read_files(content_type, body)
        inputs = self.classifier.inputs
        each = 1 if inputs == "images" else self.classifier.shape[0] + 2
        examples = json_bodies.read_list(body, inputs, most_values=MOST_EXAMPLES * each)
        return [_decode(one) for one in examples] if inputs == "images" else examples

    def _pixels(self, parsed: Parsed, reader: ImageReader, until: float) -> list[np.ndarray]:
        names, pixels = _names_of(parsed.examples), []
        for name, header in zip(names, parsed.headers, strict=True):
            if time.monotonic() > until:
                raise TimeoutError
            try:
                pixels.append(reader.for_evaluation(header, name))
            except UnreadableImageError as error:
                raise RefusalError(422, str(error)) from error
        return pixels

    def _row(self, example: Any, name: str) -> np.ndarray:
        (number,) = self.classifier.shape
        wrong = RefusalError(422, f"{name} must be a list of {number} finite numbers")
        if not isinstance(example, list) or len(example) != number:
            raise wrong
        # NumPy would also make numbers of texts, and JAX of truth values.
        if not all(type(value) in (int, float) for value in example):
            raise wrong
        try:
            with np.errstate(over="ignore"):
                features = np.array(example, np.float64).astype(np.float32)
        except OverflowError as error:
            raise wrong from error
        if not np.isfinite(features).all():
            raise wrong
        return features


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _names_of(images: list[bytes]) -> list[str]:
    """What messages call the images of a request."""
    if len(images) == 1:
        return ["the image"]
    return [f"image {index}" for index in range(len(images))]


def _decode(example: Any) -> bytes:
    if not isinstance(example, str):
        raise RefusalError(422, "each image must be a text, the bytes of a file in base64")
    try:
        return base64.b64decode(example, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusalError(422, f"each image must be in base64: {error}") from error
