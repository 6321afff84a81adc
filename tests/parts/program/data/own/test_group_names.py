"""The names of groups by a grammar: what each kind finds, and what is refused."""

import io
import re

import numpy as np
import pytest
from PIL import ExifTags, Image

from train.data.own import group_names
from train.foundation.errors import UserError

PATHS = ("oak/obs1_1.jpg", "oak/obs1_2.jpg", "ash/obs2_1.jpg", "ash/other.jpg")


def photograph(tags):
    """The bytes of a JPEG file with some fields of EXIF data."""
    image, exif = Image.fromarray(np.zeros((8, 8, 3), np.uint8)), Image.Exif()
    for name, value in tags.items():
        exif[ExifTags.Base[name]] = value
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif)
    return file.getvalue()


def find(grammar, paths=PATHS, encoded=(), **options):
    opened = {"open_image": lambda index: io.BytesIO(encoded[index])} if encoded else {}
    return group_names.find(grammar, paths, field="--group", **opened, **options)


def test_a_pattern_finds_its_capture_and_a_file_without_it_is_a_group(caplog):
    with caplog.at_level("WARNING"):
        found = find(r"(obs\d+)_")
    assert found == ("group obs1", "group obs1", "group obs2", "path ash/other.jpg")
    (line,) = caplog.messages
    assert "in 1 of 4 images, such as ash/other.jpg" in line


def test_names_that_look_the_same_are_one_group():
    assert find("(ch.*ne)_", ["a/che\u0302ne_1.jpg", "b/ch\u00eane_2.jpg", "c/chine_3.jpg"]) == (
        "group ch\u00eane",
        "group ch\u00eane",
        "group chine",
    )


def test_the_folder():
    assert find("parent") == ("group oak", "group oak", "group ash", "group ash")


def test_a_field_of_the_exif_data(caplog):
    encoded = [photograph({"ImageUniqueID": name} if name else {}) for name in ("a", "b", "a")]
    encoded.append(b"no image")
    found = find("exif:ImageUniqueID", encoded=encoded)
    assert found == ("group a", "group b", "group a", "path ash/other.jpg")
    assert "1 of 4" in caplog.text


def test_bursts_are_of_one_folder_and_camera():
    times = ["10:00:00", "10:00:04", "10:00:08", "10:01:00"]
    tags = [{"DateTimeOriginal": f"2026:05:01 {time}"} for time in times]
    paths = [f"oak/{index}.jpg" for index in (3, 2, 1, 0)]
    encoded = [photograph(one) for one in tags]
    first = "group oak/3.jpg"
    assert find("burst:5", paths, encoded) == (first, first, first, "group oak/0.jpg")
    assert len(set(find("burst:3", paths, encoded))) == 4
    other_folder = ["oak/3.jpg", "ash/2.jpg", "oak/1.jpg", "oak/0.jpg"]
    assert find("burst:5", other_folder, encoded)[1] == "group ash/2.jpg"
    encoded[1] = photograph({**tags[1], "Model": "another"})
    assert find("burst:5", paths, encoded)[1] == "group oak/2.jpg"


@pytest.mark.parametrize(
    "grammar", ["(obs", "(o)(b)", "(plant\\d+)", "(jpg)", "exif:ImageUniqueld", "burst:nan"]
)
def test_refused(grammar):
    with pytest.raises(UserError, match=r"^--group must be ") as error:
        find(grammar)
    found = grammar.removeprefix("exif:").removeprefix("burst:")
    assert f"'{found}'" in str(error.value)


def test_all_images_may_be_one_group_where_that_is_asked():
    assert set(find("(jpg)", may_be_one=True)) == {"group jpg"}


def test_a_search_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(group_names, "_MOST_SECONDS", 0.05)
    with pytest.raises(UserError, match=re.escape("'(a+)+$' takes more than 0.05 s, at aaa")):
        find("(a+)+$", ["a" * 60 + "b"])
