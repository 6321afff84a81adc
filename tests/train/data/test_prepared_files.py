"""Prepared data sets that are damaged on disk: told in one line when they are opened or read."""

import errno
import pickle

import pytest

from tests.train.data import small
from train import prepare
from train.data import builders, prepared_files
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


def read(folder):
    builder = builders.open_builder(
        Plantnet300k, str(folder.parents[1]), name="plantnet300k", generate_on_use=False
    )
    return prepared_files.read(builder, "train", reader=PhotographReader((224, 224, 3)))


def first_shard(folder):
    return min(folder.glob("*-train.array_record*"))


def test_records_read_the_same_in_another_process(folder):
    records = read(folder).images
    sent = pickle.loads(pickle.dumps(records))
    assert [sent.encoded(index) for index in range(len(sent))] == [
        records.encoded(index) for index in range(len(records))
    ]
    assert len(list(records.source)) == len(records)


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
