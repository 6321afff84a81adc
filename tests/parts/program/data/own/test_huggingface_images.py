"""Data sets of Hugging Face: opened, split, refused and read at random."""

import io
import json
import pickle
import re
import shutil
import socket

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from configs import huggingface as recipe
from tests.parts.program.data.own import page, parquet_pictures, refused, small_hub
from tests.parts.program.data.specs import dataset_spec
from train.data.own import unreadable_images
from train.foundation.errors import UserError

CLASSES = parquet_pictures.CLASSES
LABELS = [index % 3 for index in range(30)]
IMAGES = [parquet_pictures.encoded(f"train/{index}") for index in range(30)]


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    import datasets  # noqa: PLC0415

    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("trees")
    return parquet_pictures.write(
        root, {"train": LABELS, "validation": LABELS[:6], "test": LABELS[:9]}
    )


def configured(path, cache, **fields):
    config = recipe.get_config()
    config.dataset.update(data_dir=str(cache), batch_size=8, augmentation="none", **fields)
    config.dataset.path = None if path is None else str(path)
    config.model.name = "mlp"
    config.num_epochs = 2
    config.eval.ks = (1, 2)
    config.loss.k = 1
    config.select_by = "top_1_accuracy"
    return json.loads(config.to_json())


def load(path, cache, **fields):
    return dataset_spec(configured(path, cache, **fields)["dataset"]).load(str(cache))


def sizes(dataset):
    return [len(split) for split in (dataset.train, dataset.validation, dataset.test)]


def pixels(split):
    return [
        split.images.reader.for_evaluation(*split.images.encoded(index)).tobytes()
        for index in range(len(split))
    ]


def decoded(files):
    return [np.asarray(Image.open(io.BytesIO(file))).tobytes() for file in files]


def named(dataset, split):
    return [dataset.class_names[label] for label in split.labels]


