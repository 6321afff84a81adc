"""Prepared data sets that are damaged on disk: told in one line when they are opened or read."""

import errno
import os
import pickle
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.train.data import small
from train import prepare
from train.data import builders, prepared_files, record_shards
from train.data.digits import Digits
from train.data.photographs import PhotographReader
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
        skip_unreadable=False,
    )
    return tmp_path / "plantnet300k/1.1.0"


def opened(folder):
    return builders.open_builder(
        Plantnet300k, str(folder.parents[1]), name="plantnet300k", generate_on_use=False
    )


def read(folder):
    return prepared_files.read(opened(folder), "train", reader=PhotographReader((224, 224, 3)))


def first_shard(folder):
    return min(folder.glob("*-train.array_record*"))


def test_records_read_the_same_in_another_process(folder):
    records = read(folder).images
    sent = pickle.loads(pickle.dumps(records))
    assert [sent.encoded(index) for index in range(len(sent))] == [
        records.encoded(index) for index in range(len(records))
    ]
    assert len(list(records.source)) == len(records)


def open_files(folder):
    """The files of a folder that this process has open."""
    links = Path("/proc/self/fd").iterdir()
    targets = [link.readlink() for link in links if link.is_symlink()]
    return [path for path in targets if path.is_relative_to(folder)]


def test_of_many_files_of_records_few_are_open(folder, monkeypatch):
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
    assert len(open_files(folder)) == 2


def test_a_limit_of_open_files_is_no_damage(folder):
    records = read(folder).images
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No number is free: a new file gets the lowest one that is.
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(UserError, match=r"may not have more files open; `ulimit -n` says"):
            records.encoded(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


@pytest.mark.parametrize("content", [b"", b"text"])
def test_a_damaged_list_of_labels_is_told(folder, content):
    (folder / "labels-train.npy").write_bytes(content)
    with pytest.raises(UserError, match=rf"{folder} is damaged \("):
        read(folder)


def test_a_damaged_description_names_the_data_set_and_not_the_folder_of_all(folder):
    (folder / "dataset_info.json").write_text("{")
    data_dir = folder.parents[1]
    with pytest.raises(UserError, match=rf"the prepared data set plantnet300k below {data_dir} is"):
        read(folder)


def test_a_run_that_prepares_into_a_file_says_how_to_choose_a_folder(tmp_path):
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(UserError, match=r"cannot be written to .* --config\.dataset\.data_dir"):
        builders.open_builder(Digits, str(tmp_path / "data"), name="digits", generate_on_use=True)


def test_preparing_on_first_use_and_opening_are_silent(tmp_path, caplog, capfd):
    for _ in range(2):
        builders.open_builder(Digits, str(tmp_path), name="digits", generate_on_use=True)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_of_two_processes_that_prepare_at_once_both_have_the_data_set(tmp_path, monkeypatch):
    def be_second(builder):
        builder.download_and_prepare()
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(builder.data_dir))

    monkeypatch.setattr(builders, "generate", be_second)
    opened = builders.open_builder(Digits, str(tmp_path), name="digits", generate_on_use=True)
    assert opened.is_prepared()

    def fail(builder):
        raise OSError(errno.ENOSPC, "No space left on device", str(builder.data_dir))

    monkeypatch.setattr(builders, "generate", fail)
    with pytest.raises(OSError, match="No space left"):
        builders.open_builder(Digits, str(tmp_path / "full"), name="digits", generate_on_use=True)
