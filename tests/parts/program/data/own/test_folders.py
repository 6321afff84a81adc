"""Folders of images: their classes, their splits, and what is refused."""

import re

import numpy as np
import pytest

from tests.parts.program.data.own import divided, pictures
from tests.parts.program.forked import ROOT
from tests.rows import rows
from train.data import image_formats
from train.data.own import folders, held_out
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
        (("training", "dev", "EVALUATION"), [[4] * 3] * 3),
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
    (message,) = caplog.messages
    assert message.endswith(": test, train")


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
    (message,) = caplog.messages
    assert f"'{NFD}' (he<U+0302>tre) and '{NFC}'" in message


def test_a_copy_with_names_in_another_form_has_the_same_splits(tmp_path):
    made = []
    for name in (NFC, NFD):
        root = tmp_path / f"of {len(made)}"
        # In the order of code points one form is before "hf", the other after it.
        pictures.write_classes(root, (name, "hf"), 20)
        found = find(root)
        made.append((found.class_names, counts(found), found.roles.tolist(), found.digest()))
    assert made[0] == made[1]


def test_folders_of_other_programs_are_left_out_and_counted(tmp_path, caplog):
    pictures.write_classes(tmp_path, CLASSES, 5)
    for name in CLASSES:
        pictures.write(tmp_path, [f"{name}/@eaDir/0.png/SYNOPHOTO_THUMB_M.jpg"])
    pictures.write(tmp_path, ["__MACOSX/ash/._0.png", "#recycle/a/0.png", "ash/.thumbnails/0.png"])
    found = find(tmp_path, nested=True)
    assert found.class_names == CLASSES
    assert len(found) == 15
    (message,) = caplog.messages
    assert message.endswith("#recycle (1), .thumbnails (1), @eaDir (3), __MACOSX (1)")


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
    (message,) = caplog.messages
    assert message.endswith(": 'Ash' and 'ash', 'Oak tree' and 'oak  tree'")


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


def test_a_large_group_does_not_keep_smaller_ones_from_being_held_out():
    # 30 images in one group and 70 alone, in 100 classes: the large group is first in some.
    labels = np.repeat(np.arange(100), 100)
    keys = [f"{index // 100} {max(index % 100, 29)}" for index in range(10_000)]
    roles = held_out.by_keys(labels, keys, validation=0.15, test=0.15)
    for label in range(100):
        assert np.bincount(roles[labels == label]).tolist() == [70, 15, 15]


@pytest.mark.parametrize("seed", rows(range(3), range(3, 20)))
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


def test_the_side_files_that_the_page_names_are_passed_over():
    page = (ROOT / "docs" / "own_data.md").read_text()
    named = page.partition("but side files such as")[2].partition(".\n")[0]
    endings = re.findall(r"`(\.[a-z0-9]+)`", named)
    assert len(endings) > 3
    assert all(image_formats.is_side_file(f"a{ending.upper()}") for ending in endings)
