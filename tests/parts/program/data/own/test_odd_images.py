"""Images of odd formats and sizes in a folder: read as they look, or named and left out."""

import io
import struct

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode, png
from tests.parts.program.data.own.pictures import picture, write_classes
from tests.parts.program.data.specs import dataset_spec
from train.data.batches import EvaluationBatches, TrainingBatches
from train.foundation.errors import UserError

SIZE = (12, 10)
RED, BLUE = (200, 30, 40), (20, 40, 210)


def plain(mode="RGB", colour=RED):
    return Image.new("RGB", SIZE, colour).convert(mode)


def moving(kind, **options):
    """An animation that begins with a red picture and goes on with a blue one."""
    more = [plain(colour=BLUE)]
    return encode(plain(), kind, save_all=True, append_images=more, **options)


def deep(level):
    """A grey picture of 16 bits."""
    return encode(Image.fromarray(np.full(SIZE[::-1], level, np.uint16)), "PNG")


def deep_colours():
    """A red picture of 16 bits for each colour, which Pillow does not write."""
    row = struct.pack(">3H", *(257 * value for value in RED)) * SIZE[0]
    return png(size=SIZE, bits=16, colour=2, rows=[row] * SIZE[1])


def heic():
    file = io.BytesIO()
    pillow_heif.from_pillow(plain()).save(file, quality=95)
    return file.getvalue()


GREY = tuple([round(0.299 * RED[0] + 0.587 * RED[1] + 0.114 * RED[2])] * 3)
# The name and the content of a file, and the colour of its pixels.
READ = {
    "grey.jpg": (encode(plain("L"), "JPEG"), GREY),
    "CMYK.jpg": (encode(plain("CMYK"), "JPEG", quality=95), RED),
    "16 bits.png": (deep(0x64FF), (0x64,) * 3),
    "16 bits of colour.png": (deep_colours(), RED),
    "moving.gif": (moving("GIF"), RED),
    "moving.png": (moving("PNG"), RED),
    "moving.webp": (moving("WEBP", lossless=True), RED),
    "still.webp": (encode(plain(), "WEBP", lossless=True), RED),
    "called.png": (encode(plain(), "JPEG", quality=95), RED),
    "of a phone.HEIC": (heic(), RED),
    "large.png": (encode(Image.new("L", (8000, 6000), 90), "PNG", compress_level=1), (90,) * 3),
}
# The name and the content of a file.
UNREADABLE = {
    "text.png": b"<html>404 not found</html>",
    "cut.jpg": encode(picture("a", size=(64, 64)), "JPEG")[:-300],
    "bomb.png": png(size=(50_000, 50_000), bits=8, colour=2, rows=[b""]),
    "float.tiff": encode(Image.fromarray(np.full(SIZE[::-1], 0.5, np.float32)), "TIFF"),
    # With a preview that can be read.
    "of a camera.NEF": encode(plain(), "TIFF"),
    "thin.png": encode(Image.new("L", (1, 30_000)), "PNG"),
}


def load(root, image_size=None, *, upright=True):
    fields = {"path": str(root), "nested": False, "image_size": image_size}
    fields |= {"validation_fraction": 0.2, "test_fraction": 0.2, "unseen_classes": "refuse"}
    fields |= {"augmentation": "none"}
    fields |= {"respect_exif_orientation": upright, "normalization": "half"}
    return dataset_spec({"name": "folder", **fields}).load(None)


def write(root, files):
    """Puts files among the training images of a class, into a folder with the given splits."""
    for split in ("train", "val", "test"):
        write_classes(root / split, ("ash", "birch"), 2)
    for name, content in files.items():
        (root / "train" / "ash" / name).write_bytes(content)


def test_odd_images_are_read_as_they_look(tmp_path):
    write(tmp_path, {name: content for name, (content, _) in READ.items()})
    train = load(tmp_path, image_size=10).train
    assert len(train) == 4 + len(READ)
    names = [train.images.file_name(index) for index in range(len(train))]
    images = dict(zip(names, EvaluationBatches(train, len(train))[0]["images"], strict=True))
    for name, (_, colour) in READ.items():
        # JPEG rounds, and a palette of 256 colours has no colour of the picture's.
        assert abs(images[f"train/ash/{name}"].astype(int) - colour).max() <= 3, name


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_named(tmp_path, name):
    write(tmp_path, {name: UNREADABLE[name]})
    train = load(tmp_path, image_size=224).train
    for batches in (EvaluationBatches(train, 8), TrainingBatches(train, 5, seed=0)):
        with pytest.raises(UserError) as caught:
            batches[0]
        assert f"train/ash/{name} of {tmp_path}" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_what_cannot_be_read_is_left_out_where_asked(tmp_path):
    write(tmp_path, UNREADABLE)
    (tmp_path / "train" / "birch" / "0.png").unlink()
    train = load(tmp_path, image_size=224).train
    # Gone since the folder was looked through.
    (tmp_path / "train" / "birch" / "1.png").rename(tmp_path / "elsewhere.png")
    batch = EvaluationBatches(train, len(train), skip_unreadable=True)[0]
    skipped = {one.image: one.message for one in batch["skipped"]}
    gone = "train/birch/1.png"
    assert skipped.pop(gone) == f"cannot read {gone} of {tmp_path}: No such file or directory"
    assert skipped.keys() == {f"train/ash/{name}" for name in UNREADABLE}
    assert batch["mask"].sum() == 2


# Pillow itself turns TIFF images.
@pytest.mark.parametrize(
    ("kind", "upright", "shape"),
    [("png", True, (12, 10, 3)), ("png", False, (10, 12, 3)), ("tiff", True, (12, 10, 3))],
)
def test_small_images_that_all_lie_on_their_side_keep_their_size(tmp_path, kind, upright, shape):
    for name in ("ash", "birch"):
        (tmp_path / name).mkdir()
        for index in range(8):
            exif = Image.Exif()
            exif[0x0112] = 6  # Rotated by a quarter to the right when it is shown.
            picture(f"{name}{index}").save(tmp_path / name / f"{index}.{kind}", exif=exif)
    dataset = load(tmp_path, upright=upright)
    assert dataset.image_shape == shape
