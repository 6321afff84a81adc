"""Small images that are kept decoded make the batches that their files make."""

import itertools

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.own.pictures import picture
from tests.rows import rows
from train.data.batches import SKIPPED, EvaluationBatches, TrainingBatches
from train.data.crops import ImageReader
from train.data.image_changes import CHANGES
from train.data.images import UnreadableImageError
from train.data.own import decoded_images
from train.data.own.encoded_images import Files
from train.data.records import Records, Split

SHAPE = (10, 12, 3)
READER = ImageReader.own(SHAPE, CHANGES["none"])


@pytest.fixture
def files(tmp_path):
    """Of many kinds, turned, of another size, damaged and missing."""
    turned = Image.Exif()
    turned[0x0112] = 6
    pictures = {
        "a.png": picture("a"),
        "b.png": picture("b", mode="L"),
        "c.png": picture("c", mode="P"),
        "d.tiff": picture("d", mode="CMYK"),
        "e.png": picture("e", mode="RGBA"),
        "f.jpg": picture("f"),
        "other.png": picture("other", size=(13, 10)),
    }
    for name, image in pictures.items():
        image.save(tmp_path / name)
    picture("g", size=(10, 12)).save(tmp_path / "turned.jpg", exif=turned)
    (tmp_path / "damaged.png").write_bytes((tmp_path / "a.png").read_bytes()[:100])
    return Files(tmp_path, (*pictures, "turned.jpg", "damaged.png", "missing.png"))


def batches(source, shape, changes, upright):
    """Two epochs of training and one of evaluation."""
    reader = ImageReader.own(shape, CHANGES[changes], upright=upright)
    split = Split(
        Records(source, np.arange(len(source)), "pictures", reader),
        np.arange(len(source), dtype=np.int32),
    )
    training = TrainingBatches(split, 5, skip_unreadable=True, seed=3)
    evaluation = EvaluationBatches(split, 5, skip_unreadable=True)
    return [
        *(training[step] for step in range(4)),
        *(evaluation[number] for number in range(len(evaluation))),
    ]


@pytest.mark.parametrize(
    ("changes", "channels"),
    rows([("none", 3), ("random_resized_crop", 1)], itertools.product(CHANGES, (1, 3))),
)
def test_batches_are_those_of_the_files(files, changes, channels):
    shape = (*SHAPE[:2], channels)
    for upright in (False, True):
        reader = ImageReader.own(shape, CHANGES[changes], upright=upright)
        decoded = decoded_images.kept(files, reader)
        expected = batches(files, shape, changes, upright)
        found = batches(decoded, shape, changes, upright)
        for one, other in zip(found, expected, strict=True):
            assert one.keys() == other.keys()
            assert one.pop(SKIPPED) == other.pop(SKIPPED)
            for name, array in one.items():
                np.testing.assert_array_equal(array, other[name])


def test_an_image_that_cannot_be_read_is_refused_as_before(files):
    decoded = decoded_images.kept(files, READER)
    for index in (8, 9):
        messages = set()
        for source in (files, decoded):
            records = Records(source, np.arange(len(source)), "pictures", READER)
            with pytest.raises(UnreadableImageError) as caught:
                READER.for_evaluation(*records.encoded(index))
            messages.add(str(caught.value))
        assert len(messages) == 1
