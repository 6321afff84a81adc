"""Folders of images: their classes, their splits, and what is refused."""

import os

import numpy as np
import pytest

from tests.parts.program.data.own import divided, pictures
from train.data.own import class_names, folders, held_out
from train.data.own.encoded_images import MARK_BYTES, Files
from train.data.own.listing import Role
from train.foundation.errors import UserError

CLASSES = ("ash", "birch", "cedar")


def find(root, *, nested=False, validation=0.2, test=0.2):
    return folders.find(root, nested=nested).divided(divided.fields(validation, test)).listing


def counts(found):
    """The number of images of each class for training, validation and test."""
    return [
        np.bincount(found.labels[found.of_role(role)], minlength=len(found.class_names)).tolist()
        for role in Role
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("Train", "Val", "Test"), [[4] * 3] * 3),
        (("training", "dev", "EVALUATION"), [[4] * 3] * 3),
        (("Training", "Testing"), [[3] * 3, [1] * 3, [4] * 3]),
        (("training_set", "test_set"), [[3] * 3, [1] * 3, [4] * 3]),
        (("Train Images", "hold-out"), [[3] * 3, [1] * 3, [4] * 3]),
        (("train",), [[2] * 3, [1] * 3, [1] * 3]),
    ],
)
def test_splits_have_their_usual_names(tmp_path, names, expected):
    for name in names:
        pictures.write_classes(tmp_path / name, CLASSES, 4)
    pictures.write(tmp_path, ["@eaDir/thumb.png"])
    found = find(tmp_path)
    assert found.class_names == CLASSES
    assert counts(found) == expected


def test_a_class_may_have_the_name_of_a_split(tmp_path, caplog):
    pictures.write_classes(tmp_path, ("train", "rose", "test"), 5)
    assert find(tmp_path).class_names == ("rose", "test", "train")
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "folders are classes, not splits, because images are directly in them: test, train"
    )


def test_folders_that_may_be_classes_are_told(tmp_path, caplog):
    pictures.write_classes(tmp_path, ("acer/campestre", "acer/rubrum", "abies/alba", "yew"), 5)
    assert find(tmp_path).class_names == ("abies", "acer", "yew")
    (record,) = caplog.records
    assert record.getMessage().endswith(
        ": 2 of the 3 classes have images only in subfolders, 3 in all, such as abies/alba; "
        "config.dataset.nested=True makes each of these a class"
    )
    caplog.clear()
    assert len(find(tmp_path, nested=True).class_names) == 4
    assert not caplog.records


def test_a_class_of_one_image_is_for_training(tmp_path):
    pictures.write_classes(tmp_path, CLASSES[:2], 10)
    pictures.write_classes(tmp_path, CLASSES[2:], 1)
    assert [of_class[2] for of_class in counts(find(tmp_path, validation=0.5, test=0.4))] == [
        1,
        0,
        0,
    ]


NAMES = ('a class\'s "name"', "sp. nov", "Évian-les-Bains", "三", "#1 100%")


def test_names_may_have_any_characters(tmp_path):
    pictures.write_classes(tmp_path, NAMES, 5)
    assert find(tmp_path).class_names == tuple(sorted(NAMES))


def test_a_class_without_a_name_that_can_be_seen_is_refused(tmp_path):
    pictures.write_classes(tmp_path, ("oak", "\u202e\u200b"), 5)
    message = r"the name of a class must have a visible character; got '<U\+202E><U\+200B>'"
    with pytest.raises(UserError, match=message):
        find(tmp_path)


NFC, NFD = "h\u00eatre", "he\u0302tre"


def test_a_class_in_two_forms_is_one(tmp_path, caplog):
    for name in (NFC, NFD, "oak", "oak\u200b"):
        pictures.write(tmp_path, [f"{name}/{name}{index}.png" for index in range(5)])
    found = find(tmp_path)
    assert found.class_names == (NFC, "oak")
    assert counts(found) == [[6, 6], [2, 2], [2, 2]]
    (record,) = caplog.records
    assert record.getMessage().endswith(
        f"names that look the same are one class: '{NFD}' (he<U+0302>tre) and '{NFC}' "
        "(h<U+00EA>tre), 'oak' and 'oak\u200b' (oak<U+200B>)"
    )


