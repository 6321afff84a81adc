"""One look at all images finds what training cannot read, and a run keeps what was seen."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode, photograph, png
from train.data import images, look
from train.data.examples import Examples, Split
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError
from train.workdir import run_shapes

PICTURE = Image.fromarray(photograph(np.random.default_rng(0), 300, 220))
SMALL = PICTURE.resize((90, 70))
FORMATS = {
    "JPEG": encode(PICTURE),
    "progressive JPEG": encode(PICTURE, progressive=True),
    "grey JPEG": encode(PICTURE.convert("L")),
    "JPEG of four inks": encode(PICTURE.convert("CMYK")),
    "JPEG of two pictures": encode(PICTURE, "MPO", save_all=True, append_images=[SMALL]),
    **{kind: encode(SMALL, kind) for kind in ("PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "HEIF")},
}
DARK = np.full(3 * 8, 4000, ">u2").tobytes()


def examples_of(contents, *, splits=None, names=None):
    number = len(contents)
    return Examples(
        inputs=contents,
        places=np.arange(number),
        labels=np.arange(number, dtype=np.int32) % 2,
        splits=np.array([Split.NONE] * number if splits is None else splits, np.int8),
        class_names=("ash", "birch"),
        where="DATA",
        names=np.array([f"{index}.jpg" for index in range(number)] if names is None else names),
    )


def decoded(content):
    try:
        return images.decode(content, "it").size
    except UnreadableImageError:
        return None


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
    assert [reason == "" for reason in found.reasons] == [size is not None for size in expected]
    assert found.sizes.tolist() == [[*(size or (0, 0))] for size in expected]
    assert None in expected
    assert decoded(whole) in expected


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
    "dark grey of 16 bits": (
        encode(Image.fromarray(np.full((8, 8), 4000, np.uint16)), "PNG"),
        None,
        "nearly black",
    ),
    "dark colours of 16 bits": (
        png(size=(8, 8), bits=16, colour=2, rows=[DARK] * 8),
        None,
        "nearly black",
    ),
    "a text": (b"<html>404</html>", None, "0.jpg of DATA is not an image"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_seen_of_an_image(case):
    content, size, told = CASES[case]
    found = look.look(examples_of([content]))
    assert tuple(found.sizes[0]) == (size or (0, 0))
    if size is None:
        assert told in found.reasons[0]
        assert "0.jpg of DATA" in found.reasons[0]
    else:
        assert found.reasons[0] == ""
        assert bool(found.is_grey[0]) == told


class Files(list[bytes]):
    """Contents of files, of which empty ones may not be read."""

    def __getitem__(self, index):
        content = super().__getitem__(index)
        if not content:
            raise PermissionError(13, "Permission denied")
        return content


def seen_of(contents, names=None):
    examples = examples_of(Files(contents), names=names)
    seen = look.kept(examples, look.look(examples))
    # As a run keeps it.
    plain = json.loads(json.dumps(seen.to_plain()))
    assert run_shapes.SEEN(plain) is None
    kept = look.Seen.from_plain(plain)
    assert kept == seen
    return examples, kept


def test_a_run_keeps_what_was_seen():
    grey = encode(SMALL.convert("L"), "PNG")
    names = ["a/1.png", "a/skr\udce4p.png", "b/che\u0302ne.png"]
    examples, seen = seen_of([grey, b"", grey], names)
    assert (seen.digest, seen.size, seen.grey) == (examples.digest(), (90, 70), True)
    name = r"a/skr\udce4p.png"
    assert seen.unreadable == {name: f"cannot read {name} of DATA: Permission denied"}
    _, seen = seen_of([grey, encode(SMALL, "PNG"), encode(PICTURE, "PNG")])
    assert (seen.size, seen.grey, seen.unreadable) == (None, False, {})
    grouped = look.Seen.from_plain({**seen.to_plain(), "groups": ["a", "", "a"]})
    assert grouped.groups == ("a", "", "a")


PNG = FORMATS["PNG"]
REFUSED = {
    "one": (
        [PNG, b"", PNG],
        "^1 of 3 images of DATA cannot be read: 1.jpg; cannot read 1.jpg .*denied; --skip leaves",
    ),
    "several": (
        [b"x"] * 12 + [PNG],
        "^12 of 13 images of DATA cannot be read: 0.jpg, .*9.jpg, \u2026; 0.jpg of DATA .*; --s",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unreadable_images_are_refused_or_left_out(case, caplog):
    contents, message = REFUSED[case]
    examples, seen = seen_of(contents)
    with pytest.raises(UserError, match=message):
        look.readable(examples, seen, skip=False, how="--skip leaves them out")
    found = look.readable(examples, seen, skip=True, how="")
    assert {*examples.places.tolist()} - {*found.places.tolist()} == {
        index for index, content in enumerate(contents) if content != PNG
    }
    (line,) = caplog.messages
    without = len(examples) - len(found)
    assert line.startswith(f"{without} of {len(examples)} images of DATA cannot be read: ")
    assert line.endswith("; they are left out")
    # Nothing more to tell of the others.
    assert look.readable(found, seen, skip=False, how="") is found


def test_names_in_another_form_of_unicode_and_data_without_a_readable_image():
    examples, seen = seen_of([b"", PNG], ["che\u0302ne.jpg", "oak.jpg"])
    moved = examples_of(examples.inputs, names=["ch\u00eane.jpg", "oak.jpg"])
    assert look.readable(moved, seen, skip=True, how="").names.tolist() == ["oak.jpg"]
    with pytest.raises(UserError, match=r"^1 of 1 images of DATA cannot be read: che"):
        look.readable(examples.take(np.array([0])), seen, skip=True, how="")
