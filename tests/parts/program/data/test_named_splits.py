"""Data sets with named splits, of Hugging Face and of tensorflow-datasets, become one table."""

import io
import json
import pickle
import resource
import runpy
import shutil
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from tests.parts.program.data import parquet_pictures, small_hub
from tests.parts.program.data.prepared_pictures import build
from train.data.examples import Split
from train.data.sources import huggingface
from train.data.sources import tfds as prepared
from train.foundation.errors import UserError

CLASSES = parquet_pictures.CLASSES
LABELS = [index % 3 for index in range(30)]
IMAGES = [parquet_pictures.encoded(f"train/{index}") for index in range(30)]
FIELDS: dict[str, Any] = {"config": None, "splits": {}, "image": None, "label": None, "group": None}


def find(path, cache, **fields):
    return huggingface.find(str(path), **{**FIELDS, "data_dir": str(cache), **fields})


def save(folder, splits, **options):
    """Has `datasets` save splits of any names with the labels that are given."""
    import datasets  # noqa: PLC0415

    made = {name: parquet_pictures.split(name, one, **options) for name, one in splits.items()}
    datasets.DatasetDict(made).save_to_disk(folder)


def write(path, columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def prepared_in(data_dir, splits=None):
    return prepared.find("trees", str(data_dir), splits=splits or {})


def found(library, folder, splits, chosen):
    """What each library gives of the same splits."""
    if library == "tfds":
        build(folder, splits)
        return prepared_in(folder, chosen)
    save(folder / "trees", splits)
    return find(folder / "trees", folder / "cache", splits=chosen)


TRAIN, VALIDATION, TEST = Split.TRAIN, Split.VALIDATION, Split.TEST
# The labels of the splits, the fields, and the sizes of the splits or the message.
SPLITS = {
    "usual names": ({"Training": 30, "dev": 6, "EVAL": 9, "more": 3}, {}, [30, 6, 9]),
    "other names": ({"few": 6, "most": 30}, {TRAIN: "most", TEST: "few"}, [30, 0, 6]),
    "unlabelled": ({"train": 9, "test": -4}, {}, [9, 0, 0]),
    "two": ({"train": 9, "test": 6, "eval": 3}, {}, r"test_split must be .* test and eval for te"),
    "no train": ({"few": 6, "test": 3}, {}, r"train_split must be one of few, test.* has none for"),
    "twice": ({"train": 9}, {TEST: "train"}, r"test_split must be .*each for one.*; got 'train'"),
    "asked": ({"train": 9, "test": -4}, {TEST: "test"}, r"examples of test have no labels"),
    "no label": ({"train": -9, "test": 4}, {}, r"examples of train have no labels"),
}


@pytest.mark.parametrize("library", ["huggingface", "tfds"])
@pytest.mark.parametrize("case", SPLITS)
def test_splits_are_found_by_their_names_or_by_fields(tmp_path, caplog, library, case):
    sizes, chosen, expected = SPLITS[case]
    splits = {name: LABELS[:size] if size > 0 else [-1] * -size for name, size in sizes.items()}
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            found(library, tmp_path, splits, chosen)
        return
    examples = found(library, tmp_path, splits, chosen)
    assert [len(examples.of_split(split)) for split in (TRAIN, VALIDATION, TEST)] == expected
    assert ("test has no labels, and is not used" in caplog.text) == (case == "unlabelled")
    assert examples.class_names == CLASSES
    assert examples.name(4) == f"{chosen.get(TRAIN, next(iter(sizes)))}[4]"
    last = examples.of_split(TEST if expected[2] else TRAIN)
    assert np.bincount(last.labels).tolist() == [len(last) // 3] * 3
    # They are sent to processes without the images, and read by threads.
    sent = pickle.dumps(examples.inputs)
    with ThreadPoolExecutor(4) as threads:
        read = list(threads.map(pickle.loads(sent).__getitem__, range(len(examples))))
    assert len(sent) < 10_000
    assert read == [examples.encoded(index) for index in range(len(examples))]


@pytest.mark.parametrize("form", ["bytes", "views", "both", "paths"])
def test_images_may_be_bytes_or_paths_in_a_table_of_other_programs(tmp_path, form):
    files = [f"{index}.png" for index in range(30)]
    for name, image in zip(files, IMAGES, strict=True):
        (tmp_path / name).write_bytes(image)
    columns = {
        "bytes": pyarrow.array(IMAGES, pyarrow.large_binary()),
        "views": pyarrow.array(IMAGES, pyarrow.binary_view()),
        "both": [{"path": path, "bytes": None} for path in files],
        "paths": files,
    }
    names = [f"tree {label}" for label in LABELS]
    file = write(tmp_path / "a.parquet", {"photo": columns[form], "label": names, "group": names})
    examples = find(file, tmp_path / "c", image="photo", label="label")
    assert [examples.encoded(index) for index in range(30)] == IMAGES
    assert (examples.groups == names).all()
    (tmp_path / "29.png").unlink()
    if form in ("both", "paths"):
        with pytest.raises(OSError, match=r"29\.png"):
            examples.encoded(29)


# The type, the labels, and their classes in order: numbers not as texts, where 10 is before 2.
VALUES = {
    "large_string": (["fir", "oak ", "e\u0301lan"], ("fir", "oak", "\u00e9lan"), "yew"),
    "int16": ([2, 7, 10], ("2", "7", "10"), 11),
    # Names that look the same are of one class.
    "class": ([0, 1, 2], ("oak", "\u00e9lan"), 0),
}


@pytest.mark.parametrize("kind", VALUES)
def test_labels_may_be_texts_numbers_or_classes(tmp_path, monkeypatch, kind):
    values, class_names, more = VALUES[kind]
    monkeypatch.setattr(parquet_pictures, "CLASSES", ("oak", "\u00e9lan", "e\u0301lan "))
    # What is no split of ours may have a class more.
    splits = {"train": [values[label] for label in LABELS], "other": [more, *values]}
    save(tmp_path / "trees", splits, kind=kind, label="species")
    examples = find(tmp_path / "trees", tmp_path, label="species")
    labels = [min(label, len(class_names) - 1) for label in LABELS]
    assert (examples.class_names, examples.labels.tolist()) == (class_names, labels)
    new = find(tmp_path / "trees", tmp_path, labelled=False)
    assert (len(new), new.class_names, {*new.labels.tolist()}) == (34, (), {-1})


MORE = {"genus": "class", "thumb": "image", "place": "float32"}
REFUSED = {
    "two labels": ({"label": "species"}, {}, r"label must be .* species \(class labels\), genus"),
    "no labels": ({}, {"label": "place"}, r"label must be .*'place', .* place \(of another kind\)"),
    "no images": ({}, {"image": "place"}, "image must be .*'place'"),
    "a part of what was saved": ({}, {"config": "fr"}, "part must be None .*'fr'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_are_not_clear_are_told(tmp_path, case):
    options, fields, message = REFUSED[case]
    save(tmp_path / "trees", {"train": LABELS}, **{"more": MORE, **options})
    with pytest.raises(UserError, match=rf"^config\.dataset\.{message}"):
        find(tmp_path / "trees", tmp_path, **fields)


def test_what_cannot_be_opened_is_told_in_a_line(tmp_path, monkeypatch):
    whole = parquet_pictures.write(tmp_path / "whole", {"train": LABELS}) / "train.parquet"
    content = whole.read_bytes()
    (tmp_path / "damaged.parquet").write_bytes(content[:-1000])
    (tmp_path / "pages.parquet").write_bytes(content[:100] + b"x" * 2000 + content[2100:])
    (tmp_path / "upper").mkdir()
    for split in ("Train", "Test"):
        shutil.copy(whole, tmp_path / "upper" / f"{split}-00000-of-00001.parquet")
    (tmp_path / "a.txt").write_text("text")
    for name in ("gone", "damaged.parquet", "pages.parquet", "a.txt", "upper"):
        with pytest.raises(UserError, match=name) as caught:
            find(tmp_path / name, tmp_path / "cache")
        assert "error occurred" not in str(caught.value)  # The reason is told.
        assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"^config.dataset.path needs the package datasets: pip"):
        runpy.run_path(huggingface.__file__)


def test_the_content_is_of_the_images_and_not_of_their_place(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise AssertionError("the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    folder = parquet_pictures.write(tmp_path / "trees", {"train": LABELS, "test": LABELS[:9]})
    digest = find(folder, tmp_path / "cache").digest()
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert find(moved, tmp_path / "cache").digest() == digest
    shutil.copy(folder / "test.parquet", moved / "train.parquet")
    seen = {digest, find(moved, tmp_path / "cache").digest()}
    # A file that changes where it is; the last image has a byte more.
    for last in (IMAGES[-1], IMAGES[-1] + b"0"):
        file = write(tmp_path / "a.parquet", {"image": [*IMAGES[:-1], last], "label": LABELS})
        seen.add(find(file, tmp_path / "cache").digest())
    assert len(seen) == 4


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The folder of a hub that this process asks, instead of the one of Hugging Face."""
    import datasets  # noqa: PLC0415
    from huggingface_hub import constants  # noqa: PLC0415

    with small_hub.serve(tmp_path / "hub") as address:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
        for library, name, value in (
            (constants, "ENDPOINT", address),
            (constants, "HUGGINGFACE_CO_URL_TEMPLATE", template),
            (constants, "HF_HUB_CACHE", str(tmp_path / "downloads")),
            (datasets.config, "HF_ENDPOINT", address),
        ):
            monkeypatch.setattr(library, name, value)
        yield tmp_path / "hub"


def test_a_data_set_of_the_hub_is_read_from_the_cache_afterwards(hub, monkeypatch, tmp_path):
    folder = parquet_pictures.write(hub / "user" / "trees", {"train": LABELS})
    local = find(folder, tmp_path / "cache").digest()
    examples = find("user/trees", tmp_path / "cache")
    assert [examples.encoded(index) for index in range(30)] == IMAGES
    assert examples.digest() == local
    with pytest.raises(UserError, match=r"^config.dataset.path user/gone: "):
        find("user/gone", tmp_path / "cache")
    # Without the hub, as `HF_HUB_OFFLINE=1` says.
    shutil.rmtree(hub)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert find("user/trees", tmp_path / "cache").digest() == local


TEXT, GENUS = tfds.features.Text(), tfds.features.ClassLabel(num_classes=2)
LISTED = {
    "author": (TEXT, lambda index: f"author {index % 3}" if index % 3 else ""),
    "license": (TEXT, lambda _: "cc-by"),
    "genus": (GENUS, lambda _: 0),
}


def test_all_but_the_images_is_listed_once(tmp_path, monkeypatch):
    build(tmp_path, {"train": LABELS}, **LISTED)
    examples = prepared_in(tmp_path)
    # As generated, all examples of a class have one author.
    credited = ["cc-by", "author 1, cc-by", "author 2, cc-by"]
    assert examples.credits.tolist() == [credited[label] for label in examples.labels]
    monkeypatch.setattr(prepared.Records, "example", None)  # No record is read.
    again = prepared_in(tmp_path)
    assert again.digest() == examples.digest()
    assert (again.credits == examples.credits).all()


# The name of the file of an example, the labels of the test split, and what the image is called.
CALLED = {
    "different": ("{}.jpg", {}, "{shade}.jpg"),
    "in each split": ("{}.jpg", {"test": LABELS[:3]}, "{split}/{shade}.jpg"),
    "alike": ("a.jpg", {}, "train[{place}]"),
}


@pytest.mark.parametrize("kind", CALLED)
def test_images_are_called_by_the_names_of_their_files(tmp_path, kind):
    file, more, called = CALLED[kind]
    build(tmp_path, {"train": LABELS, **more}, file_name=(TEXT, file.format))
    found = prepared_in(tmp_path)
    for place, (name, image) in enumerate(zip(found.names, found.inputs, strict=True)):
        # The shade of an image is its number before the records are shuffled.
        shade = np.asarray(Image.open(io.BytesIO(image)))[0, 0, 0]
        split = "train" if place < 30 else "test"
        assert name == called.format(split=split, shade=shade, place=place)


def test_damaged_files_are_told_and_lists_are_made_again(tmp_path):
    folder = build(tmp_path, {"train": LABELS}, **LISTED)

    def read_all():
        found = prepared_in(tmp_path)
        return found.digest(), [*found.inputs]

    before, (records,) = read_all(), folder.glob("*.array_record*")
    listed = folder / "examples-train.json"
    known, info = json.loads(listed.read_bytes()), folder / "dataset_info.json"
    of_list = rf"{listed} .*; delete it, and it is made again"
    seal = known.pop("sha256")
    of_records = rf"{folder} cannot be read: .*delete it and run"
    of_all = rf"the data set tfds:trees below {tmp_path} cannot be opened: .*delete it and run"
    wrong = [known | {"label": [3] * 30}, known | {"author": ["a"]}, {"label": LABELS}]
    wrong += [known | {"label": known["label"][::-1], "sha256": seal}]
    for path, content, message in (
        *((listed, json.dumps(one).encode(), of_list) for one in wrong),
        (records, records.read_bytes()[:1000], of_records),
        (records, records.read_bytes()[:70] + b"x" * 2**17, of_records),
        (records, None, rf"{records.name} is missing; if"),
        (info, info.read_bytes()[:50], of_all),
        (folder / "features.json", b"{}", of_all),
    ):
        whole = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(UserError, match=message) as caught:
            read_all()
        assert "\n" not in str(caught.value)
        path.unlink() if path == listed else path.write_bytes(whole)
        assert read_all() == before


def test_what_is_not_there_is_told(tmp_path):
    build(tmp_path, {"train": LABELS}, label="species", genus=(GENUS, lambda _: 0))
    for name, message in {
        "oxford_flowers102": "is not prepared in .*--dataset=tfds:oxford_flowers102 --data_dir=",
        "oxford_flower102": "tfds:oxford_flower102 below .* cannot be opened: .*not found",
        "trees": "must have a feature label of the kind ClassLabel; its features are .*species",
    }.items():
        with pytest.raises(UserError, match=message):
            prepared.find(name, str(tmp_path), splits={})


def test_more_files_of_records_are_open_than_a_process_usually_may_have(tmp_path):
    folder = build(tmp_path, {"train": LABELS}, num_shards=20)
    assert len(list(folder.glob("*.array_record*"))) == 20
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryFile() as file:  # The next one that is opened has its number.
        few = file.fileno() + 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        assert len({*prepared_in(tmp_path).inputs}) == 30
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
