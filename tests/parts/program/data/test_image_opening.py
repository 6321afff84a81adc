"""What Pillow itself does not open: HEIC, damaged chunks, files without their end."""

import io
import pickle
import threading

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import chunk, chunks, encode, png, smooth, tiff
from train.data import images
from train.data.fast_images import FastPicture
from train.data.image_reader import ImageReader
from train.data.images import DecodeOptions, UnreadableImageError
from train.data.own.image_changes import OwnFraming
from train.data.pictures import PillowPicture

TRUNCATED = DecodeOptions(read_truncated=True)
PICTURE = smooth(0)
NOISE = np.random.default_rng(0).normal(scale=5, size=(160, 200, 3))
PHOTOGRAPH = Image.fromarray(
    np.clip(np.asarray(smooth(1, (200, 160))) + NOISE, 0, 255).astype(np.uint8)
)


def heic(image=PICTURE, **options):
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, quality=95, **options)
    return file.getvalue()


def turned():
    """The metadata of a picture that is shown after a quarter turn."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def pixels(encoded, options=images.USUAL):
    return np.asarray(images.decode(encoded, "a", options)).astype(int)


# HEIC, and raw photographs of cameras.


def test_heic_images_are_read():
    # Half of the rows and columns have colours of their own.
    assert abs(pixels(heic()) - np.asarray(PICTURE)).mean() < 6
    assert images.decode(heic(PICTURE.convert("L")), "a").mode == "RGB"
    transparent = PICTURE.convert("RGBA")
    transparent.putalpha(0)
    assert (pixels(heic(transparent), DecodeOptions(on_white=True)) == 255).all()


@pytest.mark.parametrize(
    "encoded",
    [
        # The first picture of a DNG, NEF or ARW file is marked as a reduced one.
        tiff(np.full((8, 8), 90, np.uint8), bits=8, tags={254: 1}),
        # A CR2 file says what it is.
        encode(PICTURE, "TIFF")[:8] + b"CR" + encode(PICTURE, "TIFF")[10:],
    ],
    ids=["reduced", "Canon"],
)
def test_the_preview_of_a_raw_photograph_is_not_taken_for_it(encoded):
    with pytest.raises(UnreadableImageError, match=r"raw photographs|is not an image"):
        images.decode(encoded, "a")


# Metadata.


@pytest.mark.filterwarnings("ignore")
def test_chunks_with_the_right_checksum_and_other_content_do_no_harm(rng):
    encoded = encode(PICTURE, "PNG")
    expected = pixels(encoded)
    for name in (b"iCCP", b"zTXt", b"iTXt", b"tEXt", b"gAMA", b"cHRM", b"pHYs", b"acTL", b"fcTL"):
        for content in (b"", b"a\0\x07x", rng.bytes(8), rng.bytes(40)):
            place = encoded.index(b"IDAT") - 4
            changed = encoded[:place] + chunk(name, content) + encoded[place:]
            np.testing.assert_array_equal(pixels(changed), expected)


def test_what_the_pixels_need_has_to_be_right():
    rows = [bytes(range(6))] * 4
    for name, content in ((b"PLTE", bytes(range(18))), (b"tRNS", b"\0\1\2")):
        parts = [chunk(b"PLTE", bytes(18))] * (name == b"tRNS")
        wrong = chunk(name, content)[:-1] + b"x"
        whole = png(size=(6, 4), bits=8, colour=3, rows=rows, chunks=b"".join([*parts, wrong]))
        with pytest.raises(UnreadableImageError, match="a is not an image"):
            images.decode(whole, "a")


# Files that lack their end.


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("BMP", {}),
    ],
    ids=["jpeg", "progressive", "png", "bmp"],
)
@pytest.mark.parametrize("part", [0.99, 0.5])
def test_a_file_without_its_end_is_read_as_far_as_it_goes(kind, options, part):
    encoded = encode(PHOTOGRAPH, kind, **options)
    whole = pixels(encoded)
    cut = encoded[: int(len(encoded) * part)]
    with pytest.raises(UnreadableImageError, match="cannot decode a: image file is truncated"):
        pixels(cut)
    found = pixels(cut, TRUNCATED)
    if "progressive" in options:
        # All of it, with less detail.
        assert abs(found - whole).mean() < 4
    else:
        rows = slice(81, None) if kind == "BMP" else slice(None, int(160 * part) - 17)
        np.testing.assert_array_equal(found[rows], whole[rows])
    # What is whole is the same.
    np.testing.assert_array_equal(pixels(encoded, TRUNCATED), whole)


def test_a_png_file_may_end_anywhere_in_its_pixels():
    encoded = encode(PHOTOGRAPH, "PNG")
    ((start, end),) = [span[1:] for span in chunks(encoded) if span[0] == b"IDAT"]
    half = (start + end) // 2
    parts = [chunk(b"IDAT", encoded[start:half]), chunk(b"IDAT", encoded[half:end])]
    in_two = b"".join([encoded[: start - 8], *parts])
    second = len(in_two) - len(parts[1])
    for last in (start + 1, *range(second - 5, second + 10)):
        assert pixels(in_two[:last], TRUNCATED).shape == (160, 200, 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_without_any_pixels_it_is_still_refused(kind):
    encoded = encode(PHOTOGRAPH, kind)
    for end in (0, 3, 12, 30):
        with pytest.raises(UnreadableImageError):
            images.decode(encoded[:end], "a", TRUNCATED)


def test_other_damage_is_still_refused():
    encoded = bytearray(encode(PHOTOGRAPH, "PNG"))
    place = encoded.index(b"IDAT") + 200
    encoded[place : place + 50] = bytes(50)
    with pytest.raises(UnreadableImageError, match="data stream"):
        images.decode(bytes(encoded), "a", TRUNCATED)


def test_threads_that_read_truncated_files_and_threads_that_refuse_them_do_not_meet():
    cut = encode(PHOTOGRAPH, "JPEG")[:-300]
    refused, read = [], []

    def refuse():
        for _ in range(50):
            try:
                images.decode(cut, "a")
            except UnreadableImageError as error:
                refused.append(error)

    def read_on():
        for _ in range(50):
            read.append(images.decode(cut, "a", TRUNCATED))

    threads = [threading.Thread(target=one) for one in (refuse, read_on, refuse, read_on)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(read) == 100


# The readers of people's own images.


def readers(**options):
    made = [
        ImageReader(OwnFraming((16, 20, 3)), options=DecodeOptions(**options), kind=kind)
        for kind in (PillowPicture, FastPicture)
    ]
    # As the processes that decode get them.
    return [pickle.loads(pickle.dumps(reader)) for reader in made]


def on_white_and_not():
    transparent = PICTURE.convert("RGBA")
    transparent.putalpha(Image.linear_gradient("L").resize(PICTURE.size))
    return transparent


CASES = {
    "heic": (heic(), {}),
    "on white": (encode(on_white_and_not(), "PNG"), {"on_white": True}),
    "dropped": (encode(on_white_and_not(), "PNG"), {}),
    "truncated": (encode(PHOTOGRAPH, "JPEG")[:-2000], {"read_truncated": True}),
    "truncated and turned": (
        encode(PHOTOGRAPH, "JPEG", exif=turned())[:-2000],
        {"read_truncated": True},
    ),
    "twelve bits": (
        tiff(np.arange(400, dtype=np.uint16).reshape(20, 20) * 10, bits=16, tags={281: 4095}),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_training_evaluation_and_prediction_see_the_same_pixels_with_both_decodings(case):
    encoded, options = CASES[case]
    found = []
    for reader in readers(**options):
        found.append(reader.for_evaluation(encoded, "a"))
        draws = np.zeros(reader.framing.num_draws)
        draws[4] = 1  # Not flipped.
        assert abs(reader.for_training(encoded, "a", draws).astype(int) - found[-1]).max() == 0
        found.append(reader.fit(reader.decode(encoded, "a"), "a"))
    for pixels_of_one in found[1:]:
        # The fast decoding may be a step off.
        assert abs(pixels_of_one.astype(int) - found[0]).max() <= 1


def test_transparent_pixels_lie_on_white_where_asked():
    encoded = encode(on_white_and_not(), "PNG")
    colours, alpha = (
        np.asarray(on_white_and_not())[..., part].astype(float) for part in (slice(3), [3])
    )
    np.testing.assert_array_equal(pixels(encoded), colours)
    expected = (colours * alpha + 255 * (255 - alpha)) / 255
    np.testing.assert_allclose(pixels(encoded, DecodeOptions(on_white=True)), expected, atol=1)


def with_a_hole(mode, colour):
    image = PICTURE.convert(mode)
    image.paste(colour, (0, 0, 20, 40))
    return image


LAYER = with_a_hole("RGBA", (0, 0, 0, 0))
PALETTE = PICTURE.quantize(15)
PALETTE.paste(15, (0, 0, 20, 40))
PALETTE.putpalette([*PALETTE.getpalette()[:45], 1, 2, 3])
HOLES = {
    "grey and alpha": encode(with_a_hole("LA", (0, 0)), "PNG"),
    "colours and alpha, tiff": encode(LAYER, "TIFF"),
    "webp": encode(LAYER, "WEBP", lossless=True),
    "heic": heic(LAYER),
    "palette": encode(PALETTE, "PNG", transparency=15),
    "one colour": encode(with_a_hole("RGB", (1, 2, 3)), "PNG", transparency=(1, 2, 3)),
    "one grey": encode(with_a_hole("L", 3), "PNG", transparency=3),
}


@pytest.mark.parametrize("kind", HOLES)
def test_every_kind_of_transparency_lies_on_white(kind):
    found = pixels(HOLES[kind], DecodeOptions(on_white=True))
    # HEIC blurs the edge.
    assert (found[:, :16] == 255).all()
    assert found[:, 24:].mean() < 200
    dropped = pixels(HOLES[kind])
    assert abs(dropped - found)[:, 24:].mean() < 1
    assert (dropped[:, :16] < 255).any()
