"""Bodies of requests become the arrays of the program, or are refused in one line."""

import base64
import io
import json
import time
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.serving.served import form
from tests.rows import rows
from train.data.crops import ImageReader
from train.serving.limits import MOST_EXAMPLES, Limits, RefusalError
from train.serving.request_reader import FORM, JSON, RequestReader

SHAPE = (8, 8, 3)
LIMITS = Limits(request_bytes=2**20, pixels=10_000, waiting=64, seconds=60.0)
IMAGES = RequestReader(
    SimpleNamespace(inputs="images", shape=SHAPE, reader=ImageReader.plain(SHAPE)), LIMITS
)
FEATURES = RequestReader(SimpleNamespace(inputs="features", shape=(3,), reader=None), LIMITS)


def encoded(size=(20, 10), kind="PNG", **options):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def huge_png(side):
    """An image without its pixels, which would be millions."""

    def chunk(name, content):
        check = zlib.crc32(name + content).to_bytes(4)
        return len(content).to_bytes(4) + name + content + check

    head = side.to_bytes(4) * 2 + bytes((8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IEND", b"")


def many_scans():
    """A JPEG file whose scans are repeated."""
    file = encoded(kind="JPEG", progressive=True)
    start = file.rindex(b"\xff\xda")
    return file[:start] + file[start:-2] * 100 + file[-2:]


def read(reader, kind, body, until=None):
    parsed = reader.parse(kind, body)
    return reader.decode(parsed, time.monotonic() + 60 if until is None else until)


def read_json(reader, value):
    return read(reader, JSON, value if isinstance(value, bytes) else json.dumps(value).encode())


def read_form(*images, field="image"):
    body, kind = form(*images, field=field)
    return read(IMAGES, kind, body)


@pytest.mark.parametrize("kind", rows(["PNG", "JPEG"], ["GIF", "BMP", "WEBP"]))
def test_images_are_what_the_reader_makes_of_them(kind):
    files = [encoded(kind=kind), encoded((9, 30), kind)]
    expected = [IMAGES.classifier.reader.for_evaluation(one, "") for one in files]
    as_text = [base64.b64encode(one).decode() for one in files]
    for found in (read_form(*files), read_json(IMAGES, {"images": as_text})):
        np.testing.assert_array_equal(found, expected)


def test_rows_are_what_the_program_takes():
    (first, second) = read_json(FEATURES, {"features": [[1, 2.5, -3], [0, 0, 1e-50]]})
    assert first.dtype == np.float32
    assert first.tolist() == [1, 2.5, -3]
    assert second.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"\xff", 400, "not JSON"),
        (b"[" * 10_000, 413, "values"),
        (b'{"features": [[NaN, 1, 2]]}', 400, "NaN"),
        (b'{"images": []}', 400, 'it has the key "images"$'),
        (b'{"features": [[1, 2, 3]], "a\\n": 1}', 400, r'; it has the key "a\\n"$'),
        (b'{"features": []}', 400, "no features"),
        (b'{"features": [[1, 2, 3], [1, 2, "3"]]}', 422, "example 1"),
        (b'{"features": [[1, 2, 1e39]]}', 422, "finite"),
        (b'{"features": [' + b"[1,2,3]," * 64 + b"[1,2,3]]}", 413, "at most 64 examples"),
    ],
)
def test_other_bodies_are_refused(body, status, message):
    with pytest.raises(RefusalError, match=message.replace("[", r"\[")) as refused:
        read_json(FEATURES, body)
    assert refused.value.status == status
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("image", "status", "message"),
    [
        (encoded(kind="TIFF"), 415, "is not a JPEG"),
        (huge_png(10_000), 413, "10000 x 10000 pixels"),
        (encoded()[:-40], 422, "cannot decode the image"),
        (encoded((9000, 1)), 413, "too large"),
        (many_scans(), 422, "more than 64 scans"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_other_images_are_refused(image, status, message):
    with pytest.raises(RefusalError, match=message) as refused:
        read_form(image)
    assert refused.value.status == status
    assert "\n" not in str(refused.value)


def test_what_follows_a_photograph_is_not_taken_for_its_scans():
    # Phones add a film. Two of its bytes in 65,536 are those of a scan.
    assert len(read_form(encoded(kind="JPEG") + b"\xff\xda\0\2" * 100)) == 1


def test_the_images_of_a_request_share_the_limit_of_pixels():
    image = encoded((90, 90))
    assert len(read_form(image)) == 1
    with pytest.raises(RefusalError, match="image 1 is too large") as refused:
        read_form(image, image)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (form(encoded())[0], FORM, 400),
        (form(encoded())[0][:-20], f"{FORM}; boundary=boundary", 400),
        (form(encoded(), field="picture")[0], f"{FORM}; boundary=boundary", 400),
        (form(*[b""] * (MOST_EXAMPLES + 1))[0], f"{FORM}; boundary=boundary", 413),
    ],
)
def test_other_forms_are_refused(body, kind, status):
    with pytest.raises(RefusalError) as refused:
        read(IMAGES, kind, body)
    assert refused.value.status == status
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("reader", "kind", "encoding"),
    [
        (IMAGES, "", ""),
        (IMAGES, "image/png", ""),
        (IMAGES, JSON, "gzip"),
        (FEATURES, FORM, ""),
    ],
)
def test_other_types_are_refused_before_the_body_is_read(reader, kind, encoding):
    with pytest.raises(RefusalError) as refused:
        reader.check_type(kind, encoding)
    assert refused.value.status == 415


def test_images_are_not_decoded_when_nobody_waits_any_longer():
    body, kind = form(encoded())
    with pytest.raises(TimeoutError):
        read(IMAGES, kind, body, until=time.monotonic() - 1)
