"""Addresses in the place of paths are refused, with what to do instead."""

import pytest

from train.configuration.parsing import parse
from train.data.own import tables
from train.foundation import addresses
from train.foundation.errors import UserError

MOUNT = "mount the bucket, as with gcsfuse or rclone mount, and give the path in the mount"
ADVICE = {
    "gs://bucket/run": MOUNT,
    # As a Path has it.
    "gs:/bucket/run": MOUNT,
    "s3://bucket": MOUNT,
    "S3://bucket": MOUNT,
    "photos,s3://bucket": MOUNT,
    "abfs://container@account/x": MOUNT,
    "https://example.org/photos.zip": "download what is there, and give its path",
    "file:///data/photos": "give only the path, /data/photos",
    "hdfs://name/photos": "mount what is there, and give the path in the mount",
}
PATHS = [
    "",
    "photos",
    "/data/photos",
    "C:/photos",
    "a:b",
    "tfds:oxford_flowers102",
    "a,b",
    "x/gs:/y",
]


@pytest.mark.parametrize("address", ADVICE)
def test_an_address_is_refused_with_what_to_do(address):
    with pytest.raises(UserError) as caught:
        addresses.refuse("--workdir", address)
    expected = f"--workdir must be a path in a file system; {address} is an address: "
    assert str(caught.value) == expected + ADVICE[address]


@pytest.mark.parametrize("path", [*PATHS, None, 3, (1, 2), True])
def test_a_path_is_not_refused(path):
    addresses.refuse("--workdir", path)


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--workdir=gs://b"], "--workdir"),
        (["--images", "a.png", "--images", "s3://b/x"], "--images"),
        (["--config=gs://b/recipe.py"], "--config"),
        (["--config=folder", "--config.dataset.path=s3://b"], "--config.dataset.path"),
    ],
)
def test_every_flag_is_looked_at(arguments, flag):
    with pytest.raises(UserError, match=f"^{flag} must be a path in a file system"):
        addresses.check_arguments(["train.main", *arguments])


def test_names_may_be_any_text(monkeypatch):
    addresses.check_arguments(["train.predict", "--names=http://a", "--shard=0/4", "--cluster"])
    monkeypatch.setenv("TFDS_DATA_DIR", "gs://bucket/data")
    with pytest.raises(UserError, match=r"^the environment variable TFDS_DATA_DIR must be a path"):
        addresses.check_arguments(["train.main"])


def test_fields_of_configurations_are_looked_at():
    with pytest.raises(UserError, match=r"^config\.dataset\.path must be a path in a file system"):
        parse({"dataset": {"name": "folder", "path": "gs://bucket/photos"}})


def test_paths_of_a_table_are_looked_at(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("path,label\ngs://bucket/a.png,oak\n")
    with pytest.raises(UserError, match=r"line 2, must be a path in a file system; gs://bucket/a"):
        tables.find(table)