def test_a_copy_with_names_in_another_form_has_the_same_splits(tmp_path):
    made = []
    for name in (NFC, NFD):
        root = tmp_path / f"of {len(made)}"
        # In the order of code points one form is before "hf", the other after it.
        pictures.write_classes(root, (name, "hf"), 20)
        found = find(root)
        made.append((found.class_names, counts(found), found.roles.tolist(), found.digest()))
    assert made[0] == made[1]


@pytest.mark.parametrize("nested", [False, True])
def test_folders_of_other_programs_are_left_out_and_counted(tmp_path, caplog, nested):
    pictures.write_classes(tmp_path, CLASSES, 5)
    for name in CLASSES:
        pictures.write(tmp_path, [f"{name}/@eaDir/0.png/SYNOPHOTO_THUMB_M.jpg"])
    pictures.write(tmp_path, ["__MACOSX/ash/._0.png", "#recycle/a/0.png", "ash/.thumbnails/0.png"])
    pictures.write(tmp_path, ["$RECYCLE.BIN/S-1/0.png", "ash/Catalog Previews.lrdata/0.png"])
    (tmp_path / "lost+found").mkdir(mode=0)
    found = find(tmp_path, nested=nested)
    assert found.class_names == CLASSES
    assert len(found) == 15
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "which are left out: #recycle (1), $RECYCLE.BIN (1), .thumbnails (1), @eaDir (3), Catalog "
        "Previews.lrdata (1), __MACOSX (1), lost+found (1)"
    )


def test_what_is_no_image_is_passed_over(tmp_path):
    pictures.write_classes(tmp_path, CLASSES, 5)
    for name in ("Thumbs.db", ".hidden.png", "notes.txt", "desktop.ini"):
        (tmp_path / "ash" / name).write_bytes(b"no image")
    (tmp_path / ".cache").mkdir()
    pictures.write(tmp_path, [".cache/a.png", "ash/.thumbnails/a.png"])
    assert len(find(tmp_path)) == 15


def test_suffixes_may_be_in_capitals(tmp_path):
    pictures.write_classes(tmp_path, CLASSES, 5)
    (tmp_path / "ash" / "0.png").rename(tmp_path / "ash" / "0.PNG")
    assert len(find(tmp_path)) == 15


def test_links_are_followed_and_loops_end(tmp_path):
    pictures.write_classes(tmp_path / "elsewhere", CLASSES, 5)
    root = tmp_path / "photos"
    root.mkdir()
    for name in CLASSES:
        (root / name).symlink_to(tmp_path / "elsewhere" / name)
    (tmp_path / "elsewhere" / "ash" / "loop").symlink_to(root)
    (root / "ash" / "up").symlink_to(root / "ash" / "up")
    (root / "ash" / "gone.txt").symlink_to(tmp_path / "nowhere")
    found = find(root)
    assert counts(found) == [[3] * 3, [1] * 3, [1] * 3]


def test_the_digest_changes_with_files_labels_and_sizes(tmp_path):
    pictures.write_classes(tmp_path, CLASSES, 5)

    def digest():
        return find(tmp_path).digest()

    seen = [digest()]
    assert digest() == seen[0]
    (tmp_path / "ash" / "0.png").rename(tmp_path / "ash" / "00.png")
    seen.append(digest())
    (tmp_path / "ash" / "00.png").rename(tmp_path / "birch" / "00.png")
    seen.append(digest())
    with (tmp_path / "birch" / "00.png").open("ab") as file:
        file.write(b"more")
    seen.append(digest())
    assert len(set(seen)) == 4


def test_classes_that_are_most_likely_one_are_told(tmp_path, caplog):
    pictures.write_classes(tmp_path, ["Ash", "ash", "birch", "oak  tree", "Oak tree"], 5)
    find(tmp_path)
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "has classes whose names differ only in case, spaces or characters that look alike: 'Ash' "
        "and 'ash', 'Oak tree' and 'oak  tree'"
    )


