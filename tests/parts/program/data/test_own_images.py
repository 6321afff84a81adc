"""Images of one's own: found anywhere, looked at once, divided by groups, and of a size."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data import observations, pictures, prepared_pictures
from tests.parts.program.data.encoded_images import encode
from tests.parts.program.data.observations import CLASSES, PATTERN, observation
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


def in_folder(root):
    return observations.write(root / "photos", PATHS), PATTERN


def in_table(root):
    observations.write(root, PATHS)
    rows = [(path, path.partition("/")[0], observation(path)) for path in PATHS]
    with (root / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "label", "plant"), *rows])
    return root / "photos.csv", "plant"


def in_parquet(root):
    import datasets  # noqa: PLC0415

    columns = {
        "image": [{"bytes": encode(observations.photograph(one)), "path": None} for one in PATHS],
        "label": [CLASSES.index(path.partition("/")[0]) for path in PATHS],
        "plant": [observation(path) for path in PATHS],
    }
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    kinds["plant"] = datasets.Value("string")
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    (root / "trees").mkdir()
    made.to_parquet(root / "trees" / "train.parquet")
    return f"hf:{root / 'trees'}", "plant"


@pytest.mark.parametrize("make", [in_folder, in_table, in_parquet])
def test_splits_that_are_held_out_do_not_divide_groups(tmp_path, make, caplog):
    path, group = make(tmp_path)
    image = {"image": "file"} if make is in_table else {}
    dataset = load(path, tmp_path / "cache", group=group, **image)
    groups = [{*split.groups} for split in dataset.splits.values()]
    assert all(groups)
    assert sum(map(len, groups)) == len(set().union(*groups)) == len({*map(observation, PATHS)})
    for split in dataset.splits.values():
        assert make is in_parquet or [*split.groups] == [*map(observation, split.names)]
    assert dataset.class_names == CLASSES
    assert caplog.messages == []


def test_what_looks_alike_is_a_group_or_is_told(tmp_path, caplog):
    root, _ = in_folder(tmp_path)
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


def test_a_run_looks_once_and_keeps_what_it_has_seen(tmp_path, caplog):
    root, _ = in_folder(tmp_path)
    (root / "ash" / "broken.jpg").write_bytes(b"404 not found")
    with pytest.raises(UserError, match=r"ash/broken.jpg of .* is not an image.*skip_unreadable=T"):
        load(root)
    first = spec(root, group="near_duplicates", skip_unreadable=True)
    before = first.load(None)
    assert sum(map(len, before.splits.values())) == len(PATHS)
    (warning,) = caplog.messages
    assert f"1 of {len(PATHS) + 1} images" in warning
    kept = Seen.from_plain(json.loads(json.dumps(before.seen.to_plain())))
    # As another machine may go on, without the flag.
    again = dataclasses.replace(spec(root, group="near_duplicates"), seen=kept, look=None).load(
        None
    )
    assert again.digest == before.digest
    assert again.image_shape == before.image_shape
    for one, other in zip(again.splits.values(), before.splits.values(), strict=True):
        assert [*one.names] == [*other.names]
        assert [*one.groups] == [*other.groups]
    # Other images are looked at again.
    (root / PATHS[0]).unlink()
    with pytest.raises(TypeError):
        dataclasses.replace(first, seen=kept, look=None).load(None)


def test_each_kind_of_path_has_fields_of_its_own(tmp_path):
    pictures.write_classes(tmp_path / "photos", CLASSES, 5)
    (tmp_path / "a.csv").write_text("path,label\nphotos/ash/0.png,ash\n")
    prepared_pictures.build(tmp_path, {"train": [0, 1, 2] * 5})
    for path, field, value in (
        ("photos", "image", "file"),
        ("photos", "labels", "votes"),
        ("a.csv", "nested", True),
        ("a.csv", "test_split", "exam"),
        ("hf:photos", "annotator", "who"),
        ("tfds:trees", "part", "few"),
    ):
        where = path if ":" in path else tmp_path / path
        with pytest.raises(UserError, match=rf"^config.dataset.{field} is for .*{where}$"):
            load(where, tmp_path, **{field: value})
    for path in ("hf:", "tfds:"):
        with pytest.raises(
            UserError, match=rf"^config.dataset.path must be {path}NAME; got '{path}'$"
        ):
            load(path, tmp_path)
    with pytest.raises(
        UserError, match=r"^config.dataset.group must be a reg.*; 'plant' has 0 captures$"
    ):
        load(tmp_path / "photos", group="plant")
    found = load("tfds:trees", tmp_path, test_fraction=0.2, validation_fraction=0.2)
    assert [len(split) for split in found.splits.values()] == [9, 3, 3]


def shape_of(root, picture, **fields):
    """The shape for images that a function makes of their numbers."""
    for index in range(20):
        file = root / ("ash", "oak")[index % 2] / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image, options = picture(index)
        image.save(file, **options)
    return load(root, **fields).image_shape


def plain(size, mode="RGB"):
    return lambda index: (pictures.picture(str(index), size=size, mode=mode), {})


def turned(index):
    exif = Image.Exif()
    exif[0x0112] = 6  # Rotated by a quarter to the right when it is shown.
    return pictures.picture(str(index)), {"exif": exif}


SHAPES = {
    "small": (plain((12, 10)), {}, (10, 12, 3)),
    "small and grey": (plain((12, 10), "L"), {}, (10, 12, 1)),
    "small on their side": (turned, {}, (12, 10, 3)),
    "small of several sizes": (lambda one: plain((12, 10 + one % 2))(one), {}, (224, 224, 3)),
    "large": (plain((65, 10)), {}, (224, 224, 3)),
    "some grey": (lambda one: plain((12, 10), "L" if one else "RGB")(one), {}, (10, 12, 3)),
    "a size of one's own": (plain((12, 10)), {"image_size": 9}, (9, 9, 3)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_the_size_for_the_network(tmp_path, case):
    picture, fields, shape = SHAPES[case]
    assert shape_of(tmp_path, picture, **fields) == shape


def test_small_images_that_are_kept_decoded_make_the_batches_of_their_files(tmp_path):
    modes = ("RGB", "L", "P", "RGBA", "CMYK")
    for index in range(20):
        mode = modes[index % 5]
        path = (
            tmp_path / ("ash", "oak")[index % 2] / f"{index}.{'tiff' if mode == 'CMYK' else 'png'}"
        )
        path.parent.mkdir(exist_ok=True)
        pictures.picture(path.name, mode=mode).save(path)
    for augmentation in ("none", "random_resized_crop"):
        train = load(tmp_path, augmentation=augmentation).train
        files = dataclasses.replace(
            train,
            inputs=[(tmp_path / name).read_bytes() for name in train.names],
            places=np.arange(len(train)),
        )
        for seed in (None, 3):
            kept, read = (Batches(examples=one, size=5, seed=seed)[1] for one in (train, files))
            np.testing.assert_array_equal(kept["images"], read["images"])
