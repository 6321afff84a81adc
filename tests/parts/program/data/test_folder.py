"""Folders of images: which classes and splits they have, what is an image, and what is refused."""

import pickle

import pytest

from train.data.examples import Split
from train.data.sources import folder
from train.foundation.errors import UserError

NFC, NFD = "h\u00eatre", "he\u0302tre"


def write(root, *paths):
    """Writes files that have other sizes, which is enough to be found."""
    for size, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(bytes(size))


# The files, and the class and the split of each image; a folder and files that are passed over.
LAYOUTS = {
    "classes": {"rose/1.jpg": "rose none", "oak/1.PNG": "oak none"},
    "classes called as two splits": {
        "train/1.jpg": "train none",
        "test/1.jpg": "test none",
        "rose/1.jpg": "rose none",
    },
    "files called as splits": {"oak/test_1.jpg": "oak none", "ash/train.jpg": "ash none"},
    "plants of classes": {"acer/plant 1/1.jpg": "acer none", "oak/test/1.jpg": "oak none"},
    "nested": {
        "train/acer/rubrum/1.jpg": "acer/rubrum train",
        "train/oak/1.jpg": "oak train",
        "test/acer/rubrum/1.jpg": "acer/rubrum test",
    },
    "any characters": {"#1 [a]/1.jpg": "#1 [a] none", "\udce9/1.jpg": "\udce9 none"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_classes_and_splits(tmp_path, layout):
    expected = LAYOUTS[layout]
    below = next(iter(expected)).rpartition("/")[0]
    write(tmp_path, *expected, f"{below}/.2.jpg", f"{below}/a.txt", f"{below}/Thumbs.db")
    write(tmp_path, ".cache/x/1.jpg", "#recycle/1.jpg", f"{below}/@eaDir/1.jpg")
    found = folder.find(tmp_path, nested=layout == "nested")
    labels = [found.class_names[label] for label in found.labels]
    words = [f"{label} {Split(one).word}" for label, one in zip(labels, found.splits, strict=True)]
    assert dict(zip(found.names, words, strict=True)) == expected


def test_without_classes_images_may_be_anywhere(tmp_path):
    write(tmp_path, "1.jpg", "train/a/2.jpg", "empty.txt", ".cache/3.jpg")
    found = folder.find(tmp_path, labelled=False)
    assert found.names.tolist() == ["1.jpg", "train/a/2.jpg"]
    assert found.labels.tolist() == found.splits.tolist() == [-1, -1]
    assert found.class_names == ()


def test_links_are_followed_once(tmp_path):
    write(tmp_path, "photos/oak/1.jpg", "elsewhere/2.jpg")
    (tmp_path / "photos" / "ash").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "oak" / "up").symlink_to("..")
    (tmp_path / "photos" / "oak" / "gone.jpg").symlink_to("nothing.jpg")
    found = folder.find(tmp_path / "photos")
    assert [*found.names] == ["ash/2.jpg", "oak/1.jpg", "oak/gone.jpg"]


def test_images_are_read_when_they_are_asked_for(tmp_path):
    write(tmp_path, "oak/0.jpg", "oak/1.jpg", "oak/2.jpg")
    found = folder.find(tmp_path)
    files = pickle.loads(pickle.dumps(found.inputs))
    assert [len(files[index]) for index in range(3)] == [0, 1, 2]
    (tmp_path / "oak" / "1.jpg").unlink()
    with pytest.raises(OSError, match=r"1\.jpg"):
        found.encoded(1)


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
    "no images": ("a/notes.txt", "must be a folder with images; there are none"),
    "no classes": ("1.jpg 2.jpg", "must have all images in folders of classes.* 1.jpg, 2.jpg"),
    "no classes in splits": ("train/1.jpg test/1.jpg", "also has test/1.jpg, train/1.jpg"),
    "a class without images": ("oak/1.jpg ash/1.txt", "folders without images: ash"),
    "splits beside a class": ("train/a/1.jpg test/a/1.jpg extra/a/1.jpg", "extra, te"),
    "no training": ("val/oak/1.jpg test/oak/1.jpg", "one for training; .* test, val"),
    "two of a split": ("train/oak/1.jpg val/a/1.jpg dev/a/1.jpg", "dev, train, val"),
    "splits below": ("a/train/oak/1.jpg a/test/oak/1.jpg b/oak/1.jpg", "such as .*/a$"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    paths, message = REFUSED[case]
    write(tmp_path, *paths.split())
    with pytest.raises(UserError, match=f"^config.dataset.path {tmp_path} .*{message}"):
        folder.find(tmp_path)
