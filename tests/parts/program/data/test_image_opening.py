"""What Pillow itself does not open: HEIC, damaged metadata, files without their end."""

import io
import pickle
import struct
import sys
import threading
import zlib

import numpy as np
import pillow_heif
import pytest
from PIL import Image, ImageCms, ImageFile, PngImagePlugin

from tests.parts.program.data.encoded_images import chunk, chunks, encode, png, smooth, tiff
from train.data import image_opening, images
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


def test_what_is_not_all_of_a_heic_image_is_named():
    for length in (12, 200, len(heic()) - 100):
        with pytest.raises(UnreadableImageError, match=r"a is not an image|cannot decode a: "):
            images.decode(heic()[:length], "a")


@pytest.fixture
def without_heic(monkeypatch):
    """As if pillow-heif were not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(Image, "ID", [name for name in Image.ID if name != "HEIF"])
    image_opening._register_heic.cache_clear()
    yield
    image_opening._register_heic.cache_clear()


@pytest.mark.usefixtures("without_heic")
def test_without_the_package_a_line_says_which_one_reads_heic():
    line = (
        r"^cannot decode a: HEIC \(the extra heic\) needs the package pillow-heif, which is not "
        r"installed: pip install pillow-heif$"
    )
    # Damaged ones, too: nothing is known of them.
    for encoded in (heic(), heic()[:200]):
        with pytest.raises(UnreadableImageError, match=line):
            images.decode(encoded, "a")


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


def with_metadata(kind):
    exif = Image.Exif()
    exif[0x010F] = "A maker"
    options = {"exif": exif, "icc_profile": PROFILE, "xmp": b"<x:xmpmeta/>", "comment": b"words"}
    if kind == "TIFF":
        del options["xmp"], options["comment"]
        options |= {"dpi": (72, 72), "description": "words"}
    if kind == "PNG":
        texts = PngImagePlugin.PngInfo()
        texts.add_text("words", "of a text")
        texts.add_text("packed", "words", zip=True)
        texts.add_itxt("more", "words", zip=True)
        options |= {"pnginfo": texts}
    return encode(PICTURE, kind, **options)


PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def jpeg_spans(encoded):
    """Where the segments of a program are, and comments."""
    place = 2
    while encoded[place + 1] != 0xDA:
        marker, length = encoded[place + 1], struct.unpack_from(">H", encoded, place + 2)[0]
        if 0xE0 <= marker <= 0xEF or marker == 0xFE:
            yield place + 4, place + 2 + length
        place += 2 + length


def webp_spans(encoded):
    place = 12
    while place < len(encoded):
        (length,) = struct.unpack_from("<I", encoded, place + 4)
        if encoded[place : place + 4] in (b"ICCP", b"EXIF", b"XMP "):
            yield place + 8, place + 8 + length
        place += 8 + length + length % 2


def png_spans(encoded):
    for name, start, end in chunks(encoded):
        if name[:1].islower():
            # With the checksum.
            yield start, end + 4


def tiff_spans(encoded):
    """Where the tags are that the pixels do not need, after their numbers, and what they say."""
    (first,) = struct.unpack_from("<I", encoded, 4)
    (number,) = struct.unpack_from("<H", encoded, first)
    for place in range(first + 2, first + 2 + 12 * number, 12):
        tag, _, count, value = struct.unpack_from("<HHII", encoded, place)
        if tag in (270, 271, 282, 283, 296, 34675):
            yield place + 2, place + 12
            if count > 4:
                yield value, value + count


def damaged(encoded, start, end, rng):
    found = bytearray(encoded)
    kind = rng.integers(3)
    if kind == 0:
        found[start:end] = rng.bytes(end - start)
    elif kind == 1:
        found[start:end] = bytes([255 * int(rng.integers(2))]) * (end - start)
    else:
        for place in rng.integers(start, end, 3).tolist():
            found[place] ^= 1 << int(rng.integers(8))
    return bytes(found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "spans"),
    [("JPEG", jpeg_spans), ("WEBP", webp_spans), ("PNG", png_spans), ("TIFF", tiff_spans)],
)
def test_pixels_are_read_whatever_the_metadata_are(kind, spans, rng):
    encoded = with_metadata(kind)
    expected = pixels(encoded)
    found = list(spans(encoded))
    assert len(found) >= 3
    for start, end in found:
        for _ in range(12):
            changed = damaged(encoded, start, end, rng)
            np.testing.assert_array_equal(pixels(changed), expected)
            images.turned_upright(images.decode(changed, "a"))


@pytest.mark.filterwarnings("ignore")
def test_chunks_with_the_right_checksum_and_other_content_do_no_harm(rng):
    encoded = with_metadata("PNG")
    expected = pixels(encoded)
    for name in (b"iCCP", b"zTXt", b"iTXt", b"tEXt", b"gAMA", b"cHRM", b"pHYs", b"acTL", b"fcTL"):
        for content in (b"", b"a\0\x07x", rng.bytes(8), rng.bytes(40)):
            place = encoded.index(b"IDAT") - 4
            changed = encoded[:place] + chunk(name, content) + encoded[place:]
            np.testing.assert_array_equal(pixels(changed), expected)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", [b"zTXt", b"iTXt", b"iCCP"])
def test_a_large_text_of_a_png_file_does_no_harm(name, after):
    content = {b"iTXt": b"a\0\1\0\0\0", b"zTXt": b"a\0\0", b"iCCP": b"a\0\0"}[name]
    # More than a mebibyte when it is decompressed.
    text = chunk(name, content + zlib.compress(bytes(2**21)))
    encoded = encode(PICTURE, "PNG")
    place = encoded.index(b"IEND" if after else b"IDAT") - 4
    changed = encoded[:place] + text + encoded[place:]
    np.testing.assert_array_equal(pixels(changed), np.asarray(PICTURE))


def test_many_texts_of_a_png_file_do_no_harm(monkeypatch):
    monkeypatch.setattr(PngImagePlugin, "MAX_TEXT_MEMORY", 2**10)
    texts = PngImagePlugin.PngInfo()
    texts.add_text("words", "x" * 2**11)
    np.testing.assert_array_equal(
        pixels(encode(PICTURE, "PNG", pnginfo=texts)), np.asarray(PICTURE)
    )


def test_the_orientation_stays_where_a_text_is_damaged():
    texts = PngImagePlugin.PngInfo()
    texts.add_text("words", "of a text")
    encoded = encode(PICTURE, "PNG", exif=turned(), pnginfo=texts).replace(
        b"of a text", b"of a test"
    )
    assert images.turned_upright(images.decode(encoded, "a")).size == PICTURE.size[::-1]


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
        ("TIFF", {}),
        ("PPM", {}),
        ("GIF", {"interlace": False}),
    ],
    ids=["jpeg", "progressive", "png", "bmp", "tiff", "ppm", "gif"],
)
@pytest.mark.parametrize("part", [0.99, 0.5])
def test_a_file_without_its_end_is_read_as_far_as_it_goes(kind, options, part):
    encoded = encode(PHOTOGRAPH.convert("P") if kind == "GIF" else PHOTOGRAPH, kind, **options)
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


def test_it_is_what_pillow_reads_where_it_is_told_to(monkeypatch):
    encoded = encode(PHOTOGRAPH, "JPEG", quality=85)
    for missing in (1, 2, 10, 300, 2000):
        cut = encoded[:-missing]
        found = pixels(cut, TRUNCATED)
        with monkeypatch.context() as patched:
            patched.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
            np.testing.assert_array_equal(found, np.asarray(Image.open(io.BytesIO(cut))))


def test_a_png_file_may_end_anywhere_in_its_pixels():
    encoded = encode(PHOTOGRAPH, "PNG")
    ((start, end),) = [span[1:] for span in chunks(encoded) if span[0] == b"IDAT"]
    half = (start + end) // 2
    parts = [chunk(b"IDAT", encoded[start:half]), chunk(b"IDAT", encoded[half:end])]
    in_two = b"".join([encoded[: start - 8], *parts])
    second = len(in_two) - len(parts[1])
    for last in (start + 1, *range(second - 5, second + 10)):
        assert pixels(in_two[:last], TRUNCATED).shape == (160, 200, 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "JPEG2000"])
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
    "grey and alpha, tiff": encode(with_a_hole("LA", (0, 0)), "TIFF"),
    "colours and alpha, tiff": encode(LAYER, "TIFF"),
    "webp": encode(LAYER, "WEBP", lossless=True),
    "heic": heic(LAYER),
    "palette": encode(PALETTE, "PNG", transparency=15),
    "palette with alphas": encode(PALETTE, "PNG", transparency=bytes([255] * 15 + [0])),
    "gif": encode(LAYER, "GIF"),
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


def test_the_orientation_of_a_transparent_image_is_followed():
    encoded = encode(on_white_and_not(), "PNG", exif=turned())
    image = images.decode(encoded, "a", DecodeOptions(on_white=True))
    assert images.turned_upright(image).size == PICTURE.size[::-1]
