"""Images that cannot be read are found before a run needs them, and nothing else is refused."""

import io

import numpy as np
import pytest

from tests.parts.program.data.own import pictures
from train.data import dataset_spec
from train.data.crops import NO_CHANGE, ImageReader
from train.data.own import unreadable_images
from train.data.own.encoded_images import Files
from train.data.own.unreadable_images import ALL, HEADERS
from train.data.records import Records
from train.prediction.embedding.found import configuration

READER = ImageReader.own((16, 16, 3), NO_CHANGE)


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


def test_chunks_have_all_images(numbered):
    number = 2 * unreadable_images.CHUNK + 3
    records = numbered([b""] * number)
    assert list(found_in(records, HEADERS)) == list(range(number))
    assert list(found_in(records[np.array([5])], HEADERS)) == [0]


# Other kinds of images


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