def test_names_that_look_alike_are_told_with_their_code_points(caplog):
    names = ["lady's", "lady\u2019s", "fir", "\ufb01r", "\u0430sh", "ash", "a-b", "a b"]
    class_names.warn_of_similar(names, "here")
    (record,) = caplog.records
    assert record.getMessage().endswith(
        ": 'lady's' and 'lady\u2019s' (lady<U+2019>s), 'fir' and '\ufb01r' (<U+FB01>r), "
        "'\u0430sh' (<U+0430>sh) and 'ash'"
    )


def test_copies_in_two_splits_are_told(tmp_path, caplog):
    pictures.write_classes(tmp_path / "train", CLASSES, 5)
    pictures.write_classes(tmp_path / "test", CLASSES, 5, size=(9, 9))
    find(tmp_path)
    assert not caplog.records
    for index in range(4):
        content = (tmp_path / "train" / "ash" / f"{index}.png").read_bytes()
        (tmp_path / "test" / "birch" / f"copy{index}.png").write_bytes(content)
    find(tmp_path)
    (record,) = caplog.records
    message = record.getMessage()
    assert "images of one split are in another too" in message
    assert "4 images: " in message
    assert message.count("copy") == 3


def test_images_are_read_only_if_they_have_the_end_of_another(tmp_path, monkeypatch, caplog):
    ends = {
        "train/ash/a": b"one",
        "train/ash/b": b"two",
        "train/ash/c": b"six",
        "train/ash/d": b"0",
    }
    ends |= {f"train/birch/{index}": b"%d" % index for index in range(1, 5)}
    ends |= {"test/ash/beginning": b"one", "test/ash/copy": b"two", "test/birch/e": b"ten"}
    for name, end in ends.items():
        path = tmp_path / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        beginning = b"other" if path.stem == "beginning" else b"equal"
        path.write_bytes(beginning + end.rjust(MARK_BYTES))
    read = []
    whole = Files.read
    monkeypatch.setattr(
        Files, "read", lambda files, index: (read.append(index), whole(files, index))[1]
    )
    find(tmp_path)
    assert len(read) == len(set(read)) == 4
    (record,) = caplog.records
    assert record.getMessage().endswith(": train/ash/b.jpg (also test/ash/copy.jpg)")


def test_groups_stay_together():
    labels = np.repeat([0, 1], 40)
    keys = [f"{index // 4}" for index in range(80)]
    roles = held_out.by_keys(labels, keys, validation=0.2, test=0.3)
    for start in range(0, 80, 4):
        assert len(set(roles[start : start + 4])) == 1
    for label in (0, 1):
        assert np.bincount(roles[labels == label]).tolist() == [20, 8, 12]


def test_a_large_group_does_not_keep_smaller_ones_from_being_held_out():
    # 30 images in one group and 70 alone, in 100 classes: the large group is first in some.
    labels = np.repeat(np.arange(100), 100)
    keys = [f"{index // 100} {max(index % 100, 29)}" for index in range(10_000)]
    roles = held_out.by_keys(labels, keys, validation=0.15, test=0.15)
    for label in range(100):
        assert np.bincount(roles[labels == label]).tolist() == [70, 15, 15]


@pytest.mark.parametrize("seed", range(20))
def test_groups_of_several_classes_leave_each_class_something_for_training(seed):
    """As the places in which several species were seen."""
    draw = np.random.default_rng(seed)
    labels, places = draw.integers(6, size=60), draw.integers(15, size=60)
    # A species that was seen in one place, after others.
    labels, places = np.append(labels, [6, 6]), np.append(places, [places[0]] * 2)
    roles = held_out.by_keys(labels, [f"place {one}" for one in places], validation=0.3, test=0.4)
    assert set(labels[roles == Role.TRAIN]) == set(labels)
    for place in range(15):
        assert len(set(roles[places == place])) <= 1
    assert Role.TEST in roles


def test_a_folder_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    pictures.write_classes(tmp_path, CLASSES, 5)

    def refuse(_path):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(folders.os, "scandir", refuse)
    with pytest.raises(UserError, match=r"cannot read \S+: Permission denied"):
        find(tmp_path)
