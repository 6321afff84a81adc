"""Files of others are opened without waiting, up to a size, and their folders hold no traps."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from train.classifiers.flags import ChosenClassifier
from train.data.sources import table
from train.data.sources.folder import Files
from train.foundation import file_locks, files, folder_lock
from train.foundation.errors import UserError
from train.series.child_processes import ChildProcesses
from train.workdir.metrics_file import MetricsFile

MIB = 2**20


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Path]:
    """What would be read for ever, or waited for, by name."""
    # A limit for a hang, which the handler ends by an error.
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zeros.jpg").symlink_to("/dev/zero")
    with (tmp_path / "sparse.jpg").open("wb") as file:
        file.truncate(40 * 2**30)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


KINDS = {
    "pipe": "it is a pipe or a device",
    "zeros": "it is a pipe or a device",
    "sparse": "it has 42,949,672,960 bytes, and more than 256 MiB are not read",
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_without_end_is_unreadable(endless, kind):
    with pytest.raises(OSError, match=KINDS[kind]):
        _ = Files(endless, np.array([f"{kind}.jpg"]))[0]


@pytest.mark.parametrize(
    ("read", "most"),
    [
        (lambda path: ChosenClassifier(classes=str(path)).class_names(), 256),
        (lambda path: table.read(path.rename(path.with_suffix(".csv"))), 1024),
    ],
    ids=["class names", "table"],
)
def test_a_text_without_end_is_not_read(endless, read, most):
    with pytest.raises(UserError) as caught:
        read(endless / "sparse.jpg")
    end = f"it has 42,949,672,960 bytes, and more than {most:,} MiB are not read"
    assert end in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "of the user"
    path.write_bytes(b"kept")
    return path


def test_a_replaced_file_is_not_written_through_what_was_left_there(endless, victim):
    for name, is_made_by in (
        ("sets.json", lambda path: path.symlink_to(victim)),
        ("dangling.json", lambda path: path.symlink_to(endless / "made")),
        ("waited for.json", os.mkfifo),
        ("of a killed process.json", lambda path: path.write_bytes(b"half of")),
    ):
        is_made_by(endless / f".{name}.tmp")
        files.write_whole(endless / name, b"new")
        assert (endless / name).read_bytes() == b"new"
        assert not os.path.lexists(endless / f".{name}.tmp")
    assert victim.read_bytes() == b"kept"
    assert not (endless / "made").exists()


def test_a_link_of_the_user_is_replaced_and_its_target_kept(tmp_path, victim):
    (tmp_path / "out").symlink_to(victim)
    files.write_whole(tmp_path / "out", b"new")
    assert (tmp_path / "out").read_bytes() == b"new"
    assert victim.read_bytes() == b"kept"


def test_of_two_writers_the_later_one_is_not_disturbed(tmp_path):
    path = tmp_path / "out"

    def write_one() -> None:
        with files.replacing(path) as one:
            one.write(b"one")
            with files.replacing(path) as other:
                other.write(b"other")
                one.flush()

    with pytest.raises(OSError, match="another process writes to it"):
        write_one()
    assert path.read_bytes() == b"other"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


ADDING = {
    "metrics.jsonl": lambda path: MetricsFile(path, 0, None),
    "log": lambda path: ChildProcesses().run([], path),
    "lock": lambda path: folder_lock.held(path.parent, "another run").__enter__(),
    "out.partial": lambda path: file_locks.open_locked(path, "another process is using it"),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("metrics.jsonl", "link"),
        ("log", "dangling link"),
        ("lock", "pipe"),
        ("out.partial", "folder"),
    ],
)
def test_what_is_added_to_is_a_file_of_its_folder(endless, victim, name, kind):
    path = endless / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "link" else endless / "made")
    with pytest.raises(UserError, match=f"{name} ") as caught:
        ADDING[name](path)
    assert "\n" not in str(caught.value)
    assert victim.read_bytes() == b"kept"
    assert not (endless / "made").exists()
