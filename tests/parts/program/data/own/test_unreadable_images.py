"""Images that cannot be read are found before a run needs them, and nothing else is refused."""

import io
import os
import pickle
import socket

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.own import pictures
from train import prepare
from train.data import dataset_spec
from train.data.batches import SkippedImage
from train.data.image_reader import ImageReader
from train.data.own import encoded_images, image_records, unreadable_images
from train.data.own.encoded_images import Files
from train.data.own.image_changes import OwnFraming
from train.data.own.unreadable_images import ALL, HEADERS
from train.data.records import Records
from train.prediction.embedding.found import configuration

READER = ImageReader(OwnFraming((16, 16, 3)))


def encoded(kind, size=(90, 70), **options):
    file = io.BytesIO()
    pictures.picture(kind, size=size).save(file, kind, **options)
    return file.getvalue()


def with_preview(photo):
    """A JPEG file whose header has a smaller JPEG file, as cameras write it."""
    preview = encoded("JPEG", (16, 12))
    segment = b"\xff\xe1" + (len(preview) + 2).to_bytes(2, "big") + preview
    return photo[:2] + segment + photo[2:]


def of_two_pictures():
    """A JPEG file of two pictures, as some phones write it."""
    more = [pictures.picture("second", size=(90, 70))]
    return encoded("MPO", save_all=True, append_images=more)


