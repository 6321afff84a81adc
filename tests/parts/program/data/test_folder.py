"""Folders of images: which classes and splits they have, what is an image, and what is refused."""

import os
import pickle

import pytest
from PIL import Image

from train.data.examples import Split
from train.data.sources import folder
from train.foundation.errors import UserError

NFC, NFD = "h\u00eatre", "he\u0302tre"


def write(root, *paths):
    """Writes files that have other sizes, which is enough to be found."""
    for size, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(bytes(size))


def found_in(root, **asked):
    """The class and the split of each image by its path."""
    found = folder.find(root, **asked)
    labels = [found.class_names[label] for label in found.labels]
    words = [Split(split).word for split in found.splits]
    return dict(zip(found.names, zip(labels, words, strict=True), strict=True))


# The files, and the class and the split of each image.
LAYOUTS = {
    "classes": {"rose/1.jpg": "rose none", "oak/1.PNG": "oak none"},
    "a class called as a split": {"test/1.jpg": "test none", "oak/1.jpg": "oak none"},
    "classes called as two splits": {
        "train/1.jpg": "train none",
        "test/1.jpg": "test none",
        "rose/1.jpg": "rose none",
    },
    "splits": {
        "train/oak/1.jpg": "oak train",
        "val/oak/1.jpg": "oak validation",
        "test/rose/1.jpg": "rose test",
    },
    "splits by other words": {
        "Training Images/oak/1.jpg": "oak train",
        "dev/oak/1.jpg": "oak validation",
        "HOLD-OUT/oak/1.jpg": "oak test",
    },
    "only training": {"train/oak/1.jpg": "oak train", "train/rose/1.jpg": "rose train"},
    "files called as splits": {"oak/test_1.jpg": "oak none", "ash/train.jpg": "ash none"},
    "plants of classes": {"acer/plant 1/1.jpg": "acer none", "oak/plant 1/1.jpg": "oak none"},
    "a class with a folder called as a split": {"oak/test/1.jpg": "oak none"},
    "any characters": {"#1 [a]/1.jpg": "#1 [a] none", "\udce9/1.jpg": "\udce9 none"},
    "two forms of Unicode": {f"{NFC}/1.jpg": f"{NFC} none", f"{NFD}/2.jpg": f"{NFC} none"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_classes_and_splits(tmp_path, layout):
    expected = LAYOUTS[layout]
    write(tmp_path, *expected)
    assert {name: " ".join(one) for name, one in found_in(tmp_path).items()} == expected


def test_each_folder_with_images_may_be_a_class(tmp_path):
    write(tmp_path, "train/acer/rubrum/1.jpg", "train/oak/1.jpg", "test/acer/rubrum/1.jpg")
    assert found_in(tmp_path, nested=True) == {
        "train/acer/rubrum/1.jpg": ("acer/rubrum", "train"),
        "train/oak/1.jpg": ("oak", "train"),
        "test/acer/rubrum/1.jpg": ("acer/rubrum", "test"),
    }


def test_without_classes_images_may_be_anywhere(tmp_path):
    write(tmp_path, "1.jpg", "train/a/2.jpg", "empty.txt", ".cache/3.jpg")
    found = folder.find(tmp_path, labelled=False)
    assert found.names.tolist() == ["1.jpg", "train/a/2.jpg"]
    assert found.labels.tolist() == found.splits.tolist() == [-1, -1]
    assert found.class_names == ()


def test_what_is_no_image_is_passed_over(tmp_path, caplog):
    write(tmp_path, "oak/1.jpg", "oak/.2.jpg", "oak/a.txt", "oak/Thumbs.db", ".cache/x/1.jpg")
    write(tmp_path, "#recycle/1.jpg", "oak/@eaDir/1.jpg")
    assert [*found_in(tmp_path)] == ["oak/1.jpg"]
    assert caplog.messages[0].endswith("#recycle (1), @eaDir (1)")


def test_links_are_followed_once(tmp_path):
    write(tmp_path, "photos/oak/1.jpg", "elsewhere/2.jpg")
    (tmp_path / "photos" / "ash").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "oak" / "up").symlink_to("..")
    (tmp_path / "photos" / "oak" / "gone.jpg").symlink_to("nothing.jpg")
    assert [*found_in(tmp_path / "photos")] == ["ash/2.jpg", "oak/1.jpg", "oak/gone.jpg"]


def test_images_are_read_when_they_are_asked_for(tmp_path):
    write(tmp_path, "oak/0.jpg", "oak/1.jpg", "oak/2.jpg")
    os.mkfifo(tmp_path / "oak" / "pipe.jpg")
    found = folder.find(tmp_path)
    files = pickle.loads(pickle.dumps(found.inputs))
    assert [len(files[index]) for index in range(3)] == [0, 1, 2]
    (tmp_path / "oak" / "1.jpg").unlink()
    for index in (1, 3):
        with pytest.raises(OSError, match=r"1\.jpg|pipe"):
            found.encoded(index)


def test_the_digest_changes_with_names_classes_and_sizes_and_not_with_the_form_of_names(tmp_path):
    def digest(*paths):
        root = tmp_path / str(len([*tmp_path.iterdir()]))
        write(root, *paths)
        return folder.find(root).digest()

    # One form is before "hf" in the order of code points, the other after it.
    same = digest(f"{NFC}/1.jpg", "hf/2.jpg")
    assert digest(f"{NFD}/1.jpg", "hf/2.jpg") == same
    others = [
        digest(f"{NFC}/1.jpg", "hf/3.jpg"),
        digest(f"{NFC}/1.jpg", "ash/2.jpg"),
        digest("hf/2.jpg", f"{NFC}/1.jpg"),
    ]
    assert len({same, *others}) == 4


# The files, and what the line names.
REFUSED = {
    "no images": (["a/notes.txt"], "must be a folder with images; there are none"),
    "no classes": (["1.jpg", "2.jpg"], "must have all images in folders of classes.* 1.jpg, 2.jpg"),
    "an image beside classes": (["1.jpg", "oak/1.jpg"], "also has 1.jpg"),
    "no classes in splits": (["train/1.jpg", "test/1.jpg"], "also has test/1.jpg, train/1.jpg"),
    "a class without images": (["oak/1.jpg", "ash/1.txt"], "folders without images: ash"),
    "a split without images": (["train/oak/1.jpg", "test/oak/1.txt"], "without images: test"),
    "splits beside a class": (
        ["train/oak/1.jpg", "test/oak/1.jpg", "extra/oak/1.jpg"],
        "extra, te",
    ),
    "splits without training": (
        ["val/oak/1.jpg", "test/oak/1.jpg"],
        "one for training; .* test, val",
    ),
    "two folders of a split": (
        ["train/oak/1.jpg", "val/a/1.jpg", "dev/a/1.jpg"],
        "dev, train, val",
    ),
    "splits below": (["a/train/oak/1.jpg", "a/test/oak/1.jpg", "b/oak/1.jpg"], "such as .*/a$"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    paths, message = REFUSED[case]
    write(tmp_path, *paths)
    with pytest.raises(UserError, match=f"^config.dataset.path {tmp_path} .*{message}"):
        folder.find(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path):
    write(tmp_path, "file")
    for name in ("file", "gone"):
        with pytest.raises(
            UserError, match=f"^--images must be a folder with images; got .*{name}$"
        ):
            folder.find(tmp_path / name, field="--images")


def test_endings_are_those_that_pillow_knows():
    phones = {".heic", ".heics", ".heif", ".heifs", ".hif"}
    assert folder.IMAGE_ENDINGS - phones <= Image.registered_extensions().keys()