def write_table(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_a_folder_is_opened_without_the_network_or_the_home_folder(folder, tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise AssertionError("the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "home")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for path in (folder, folder / "train.parquet"):
        load(path, tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_splits_of_other_names_are_fields(tmp_path, cache):
    splits = {"part-few": LABELS[:6], "part-most": LABELS}
    parquet_pictures.write(tmp_path, splits)
    files = [{"split": name[5:], "path": f"{name}.parquet"} for name in splits]
    described = json.dumps({"configs": [{"config_name": "default", "data_files": files}]})
    (tmp_path / "README.md").write_text(f"---\n{described}\n---\n")
    dataset = load(tmp_path, cache, train_split="most", test_split="few")
    # Validation images are held out of "most": 1.5 of each class, rounded up.
    assert sizes(dataset) == [24, 6, 6]
    with pytest.raises(UserError, match=r"train_split must be one of few, most, or None; got 'a'"):
        load(tmp_path, cache, train_split="a")


def test_splits_have_their_usual_names(tmp_path, cache):
    import datasets  # noqa: PLC0415

    names = {"Training": LABELS, "dev": LABELS[:6], "EVAL": LABELS[:9], "unlabeled": LABELS[:3]}
    opened = {name: parquet_pictures.split(name, labels) for name, labels in names.items()}
    datasets.DatasetDict(opened).save_to_disk(tmp_path / "trees")
    assert sizes(load(tmp_path / "trees", cache)) == [30, 6, 9]
    opened["test"] = opened["unlabeled"]
    datasets.DatasetDict(opened).save_to_disk(tmp_path / "more")
    with pytest.raises(UserError, match=r"the splits EVAL and test .*config\.dataset\.test_split"):
        load(tmp_path / "more", cache)
    assert sizes(load(tmp_path / "more", cache, test_split="test")) == [30, 6, 3]


def test_a_split_that_datasets_does_not_know_is_told(tmp_path, cache):
    for name in ("Train", "Test"):
        parquet_pictures.split(name, LABELS).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(UserError, match=r"^config.dataset.path \S+: .* take Test for training"):
        load(tmp_path, cache)


@pytest.mark.parametrize("none", [-1, None])
def test_a_split_without_labels_is_left_out(tmp_path, cache, caplog, none):
    parquet_pictures.write(tmp_path, {"train": LABELS, "test": [none] * 4})
    assert sizes(load(tmp_path, cache, test_fraction=0.1)) == [21, 6, 3]
    assert "the split test of config.dataset.path" in caplog.text
    with pytest.raises(UserError, match=r"dataset\.test_split: images of 'test' have no labels"):
        load(tmp_path, cache, test_split="test")
    # Not even a column for them.
    write_table(tmp_path / "test.parquet", {"image": IMAGES})
    assert sizes(load(tmp_path, cache, test_fraction=0.1)) == [21, 6, 3]


@pytest.mark.parametrize(
    ("kind", "values", "class_names"),
    [
        ("large_string", ["oak", "elm", "fir"], ("elm", "fir", "oak")),
        # Not as texts, where 10 comes before 2.
        ("int16", [10, 2, 7], ("2", "7", "10")),
    ],
)
def test_labels_may_be_texts_or_numbers(tmp_path, cache, kind, values, class_names):
    import datasets  # noqa: PLC0415

    of_train = [values[label] for label in LABELS]
    # What has no role has a class more.
    more = [*values, "yew" if isinstance(values[0], str) else 11]
    splits = {"train": of_train, "test": of_train[:9], "other": more}
    opened = {
        name: parquet_pictures.split(name, labels, kind=kind, label="species")
        for name, labels in splits.items()
    }
    datasets.DatasetDict(opened).save_to_disk(tmp_path / "trees")
    dataset = load(tmp_path / "trees", cache)
    assert dataset.class_names == class_names
    assert named(dataset, dataset.test) == list(map(str, of_train[:9]))


@pytest.mark.parametrize("form", ["bytes", "both", "one of two", "paths"])
def test_images_may_be_bytes_or_paths_in_a_table_of_other_programs(tmp_path, cache, form):
    # Bytes of two types, of one image in a file.
    images = [*IMAGES[:-1], None]
    (tmp_path / "pictures").mkdir()
    for index, image in enumerate(IMAGES):
        (tmp_path / "pictures" / f"{index}.png").write_bytes(image)
    paths = [f"pictures/{index}.png" for index in range(30)]
    both = [{"path": path, "bytes": image} for path, image in zip(paths, images, strict=True)]
    columns = {
        "bytes": {"photo": pyarrow.array(IMAGES, pyarrow.large_binary())},
        "both": {"photo": both},
        "one of two": {
            "photo": pyarrow.array(IMAGES, pyarrow.binary_view()),
            "thumb": IMAGES,
        },
        "paths": {"photo": paths},
    }[form]
    fields = {"label_column": "label"}
    if form in {"one of two", "paths"}:
        fields["image_column"] = "photo"
    file = write_table(tmp_path / "trees.parquet", {**columns, "label": LABELS})
    dataset = load(file, cache, **fields)
    assert pixels(dataset.train) == decoded(
        [IMAGES[index] for index in dataset.train.images.indices]
    )
    # The digest is of sizes, which do not depend on where the images are.
    same = load(write_table(tmp_path / "b.parquet", {"image": IMAGES, "label": LABELS}), cache)
    assert dataset.digest == same.digest


def test_a_run_goes_on_without_a_file_that_is_gone(tmp_path, cache):
    names = [f"{index}.png" for index in range(30)]
    for name, image in zip(names, IMAGES, strict=True):
        (tmp_path / name).write_bytes(image)
    columns = {"image": [{"bytes": None, "path": name} for name in names], "label": LABELS}
    file = write_table(tmp_path / "trees.parquet", columns)
    unopened = dataset_spec(configured(file, cache)["dataset"])
    before = unopened.load(str(cache))
    source = before.train.images.source
    for index in (0, 29):
        with source.open(index) as file:
            assert file.read() == IMAGES[index]
    (tmp_path / "7.png").unlink()
    dataset = unopened.going_on(before.files).load(str(cache))
    assert dataset.digest == before.digest != unopened.load(str(cache)).digest
    found = [
        name
        for split in (dataset.train, dataset.validation, dataset.test)
        for name in unreadable_images.find(split.images, check="headers")
    ]
    assert [len(chunk) for chunk in found] in ([1, 0, 0], [0, 1, 0], [0, 0, 1])


def test_what_datasets_saved_is_read_where_it_lies(tmp_path, cache, monkeypatch):
    train, test = (parquet_pictures.split("train", LABELS[:size]) for size in (30, 9))
    import datasets  # noqa: PLC0415

    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "several")
    # Saved in another order.
    train.select(range(29, -1, -1)).save_to_disk(tmp_path / "one")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "home")
    dataset = load(tmp_path / "several", tmp_path / "cache")
    assert len(dataset.test) == 9
    assert pixels(dataset.test) == decoded(IMAGES[:9])
    dataset = load(tmp_path / "one", tmp_path / "cache")
    assert pixels(dataset.train) == decoded(
        [IMAGES[29 - index] for index in dataset.train.images.indices]
    )
    assert {path.name for path in tmp_path.iterdir()} == {"several", "one"}


def test_images_reach_other_processes_by_the_names_of_their_files(folder, cache):
    source = load(folder, cache).train.images.source
    sent = pickle.dumps(source)
    # Whoever reads them does not import datasets, which takes seconds.
    assert b"datasets" not in sent.replace(str(cache).encode(), b"")
    assert len(sent) < 2000
    received = pickle.loads(sent)
    files, kept = ([one[index]["image"] for index in range(45)] for one in (received, source))
    assert decoded(files) == decoded(kept)


def test_the_digest_is_of_labels_sizes_and_splits_and_not_of_places(folder, tmp_path, cache):
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert load(moved, tmp_path / "cache").digest == load(folder, cache).digest
    changes = {
        "label": {"train": [*LABELS[:-1], 0], "validation": LABELS[:6], "test": LABELS[:9]},
        "split": {"train": LABELS, "validation": LABELS[:9], "test": LABELS[:6]},
    }
    seen = {load(folder, cache).digest}
    for name, splits in changes.items():
        seen.add(load(parquet_pictures.write(tmp_path / name, splits), cache).digest)
    # A file that changes where it is; the last image has a byte more.
    file = write_table(tmp_path / "trees.parquet", {"image": IMAGES, "label": LABELS})
    seen.add(load(file, cache).digest)
    write_table(file, {"image": [*IMAGES[:-1], IMAGES[-1] + b"0"], "label": LABELS})
    seen.add(load(file, cache).digest)
    assert len(seen) == 5


def test_copies_in_two_splits_are_told(tmp_path, cache, caplog):
    parquet_pictures.write(tmp_path, {"train": LABELS})
    shutil.copy(tmp_path / "train.parquet", tmp_path / "test.parquet")
    load(tmp_path, cache)
    assert "are in another too" in caplog.text
    # 30 training images, of which 6 were held out for validation: all are in the test split.
    assert "30 images: test[0] (also train[0]), " in caplog.text


MORE = {
    "genus": "class",
    "thumb": "image",
    "place": "float32",
}
REFUSED = {
    "two labels": ({"label": "species"}, {}, r"config\.dataset\.label_column na"),
    "no such column": ({}, {"label_column": "labels"}, r"label_column must be .*'labels'"),
    "no labels": ({}, {"label_column": "place"}, r"label_column must be .*'place'"),
    "no images": ({}, {"image_column": "place"}, r"image_column must be .*'place'"),
    "one split twice": ({}, {"test_split": "train"}, r"test_split must be .*'train'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_are_not_clear_are_told(tmp_path, cache, capfd, case):
    options, fields, message = REFUSED[case]
    folder = tmp_path / "trees"
    parquet_pictures.write(folder, {"train": LABELS}, **{"more": MORE, **options})
    line = refused.line_of(configured(folder, cache, **fields), tmp_path, capfd)
    assert re.search(message, line), line


def test_what_cannot_be_opened_is_told_in_a_line(tmp_path, cache, capfd):
    whole = parquet_pictures.write(tmp_path / "whole", {"train": LABELS}) / "train.parquet"
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(whole.read_bytes()[:-1000])
    beyond = tmp_path / "beyond.parquet"
    schema = pyarrow.parquet.read_schema(whole)
    table = pyarrow.parquet.read_table(whole)
    table = table.set_column(1, schema.field("label"), pyarrow.array([3] * 30, pyarrow.int64()))
    pyarrow.parquet.write_table(table, beyond)
    # Its code does not run.
    script = tmp_path / "script"
    script.mkdir()
    (script / "script.py").write_text("raise SystemExit(3)")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "gone", tmp_path / "empty", damaged, beyond, script):
        line = refused.line_of(configured(path, cache), tmp_path, capfd)
        assert line.startswith("config.dataset.path ")
        assert str(path) in line


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
            (datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "home")),
        ):
            monkeypatch.setattr(library, name, value)
        yield tmp_path / "hub"


def load_name(name, cache, **fields):
    return load(None, cache, huggingface_name=name, **fields)


def test_a_data_set_of_the_hub_is_read_from_the_cache_afterwards(
    hub, folder, cache, monkeypatch, tmp_path
):
    shutil.copytree(folder, hub / "user" / "trees")
    # A folder of this name is not meant.
    (tmp_path / "user" / "trees").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    dataset = load_name("user/trees", tmp_path / "cache")
    assert pixels(dataset.train) == decoded(IMAGES)
    assert dataset.test.images.encoded(2)[1] == "test[2] of user/trees"
    assert dataset.digest == load(folder, cache).digest
    # Without the hub, as `HF_HUB_OFFLINE=1` says.
    shutil.rmtree(hub)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert load_name("user/trees", tmp_path / "cache").digest == dataset.digest
    with pytest.raises(UserError, match=r"^config\.dataset\.huggingface_name 'user/other': Couldn"):
        load_name("user/other", tmp_path / "cache")


@pytest.mark.parametrize("name", ["user/gone", "user/old", "csv"])
def test_a_name_that_cannot_be_opened_is_told_in_a_line(hub, tmp_path, capfd, name):
    (hub / "user" / "old").mkdir(parents=True)
    (hub / "user" / "old" / "old.py").write_text("raise SystemExit(3)")
    config = configured(None, tmp_path / "cache", huggingface_name=name)
    line = refused.line_of(config, tmp_path, capfd)
    assert line.startswith("config.dataset.huggingface_name ")
    assert name in line


def test_either_a_path_or_a_name_is_given(folder, cache):
    with pytest.raises(UserError, match=r"either config\.dataset\.path.*; got both"):
        load(folder, cache, huggingface_name="user/trees")
    with pytest.raises(UserError, match=r"either config\.dataset\.path.*; got neither"):
        load_name(None, cache)


def test_the_page_packs_a_folder_into_one_file_byte_for_byte(tmp_path, cache, monkeypatch):
    for index, image in enumerate(IMAGES):
        photo = tmp_path / "photos" / CLASSES[LABELS[index]] / f"{index}.jpg"
        photo.parent.mkdir(parents=True, exist_ok=True)
        photo.write_bytes(image)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "packing"))
    lines = page.section("Many small files in one").splitlines()
    block = "\n".join(line[4:] for line in lines if line[:4] in ("", "    "))
    exec(compile(block, "own_data.md", "exec"), {})
    fields = configured(tmp_path / "photos.parquet", cache, image_size=8)["dataset"]
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    dataset = dataset_spec(fields).load(str(cache))
    assert dataset.class_names == tuple(sorted(CLASSES))
    found = {
        (dataset.class_names[label], split.images.encoded(index)[0])
        for split in dataset.splits.values()
        for index, label in enumerate(split.labels.tolist())
    }
    assert found == {(CLASSES[label], IMAGES[index]) for index, label in enumerate(LABELS)}