JPEG, PNG = encoded("JPEG"), encoded("PNG")
PROGRESSIVE = encoded("JPEG", progressive=True)
DAMAGED = PNG[: len(PNG) // 2] + bytes(40) + PNG[len(PNG) // 2 + 40 :]
# The content of a file, and whether training can read it.
WHOLE = {
    "JPEG": JPEG,
    "progressive JPEG": PROGRESSIVE,
    "JPEG with a preview": with_preview(JPEG),
    "JPEG of two pictures": of_two_pictures(),
    "something behind a JPEG": JPEG + b"SEFT" + bytes(500),
    "much behind a JPEG": JPEG + bytes(2**17),
    "PNG": PNG,
    "something behind a PNG": PNG + b"\0\n",
    # Pillow does not need it.
    "PNG without its end": PNG[:-12],
    "GIF": encoded("GIF"),
    "WEBP": encoded("WEBP"),
    "TIFF": encoded("TIFF"),
    "BMP": encoded("BMP"),
    "PPM": encoded("PPM"),
}
CUT = {
    "an empty file": b"",
    "a text": b"<html>404 not found</html>",
    "JPEG without its last byte": JPEG[:-1],
    "half a JPEG": JPEG[: len(JPEG) // 2],
    "half a progressive JPEG": PROGRESSIVE[: len(PROGRESSIVE) // 2],
    "half a JPEG with a preview": with_preview(JPEG)[: -len(JPEG) // 2],
    "the header of a JPEG": with_preview(JPEG)[: -len(JPEG) + 20],
    "zeros in the place of the end of a JPEG's header": JPEG[:100] + bytes(len(JPEG)),
    "half a PNG": PNG[: len(PNG) // 2],
    "half a WEBP": encoded("WEBP")[:-200],
    "a TIFF without its last strips": encoded("TIFF", (300, 300))[:140_000],
}


@pytest.fixture
def numbered(tmp_path):
    """Writes files, and returns them as records."""

    def write(contents):
        names = tuple(f"{number}.jpg" for number in range(len(contents)))
        for name, content in zip(names, contents, strict=True):
            (tmp_path / name).write_bytes(content)
        return Records(Files(tmp_path, names), np.arange(len(names)), str(tmp_path), READER)

    return write


def found_in(records, check):
    return {
        index: str(error)
        for chunk in unreadable_images.find(records, check=check)
        for index, error in chunk
    }


@pytest.mark.parametrize("check", [HEADERS, ALL])
def test_what_training_cannot_read_is_found_and_nothing_else(numbered, check):
    contents = {**WHOLE, **CUT}
    records = numbered(contents.values())
    found = found_in(records, check)
    assert [name for index, name in enumerate(contents) if index in found] == list(CUT)
    for index, message in found.items():
        assert f"{index}.jpg of " in message


def test_damage_within_is_found_where_all_images_are_decoded(numbered):
    records = numbered([PNG, DAMAGED])
    assert found_in(records, HEADERS) == {}
    assert found_in(records, ALL).keys() == {1}


def test_most_images_are_only_looked_at(numbered, monkeypatch):
    """Their bytes are not read, also where something is behind them."""
    quick = ("JPEG", "progressive JPEG", "something behind a JPEG", "PNG", "something behind a PNG")
    records = numbered([WHOLE[name] for name in quick])
    monkeypatch.setattr(Records, "encoded", lambda *_: pytest.fail("read"))
    assert found_in(records, HEADERS) == {}


def test_chunks_have_all_images(numbered):
    number = 2 * unreadable_images.CHUNK + 3
    records = numbered([b""] * number)
    assert list(found_in(records, HEADERS)) == list(range(number))
    assert list(found_in(records[np.array([5])], HEADERS)) == [0]


def odd_files(folder):
    """Files that are no files, by their names; none may be waited for."""
    os.mkfifo(folder / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket.jpg"))
    (folder / "device.jpg").symlink_to("/dev/zero")
    (folder / "nothing.jpg").symlink_to("gone.jpg")
    (folder / "circle.jpg").symlink_to("circle.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "gone.jpg").touch()
    (folder / "gone.jpg").unlink()
    return {
        "pipe.jpg": "it is a pipe or a device",
        "socket.jpg": "No such device or address",
        "device.jpg": "it is a pipe or a device",
        "nothing.jpg": "No such file or directory",
        "circle.jpg": "Too many levels of symbolic links",
        "folder.jpg": "Is a directory",
        "gone.jpg": "No such file or directory",
        "null\0byte.jpg": "its name has a null byte",
        "a" * 300 + ".jpg": "File name too long",
    }


@pytest.mark.parametrize("check", [HEADERS, ALL])
def test_what_is_no_file_is_found_without_waiting(tmp_path, check):
    expected = odd_files(tmp_path)
    records = Records(Files(tmp_path, tuple(expected)), np.arange(len(expected)), "here", READER)
    found = found_in(records, check)
    assert list(found.values()) == [
        f"cannot read {name} of here: {reason}" for name, reason in expected.items()
    ]
    sizes = encoded_images.file_sizes(tmp_path, list(expected))
    assert (sizes >= 0).tolist() == [
        name in ("pipe.jpg", "socket.jpg", "device.jpg", "folder.jpg") for name in expected
    ]


def test_a_file_that_may_not_be_read_is_found(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(JPEG)

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    records = Records(Files(tmp_path, ("a.jpg",)), np.arange(1), "here", READER)
    assert found_in(records, HEADERS) == {0: "cannot read a.jpg of here: Permission denied"}


# Other kinds of images


def test_records_are_looked_at_in_part(tmp_path):
    pictures.write_classes(tmp_path / "photos", ("ash", "birch"), 4, size=(70, 80))
    prepare.write_records("folder", tmp_path / "photos", tmp_path / "records", nested=False)
    source = image_records.read(tmp_path / "records").found.images
    for index in range(len(source)):
        whole = source[index]["image"]
        for one in (source, pickle.loads(pickle.dumps(source))):
            with one.open(index) as file:
                assert file.read(10) == whole[:10]
                file.seek(-7, os.SEEK_END)
                assert file.tell() == len(whole) - 7
                assert file.read() == whole[-7:]
                assert file.read() == b""
                file.seek(3)
                file.seek(2, os.SEEK_CUR)
                assert file.read() == whole[5:]
            with one.open(index) as file, Image.open(file) as image:
                assert image.size == (70, 80)


def load(path, **fields):
    return dataset_spec(configuration("folder", path, **fields)).load(None)


def test_images_that_are_kept_decoded_are_looked_at(tmp_path):
    pictures.write_classes(tmp_path, ("ash", "birch"), 6)
    (tmp_path / "ash" / "0.png").write_bytes(PNG[:-40])
    dataset = load(tmp_path)
    for check in (HEADERS, ALL):
        found = [
            found_in(split.images, check)
            for split in (dataset.train, dataset.validation, dataset.test)
        ]
        assert sum(map(len, found)) == 1


def test_all_are_named_in_one_message(caplog):
    def images(number):
        return [SkippedImage(f"{index:03}.jpg", "here", f"{index:03} is bad") for index in number]

    assert str(unreadable_images.refused(images([7]), "advice")) == "007 is bad; advice"
    assert caplog.text == ""
    message = str(unreadable_images.refused(images([2, 1]), "advice"))
    assert message == "2 images of here cannot be read: 001.jpg, 002.jpg; advice"
    assert [record.getMessage() for record in caplog.records] == ["001 is bad", "002 is bad"]
    caplog.clear()
    message = str(unreadable_images.refused(images(range(2000)), "advice"))
    assert message.startswith("2,000 images of here cannot be read: 000.jpg, 001.jpg, ")
    assert message.endswith("009.jpg, …; advice")
    assert len(caplog.records) == 1000
