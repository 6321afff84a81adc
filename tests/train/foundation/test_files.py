"""Files of others are opened without waiting, and images are not read if they are too large."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from train.data.images import UnreadableImageError
from train.data.own import feature_files, folders, found_images
from train.data.own.found_images import Files
from train.evaluation import score_files
from train.foundation.errors import UserError
from train.models.weights import files as weights
from train.prediction import class_names, image_files

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
    "sparse": "it has 42,949,672,960 bytes, and max_image_mb allows 256 MiB",
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_without_end_is_unreadable(endless, kind):
    path = endless / f"{kind}.jpg"
    with pytest.raises(UnreadableImageError) as caught:
        image_files.read(path, upright=True)
    assert str(caught.value) == f"cannot read {path}: {KINDS[kind]}"
    (example,) = Files(endless, (path.name,))
    assert example == {"image": b"", "file_name": path.name, "unreadable": KINDS[kind]}


def test_the_largest_image_has_the_size_of_the_field(tmp_path):
    for name, size in (("whole", MIB), ("larger", MIB + 1), ("small", 1)):
        for number in range(2):
            (tmp_path / f"class {number}").mkdir(exist_ok=True)
            (tmp_path / f"class {number}/{name}.jpg").write_bytes(bytes(size))
    config = {
        "path": str(tmp_path),
        "validation_fraction": 0.3,
        "test_fraction": 0.3,
        "max_image_mb": 1,
        "nested": False,
    }
    found = found_images.find(config, lambda path: folders.find(path, nested=False))
    larger, _, whole = (found.source[index] for index in range(3))
    assert larger["unreadable"] == "it has 1,048,577 bytes, and max_image_mb allows 1 MiB"
    assert len(whole["image"]) == MIB


@pytest.mark.parametrize(
    "read",
    [
        weights.read,
        lambda path: class_names.read("class_names", str(path)),
        lambda path: feature_files.find(path, "--features"),
        lambda path: score_files.read_scores(path, None, flag="scores"),
    ],
    ids=["weights", "class names", "features", "scores"],
)
def test_a_pipe_is_not_waited_for(endless, read):
    with pytest.raises((UserError, OSError), match="it is a pipe or a device"):
        read(endless / "pipe.jpg")
