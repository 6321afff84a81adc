"""Images of one's own: found anywhere, looked at once, divided by groups, and of a size."""

import dataclasses

import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data import observations, pictures, prepared_pictures
from tests.parts.program.data.observations import CLASSES, observation
from tests.parts.program.data.specs import dataset_spec
from train.data.batches import Batches
from train.data.look import Seen
from train.foundation.errors import UserError

PATHS = observations.names()
FIELDS = {"name": "images", "augmentation": "none", "normalization": "half"}


def spec(path, **fields):
    return dataset_spec({**FIELDS, "path": str(path), **fields})


def load(path, data_dir=None, **fields):
    return spec(path, **fields).load(None if data_dir is None else str(data_dir))


def test_what_looks_alike_is_a_group_or_is_told(tmp_path, caplog):
    root = observations.write(tmp_path, PATHS)
    dataset = load(root, group="near_duplicates")
    for split in dataset.splits.values():
        assert [*map(observation, split.groups)] == [*map(observation, split.names)]
    assert not dataset.alike.rows
    assert caplog.messages == []
    others = load(root)
    assert "look like those of groups" in caplog.messages[0]
    assert "--config.dataset.group=" in caplog.messages[0]
    assert {observation(row[0]) == observation(row[3]) for row in others.alike.rows} == {True}
    assert dataset.digest != others.digest


def test_a_run_looks_once_and_keeps_what_it_has_seen(tmp_path):
    root = observations.write(tmp_path, PATHS)
    (root / "ash" / "broken.jpg").write_bytes(b"404 not found")
    first = spec(root, group="near_duplicates", skip_unreadable=True)
    before = first.load(None)
    assert sum(map(len, before.splits.values())) == len(PATHS)
    kept = msgspec.json.decode(msgspec.json.encode(before.seen), type=Seen)
    # As another machine may go on, without the flag.
    unflagged = spec(root, group="near_duplicates")
    again = dataclasses.replace(unflagged, seen=kept, look=None).load(None)
    assert (again.digest, again.image_shape) == (before.digest, before.image_shape)
    for one, other in zip(again.splits.values(), before.splits.values(), strict=True):
        assert [*one.names] == [*other.names]
        assert [*one.groups] == [*other.groups]
    # Other images are looked at again.
    (root / PATHS[0]).unlink()
    with pytest.raises(TypeError):
        dataclasses.replace(first, seen=kept, look=None).load(None)


# The path, a field and its value, and what the line tells.
REFUSED = [
    ("photos", {"image": "file"}, "image is for .*: /.*photos$"),
    ("photos", {"group": "plant"}, "group must be a reg.*; 'plant' has 0 captures$"),
    ("a.csv", {"nested": True}, "nested is for a folder; .*: /.*a.csv$"),
    ("hf:photos", {"annotator": "who"}, "annotator is for .*: hf:photos$"),
    ("tfds:trees", {"part": "few"}, "part is for hf:NAME; .*: tfds:trees$"),
    ("tfds:", {}, "path must be tfds:NAME; got 'tfds:'$"),
]


def test_each_kind_of_path_has_fields_of_its_own(tmp_path):
    pictures.write_classes(tmp_path / "photos", CLASSES, 5)
    for path, fields, message in REFUSED:
        where = path if ":" in path else tmp_path / path
        with pytest.raises(UserError, match=rf"^config.dataset.{message}"):
            load(where, tmp_path, **fields)
    prepared_pictures.build(tmp_path, {"train": [0, 1, 2] * 5})
    found = load("tfds:trees", tmp_path, test_fraction=0.2, validation_fraction=0.2)
    assert [len(split) for split in found.splits.values()] == [9, 3, 3]


TURNED = Image.Exif()
TURNED[0x0112] = 6  # Rotated by a quarter to the right when it is shown.
PLAIN = {"size": (12, 10)}
# How images of even and of odd numbers are drawn and saved, fields, and the shape.
SHAPES = {
    "small": (PLAIN, PLAIN, {}, (10, 12, 3)),
    "grey": (PLAIN | {"mode": "L"}, PLAIN | {"mode": "L"}, {}, (10, 12, 1)),
    "some grey": (PLAIN | {"mode": "L"}, PLAIN, {}, (10, 12, 3)),
    "on their side": (PLAIN | {"exif": TURNED}, PLAIN | {"exif": TURNED}, {}, (12, 10, 3)),
    "of several sizes": (PLAIN, {"size": (12, 11)}, {}, (224, 224, 3)),
    "large": ({"size": (65, 10)}, {"size": (65, 10)}, {}, (224, 224, 3)),
    "a size of one's own": (PLAIN, PLAIN, {"image_size": 9}, (9, 9, 3)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_the_size_for_the_network(tmp_path, case):
    *drawn, fields, shape = SHAPES[case]
    for index in range(20):
        file = tmp_path / ("ash", "oak")[index // 2 % 2] / f"{index}.png"
        file.parent.mkdir(exist_ok=True)
        options = dict(drawn[index % 2])
        saved = {"exif": options.pop("exif")} if "exif" in options else {}
        pictures.picture(str(index), **options).save(file, **saved)
    assert load(tmp_path, **fields).image_shape == shape


def test_small_images_that_are_kept_decoded_make_the_batches_of_their_files(tmp_path):
    for index, mode in enumerate(("RGB", "L", "P", "RGBA", "CMYK") * 4):
        path = f"{('ash', 'oak')[index % 2]}/{index}.{'tiff' if mode == 'CMYK' else 'png'}"
        pictures.write(tmp_path, [path], mode=mode)
    for augmentation in ("none", "random_resized_crop"):
        train = load(tmp_path, augmentation=augmentation).train
        contents = [(tmp_path / name).read_bytes() for name in train.names]
        files = dataclasses.replace(train, inputs=contents, places=np.arange(len(train)))
        for seed in (None, 3):
            kept, read = (Batches(examples=one, size=5, seed=seed)[1] for one in (train, files))
            np.testing.assert_array_equal(kept["images"], read["images"])
