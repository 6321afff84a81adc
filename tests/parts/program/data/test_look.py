"""One look at all images finds what training cannot read, and a run keeps what was seen."""

import re

import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode, photograph
from train.data import images, look
from train.data.examples import Examples, Split
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError

PICTURE = Image.fromarray(photograph(np.random.default_rng(0), 300, 220))
SMALL = PICTURE.resize((90, 70))
DARK = Image.fromarray(np.full((8, 8), 4000, np.uint16))
FORMATS = {
    "JPEG": encode(PICTURE),
    "progressive JPEG": encode(PICTURE, progressive=True),
    "grey JPEG": encode(PICTURE.convert("L")),
    "JPEG of four inks": encode(PICTURE.convert("CMYK")),
    "JPEG of two pictures": encode(PICTURE, "MPO", save_all=True, append_images=[SMALL]),
    **{kind: encode(SMALL, kind) for kind in ("PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "HEIF")},
}


def examples_of(contents, *, splits=None, names=None):
    number = len(contents)
    names = [f"{index}.jpg" for index in range(number)] if names is None else names
    splits = [Split.NONE] * number if splits is None else splits
    more = {"names": np.array(names), "splits": np.array(splits, np.int8)}
    return Examples.of_source(contents, np.arange(number) % 2, ("ash", "birch"), "DATA", **more)


def decoded(content):
    """The size of an image as training reads it; 0 if it cannot."""
    try:
        return images.decode(content, "it").size
    except UnreadableImageError:
        return 0, 0


@pytest.mark.parametrize("kind", FORMATS)
def test_what_training_cannot_read_is_found_and_nothing_else(kind):
    whole = FORMATS[kind]
    rng = np.random.default_rng(0)
    cuts = [*rng.integers(0, len(whole), 60).tolist(), *range(len(whole) - 20, len(whole) + 1)]
    damaged = [bytearray(whole) for _ in range(40)]
    for content in damaged:
        place = int(rng.integers(0, len(whole) - 4))
        content[place : place + 4] = b"\xff\xd9\0\0"
    behind = [whole + b"SEFT" + bytes(500), whole + bytes(2**17)]
    contents = [*(whole[:cut] for cut in cuts), *map(bytes, damaged), *behind, b"<html>404</html>"]
    expected = [decoded(content) for content in contents]
    found = look.look(examples_of(contents))
    np.testing.assert_array_equal(found.sizes, expected)
    np.testing.assert_array_equal(found.reasons == "", found.sizes[:, 0] > 0)
    assert {(0, 0), decoded(whole)} <= {*expected}


def turned(picture):
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(picture, exif=exif)


# A content, and its size, upright, and whether it is grey; or why it cannot be read.
CASES = {
    "colours": (encode(SMALL, "PNG"), (90, 70), False),
    "grey": (encode(SMALL.convert("L"), "PNG"), (90, 70), True),
    "a grey photograph": (encode(PICTURE.convert("L")), (300, 220), True),
    "a photograph on its side": (turned(PICTURE), (220, 300), False),
    # Half as large, it is a square.
    "almost a square": (turned(PICTURE.resize((34, 33))), (33, 34), False),
    "dark grey of 16 bits": (encode(DARK, "PNG"), (0, 0), "0.jpg.*nearly black"),
    "a text": (b"<html>404</html>", (0, 0), "0.jpg is not an image"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_seen_of_an_image(case):
    content, size, told = CASES[case]
    found = look.look(examples_of([content]))
    assert tuple(found.sizes[0]) == size
    if size == (0, 0):
        assert re.search(told, found.reasons[0])
    else:
        assert (found.reasons[0], found.is_grey[0]) == ("", told)


class Files(list[bytes]):
    """Contents of files, of which empty ones may not be read."""

    def __getitem__(self, index):
        if content := super().__getitem__(index):
            return content
        raise PermissionError(13, "Permission denied")


def seen_of(contents, names=None):
    examples = examples_of(Files(contents), names=names)
    seen = look.kept(examples, look.look(examples))
    # As a run keeps it.
    kept = msgspec.json.encode(seen)
    assert msgspec.json.decode(kept, type=look.Seen) == seen
    return examples, seen


def test_a_run_keeps_what_was_seen():
    grey = encode(SMALL.convert("L"), "PNG")
    names = ["a/1.png", "a/skr\udce4p.png", "b/che\u0302ne.png"]
    examples, seen = seen_of([grey, b"", grey], names)
    assert (seen.digest, seen.size, seen.grey) == (examples.digest(), (90, 70), True)
    name = r"a/skr\udce4p.png"
    assert seen.unreadable == {name: f"cannot read {name}: Permission denied"}
    _, seen = seen_of([grey, encode(SMALL, "PNG"), encode(PICTURE, "PNG")])
    assert (seen.size, seen.grey, seen.unreadable) == (None, False, {})


def test_names_are_told_in_any_form_of_unicode_and_at_most_ten():
    png = FORMATS["PNG"]
    examples, seen = seen_of([b"x"] * 12 + [png], [f"che\u0302ne {n}.jpg" for n in range(13)])
    moved = examples_of(examples.inputs, names=[f"ch\u00eane {n}.jpg" for n in range(13)])
    message = (
        "^12 of 13 images of DATA cannot be read: .*ne 0.jpg is .*; also .*, \u2026; --skip it$"
    )
    with pytest.raises(UserError, match=message):
        look.readable(moved, seen, skip=False, how="--skip it")
    assert look.readable(moved, seen, skip=True, how="").places.tolist() == [12]
    with pytest.raises(UserError, match=r"^1 of 1 images of DATA cannot be read: che"):
        look.readable(examples.take(np.array([0])), seen, skip=True, how="")
