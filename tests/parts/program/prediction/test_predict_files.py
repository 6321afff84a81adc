"""A person's image files: which are found, what is read of them, and what the classifier gets."""

import functools
import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.specs import dataset_spec
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError
from train.foundation.names import existing
from train.prediction import image_files

DIGITS = dataset_spec({"name": "digits"})
PHOTOGRAPHS = dataset_spec({"name": "plantnet300k", "decoding": "exact"})
read = functools.partial(image_files.read, reader=DIGITS.image_reader)
# How a picture is stored that is to be shown after the transposition of its EXIF orientation.
STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def picture(width=12, height=8):
    """Colours that differ everywhere, so that no turned or mirrored copy is the same."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    pixels = np.stack([across * 20, down * 30, (across + down) * 10], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def same(one, other):
    return np.array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_a_picture_of_any_mode_becomes_rgb(tmp_path, mode):
    grey = np.asarray(picture().convert("L")).astype(np.uint16)
    stored = Image.fromarray(257 * grey) if mode == "I;16" else picture().convert(mode)
    path = tmp_path / "image.tiff"
    stored.save(path)
    found = read(path)
    assert (found.mode, found.size) == ("RGB", (12, 8))
    if mode in ("L", "RGB", "RGBA"):
        assert same(found, stored.convert("RGB"))


@pytest.mark.parametrize("orientation", STORED)
def test_a_picture_is_turned_upright(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = picture().transpose(STORED[orientation])
    for name in ("image.png", "image.webp", "image.tiff"):
        stored.save(tmp_path / name, exif=exif, **({"lossless": True} if "webp" in name else {}))
        assert same(read(tmp_path / name), picture()), name
    stored.save(tmp_path / "image.jpg", exif=exif)
    assert read(tmp_path / "image.jpg").size == picture().size


def test_a_picture_is_left_as_it_is_stored_where_training_did_so(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture().save(tmp_path / "image.png", exif=exif)
    assert same(image_files.read(tmp_path / "image.png", PHOTOGRAPHS.image_reader), picture())


def test_an_animation_is_its_first_frame(tmp_path):
    first, second = (Image.new("RGB", (9, 9), colour) for colour in ("red", "blue"))
    first.save(tmp_path / "image.gif", save_all=True, append_images=[second, first])
    assert read(tmp_path / "image.gif").getpixel((4, 4)) == (255, 0, 0)


def claiming_to_be_large():
    """A PNG file of a few bytes that would fill 3.6 GB."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    size = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", b"x")


def floats():
    """A grey picture from 0 to 1, as programs for science write them."""
    file = io.BytesIO()
    Image.fromarray(np.linspace(0, 1, 96, dtype=np.float32).reshape(8, 12)).save(file, "TIFF")
    return file.getvalue()


def test_what_cannot_be_read_is_named_in_a_line(tmp_path):
    picture().save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    damaged = {
        "text.png": (b"no image", "is not an image"),
        "empty.jpg": (b"", "is not an image"),
        "cut.png": (content[: len(content) // 2], "cannot decode"),
        "large.png": (claiming_to_be_large(), "exceeds limit"),
        "float.tiff": (floats(), "its pixels are floating-point numbers"),
    }
    for name, (bytes_, message) in damaged.items():
        (tmp_path / name).write_bytes(bytes_)
        with pytest.raises(UnreadableImageError, match=message) as error:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)
    # With a preview that can be read.
    picture().save(tmp_path / "raw.tiff")
    (tmp_path / "raw.tiff").rename(tmp_path / "raw.DNG")
    for path in (tmp_path, tmp_path / "gone.png", tmp_path / "raw.DNG"):
        with pytest.raises(UnreadableImageError, match=f"^cannot read {path}: "):
            read(path)


def test_damaged_exif_does_no_harm(tmp_path):
    picture().save(tmp_path / "image.png", exif=b"Exif\0\0II*\0\xff\xff\xff\xff\xff")
    assert same(read(tmp_path / "image.png"), picture())


def test_photographs_get_the_test_transform_of_training():
    photograph = picture(300, 260)
    found = PHOTOGRAPHS.image_reader.fit(photograph, "a")
    encoded = io.BytesIO()
    photograph.save(encoded, "PNG")
    assert np.array_equal(found, PHOTOGRAPHS.reader.for_evaluation(encoded.getvalue(), "a"))
    assert found.shape == PHOTOGRAPHS.image_shape


def test_an_image_of_a_small_data_set_stays_as_it_is():
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    found = DIGITS.image_reader.fit(Image.fromarray(pixels[..., 0]).convert("RGB"), "a")
    assert np.array_equal(found, pixels)
    assert found.dtype == np.uint8


def test_a_larger_image_is_resized_with_antialiasing_and_its_middle_cut_out():
    # A fine chequerboard is grey from afar; without antialiasing it would be black or white.
    fine = 255 * (np.indices((64, 160)).sum(axis=0) % 2).astype(np.uint8)
    fine[:, :40] = fine[:, 120:] = 0
    found = DIGITS.image_reader.fit(Image.fromarray(fine).convert("RGB"), "a")
    assert found.shape == (8, 8, 1)
    # The picture has 20 columns at that size; 6 to 13 are the middle. Half of 255, and
    # a step for rounding; the black sides begin two columns off.
    assert np.abs(found.astype(int) - 127).max() <= 1
    tall = DIGITS.image_reader.fit(picture(5, 31), "a")
    assert tall.shape == (8, 8, 1)


def test_grey_pixels_are_resized_for_a_small_grey_data_set():
    colours = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    image = Image.fromarray(colours)
    expected = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BILINEAR))
    assert np.array_equal(DIGITS.image_reader.fit(image, "a")[..., 0], expected)


