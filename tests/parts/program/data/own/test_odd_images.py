"""Images in a folder that cannot be read are named or left out; sizes are those that are seen."""

import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode
from tests.parts.program.data.own.pictures import picture, write_classes
from tests.parts.program.data.specs import dataset_spec
from train.data.batches import EvaluationBatches, TrainingBatches
from train.foundation.errors import UserError

# The name and the content of a file.
UNREADABLE = {
    "text.png": b"<html>404 not found</html>",
    "cut.jpg": encode(picture("a", size=(64, 64)), "JPEG")[:-300],
    # With a preview that can be read.
    "of a camera.NEF": encode(picture("a"), "TIFF"),
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
