"""A full disk is one line, whatever error a library raises."""

import errno
import os
import shutil
from types import SimpleNamespace

import pytest

from train.foundation import full_disks

MEGABYTE = 10**6


@pytest.fixture
def disk(monkeypatch):
    """Every folder is on a disk of three megabytes, with half a megabyte free."""
    usage = SimpleNamespace(free=MEGABYTE // 2, total=3 * MEGABYTE)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage if folder.exists() else None)


@pytest.mark.parametrize(
    "error",
    [
        ValueError('Error writing "step/0" in OCDBT database: No space left on device [code=28]'),
        OSError(errno.ENOSPC, "No space left on device", "a file"),
        OSError("Not enough disk space. Needed: Unknown size (download: Unknown size)"),
    ],
)
def test_the_disk_is_named_and_how_full_it_is(tmp_path, disk, error):
    reason = full_disks.reason(error, tmp_path / "not" / "there")
    assert reason.startswith("No space left on device; the disk at /")
    assert reason.endswith(" has 0.5 of 3.0 MB free")
    mounted = reason.removeprefix("No space left on device; the disk at ").partition(" has ")[0]
    assert os.path.ismount(mounted)
    assert tmp_path.is_relative_to(mounted)


def test_limits_are_told_without_a_disk(tmp_path, disk):
    for code in (errno.EDQUOT, errno.EFBIG):
        told = full_disks.reason(RuntimeError(f"write() failed: {os.strerror(code)} [x]"), tmp_path)
        assert told == os.strerror(code)


def test_other_errors_have_other_reasons(tmp_path, disk):
    assert full_disks.reason(ValueError("the file is damaged"), tmp_path) is None
    assert full_disks.reason(OSError(errno.EACCES, "Permission denied", "a"), tmp_path) is None
