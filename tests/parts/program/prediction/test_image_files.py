"""A person's image files: which are found, and which cannot be read."""

import io
import struct
import zlib

import pytest
from PIL import Image

from tests.parts.program.prediction.made import Fake
from train.foundation.errors import UserError
from train.prediction import inputs, predicting
from train.reports import rules


def png():
    file = io.BytesIO()
    Image.effect_noise((12, 8), 50).save(file, "PNG")
    return file.getvalue()


def test_what_cannot_be_read_is_named_in_a_line(tmp_path):
    (tmp_path / "whole.png").write_bytes(png())
    # A half of a file, and a file of few bytes whose image would fill the memory.
    large = struct.pack(">II", 30_000, 30_000) + png()[24:29]
    chunk = b"IHDR" + large
    header = png()[:12] + chunk + struct.pack(">I", zlib.crc32(chunk))
    damaged = {"empty.jpg": b"", "cut.png": png()[:60], "large.png": header + png()[33:]}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "gone.png").symlink_to("nowhere")
    classifier = Fake()
    examples = inputs.fit_for(inputs.find([str(tmp_path)], None, None), classifier, None)
    found = predicting.predict(classifier, rules.parse("top_k=1"), examples, thumbnails=False)
    errors = {one["path"]: one["error"] for entry in found for one in entry.unreadable_origins}
    assert {*errors} == {str(tmp_path / name) for name in (*damaged, "gone.png")}
    assert all(path in error and "\n" not in error for path, error in errors.items())


@pytest.fixture
def folder(tmp_path):
    names = (
        "b.JPG a.png below/c.webp below/deeper/d.tif a,b.png notes.txt of_a_camera.NEF no_ending "
    )
    names += ".hidden.png .thumbnails/e.png below/@eaDir/c.webp/SYNOPHOTO_THUMB_M.jpg"
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "gone.png").symlink_to("nowhere")
    return tmp_path


def names(folder, *values):
    found = inputs.image_files([value.replace("@", str(folder)) for value in values])
    return [str(path.relative_to(folder)) for path in found]


def test_the_images_of_a_folder_are_found_in_order(folder):
    below = ["below/c.webp", "below/deeper/d.tif"]
    # Only what is called as an image; side files and hidden files are left out.
    found = names(folder, "@")
    assert found == ["a,b.png", "a.png", "b.JPG", *below, "gone.png"]
    assert names(folder, "@/below/,@/a.png") == [*below, "a.png"]
    assert names(folder, "@/a.png", "@/below") == ["a.png", *below]


def test_a_name_in_another_form_of_unicode_finds_its_file(folder):
    (folder / "he\u0302tre").mkdir()
    (folder / "he\u0302tre" / "1.png").touch()
    assert names(folder, "@/h\u00eatre,@/h\u00eatre/1.png") == 2 * ["he\u0302tre/1.png"]


def test_a_file_that_is_named_is_taken_and_a_comma_may_be_in_its_name(folder):
    assert names(folder, "@/no_ending,@/.hidden.png") == ["no_ending", ".hidden.png"]
    assert names(folder, "@/a,b.png") == ["a,b.png"]
    assert names(folder, "@/a.png,@/b.JPG", "@/a,b.png") == ["a.png", "b.JPG", "a,b.png"]
    # A file with the complete name is meant.
    (folder / "a.png,b.JPG").touch()
    assert names(folder, "@/a.png,b.JPG") == ["a.png,b.JPG"]


@pytest.mark.parametrize("value", ["@/a.png,@/x.png", "@/folder.png"])
def test_what_is_not_there_is_refused(folder, value):
    with pytest.raises(UserError, match="--images"):
        names(folder, value)
