"""Prepared data sets that are damaged on disk end in one line when they are opened or read."""

import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.parts.program.data import small
from train import prepare
from train.data import builders, photographs, prepared_files, record_shards
from train.data.plantnet300k import Plantnet300k
from train.foundation.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Prepared photographs."""
    small.shrink(monkeypatch.setattr)
    small.plantnet(tmp_path / "manual")
    prepare.prepare(
        "plantnet300k",
        data_dir=str(tmp_path),
        manual_dir=str(tmp_path / "manual"),
    )
    return tmp_path / "plantnet300k/1.1.0"


def opened(folder):
    return builders.open_builder(Plantnet300k, str(folder.parents[1]), name="plantnet300k")


def read(folder):
    builder = opened(folder)
    prepared_files.check_files(builder)
    return prepared_files.read(builder, "train", reader=photographs.READER)


def first_shard(folder):
    return min(folder.glob("*-train.array_record*"))


def test_records_read_the_same_in_another_process(folder):
    records = read(folder).images
    sent = pickle.loads(pickle.dumps(records))
    assert [sent.encoded(index) for index in range(len(sent))] == [
        records.encoded(index) for index in range(len(records))
    ]
    assert len(list(records.source)) == len(records)


def test_threads_read_more_files_of_records_than_are_open(folder, monkeypatch):
    decoders = {"image": tfds.decode.SkipDecoding()}
    by_tfds = opened(folder).as_data_source("train", decoders=decoders)
    expected = [example["image"] for example in by_tfds]
    assert len({*expected}) > 1
    del by_tfds
    monkeypatch.setattr(record_shards, "MOST_OPEN", 2)
    assert len(list(folder.glob("*-train.array_record*"))) > 2
    records = read(folder).images
    order = np.random.default_rng(0).permutation(3 * len(records)) % len(records)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(records.encoded, order.tolist()))
    assert [image for image, _ in found] == [expected[index] for index in order]


# The file is filled up to 64 KiB at the end: the records are in the first few.
@pytest.mark.parametrize(
    "damage", [lambda content: content[:1000], lambda content: content[:70] + b"x" * 4000]
)
def test_a_damaged_record_is_told_when_it_is_read(folder, damage):
    shard = first_shard(folder)
    shard.write_bytes(damage(shard.read_bytes()))
    records = read(folder).images
    message = rf"{folder} is damaged \(.*\); delete its folder and prepare it again"
    with pytest.raises(UserError, match=message) as caught:
        [records.encoded(index) for index in range(len(records))]
    assert "\n" not in str(caught.value)


def test_a_missing_file_of_records_is_told_at_once(folder):
    shard = first_shard(folder)
    shard.unlink()
    with pytest.raises(UserError, match=rf"{folder} is damaged \({shard.name} is missing\)"):
        read(folder)


def changed_labels(change):
    def content(labels):
        return prepared_files.labels_content(change(labels))

    return content


def with_label(label):
    """Labels with one changed."""

    def change(labels):
        labels = labels.astype(np.int64)
        labels[3] = label
        return labels

    return changed_labels(change)


LABELS = {
    "text": (lambda _: b"text", "it is not an .npy file"),
    "negative": (with_label(-2), "the label of example 3 is -2, of 6 classes"),
    "missing": (with_label(-1), "train has an example without a label"),
    "too large": (with_label(6), "the label of example 3 is 6, of 6 classes"),
    "floats": (changed_labels(lambda labels: labels + 0.5), "its numbers are not integers"),
    "fewer": (changed_labels(lambda labels: labels[:-1]), r"it is of \[29\] of 30 examples"),
}


@pytest.mark.parametrize("case", LABELS)
def test_damaged_labels_are_told(folder, case):
    change, reason = LABELS[case]
    path = folder / "labels-train.npy"
    whole = path.read_bytes()
    path.write_bytes(change(np.load(path)))
    with pytest.raises(
        UserError, match=r"labels-train\.npy: changed since it was written\); delete that"
    ):
        read(folder)
    # As an earlier version has prepared it.
    (folder / "checksums.json").unlink()
    with pytest.raises(UserError, match=rf"{folder} is damaged \(.*{reason}"):
        read(folder)
    # The remedy that the message names.
    path.unlink()
    assert read(folder).labels.tolist() == np.load(io.BytesIO(whole)).tolist()
    assert path.read_bytes() == whole


def test_labels_that_are_listed_on_use_have_a_checksum(folder):
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "checksums.json").unlink()
    for path in folder.glob("labels-*.npy"):
        path.unlink()
    # As tfds has prepared it.
    read(folder)
    path = folder / "labels-train.npy"
    assert path.read_bytes() == whole[path.name]
    read(folder)
    path.write_bytes(with_label(5)(np.load(path)))
    with pytest.raises(UserError, match=r"labels-train\.npy: changed since it was written\)"):
        read(folder)


@pytest.mark.parametrize(
    "name", ["features.json", "dataset_info.json", "label.labels.txt", "credits-test.json"]
)
def test_a_changed_letter_of_a_description_is_told(folder, name):
    content = bytearray((folder / name).read_bytes())
    place = max(place for place, byte in enumerate(content) if chr(byte).isalnum())
    content[place] = ord("3") if content[place] != ord("3") else ord("4")
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=r"the prepared data set .* is damaged \(") as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_records_of_which_any_byte_changed_are_told_or_the_same(folder, rng):
    """The format has a checksum of each record and of its list of records."""
    shard = first_shard(folder)
    whole, expected = shard.read_bytes(), records_of(folder)
    told = 0
    for place in rng.integers(len(whole), size=60):
        content = bytearray(whole)
        content[place] ^= 1 << int(rng.integers(8))
        shard.write_bytes(content)
        try:
            assert records_of(folder) == expected
        except UserError:
            told += 1
    assert told > 0


def records_of(folder):
    images = read(folder).images
    return [images.encoded(index) for index in range(len(images))]