def test_what_is_too_narrow_to_be_resized_is_refused():
    narrow = Image.new("RGB", (1, 30_000))
    with pytest.raises(UnreadableImageError, match="too long and narrow, 1 x 30000 pixels"):
        PHOTOGRAPHS.image_reader.fit(narrow, "a")
    # For small images it is not too much.
    assert DIGITS.image_reader.fit(narrow, "a").shape == (8, 8, 1)


@pytest.fixture
def folder(tmp_path):
    names = (
        "b.JPG",
        "a.png",
        "below/c.webp",
        "below/deeper/d.tif",
        "a,b.png",
        "notes.txt",
        "labels.CSV",
        "a.xmp",
        "Thumbs.db",
        "of a camera.NEF",
        "video.mpg",
        "numbers.h5",
        "no_ending",
        ".hidden.png",
        ".thumbnails/e.png",
        "below/@eaDir/c.webp/SYNOPHOTO_THUMB_M.jpg",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "gone.png").symlink_to("nowhere")
    return tmp_path


def names(folder, *values):
    found = image_files.find([value.replace("@", str(folder)) for value in values])
    return [str(path.relative_to(folder)) for path in found]


def test_the_images_of_a_folder_are_found_in_order(folder, caplog):
    below = ["below/c.webp", "below/deeper/d.tif"]
    # Only side files of images are left out, and hidden files.
    others = ["gone.png", "no_ending", "numbers.h5", "of a camera.NEF", "pipe.png", "video.mpg"]
    found = names(folder, "@")
    assert found == sorted(["a,b.png", "a.png", "b.JPG", *below, *others])
    (record,) = caplog.records
    assert record.getMessage().endswith("which are left out: .thumbnails (1), @eaDir (1)")
    assert names(folder, "@/below/,@/a.png") == [*below, "a.png"]
    assert names(folder, "@/a.png", "@/below") == ["a.png", *below]


def test_a_name_in_another_form_of_unicode_finds_its_file(folder):
    (folder / "he\u0302tre").mkdir()
    (folder / "he\u0302tre" / "1.png").touch()
    assert names(folder, "@/h\u00eatre,@/h\u00eatre/1.png") == 2 * ["he\u0302tre/1.png"]


def test_a_file_that_is_named_is_taken_whatever_its_name(folder):
    assert names(folder, "@/no_ending,@/.hidden.png") == ["no_ending", ".hidden.png"]


def test_a_comma_may_be_in_a_name(folder):
    assert names(folder, "@/a,b.png") == ["a,b.png"]
    assert names(folder, "@/a.png,@/a,b.png,@/b.JPG") == ["a.png", "a,b.png", "b.JPG"]
    # A file with the complete name is meant.
    (folder / "a.png,b.JPG").touch()
    assert names(folder, "@/a.png,b.JPG") == ["a.png,b.JPG"]
    (folder / "c,d").mkdir()
    (folder / "c,d" / "1,2.png").touch()
    assert names(folder, "@/a.png,@/c,d/1,2.png,@/b.JPG") == ["a.png", "c,d/1,2.png", "b.JPG"]


def test_each_of_many_files_is_looked_for_a_few_times(folder, monkeypatch):
    looked_for = []

    def noted(path):
        looked_for.append(path)
        return existing(path)

    monkeypatch.setattr(image_files, "existing", noted)
    assert names(folder, ",".join(500 * ["@/a.png"])) == 500 * ["a.png"]
    # Its folder, itself, the folder of two at once, and the file that was found.
    assert len(looked_for) <= 500 * 4


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("@/x.png", r"there is no .*/x\.png"),
        ("@/a.png,@/x.png", r"there is no .*/x\.png"),
        ("@/a.png,,@/b.JPG", "there is no '@"),
        ("@/folder.png", "there are none in"),
        ("@/" + 300 * "n", "there is no "),
    ],
)
def test_what_is_not_there_is_refused(folder, value, message):
    with pytest.raises(UserError, match=message.replace("@", str(folder))):
        names(folder, value)
