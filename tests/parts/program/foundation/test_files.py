"""Files are whole at any moment, what is damaged is one line, and a folder has one writer."""

import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from train.classifiers.flags import ChosenClassifier
from train.data.sources import table
from train.foundation import files
from train.foundation.errors import UserError

HOLDER = """
import signal, sys
from pathlib import Path
from train.foundation import files
with files.lock(Path(sys.argv[1]), "another test"):
    print("held", flush=True)
    signal.pause()
"""


class Counts(msgspec.Struct):
    name: str
    counts: list[int]


WHOLE = b'{"name": "\xc3\xa9", "counts": [0, 2], "more": [[]]}'


def test_a_value_of_the_type_is_read(tmp_path):
    (tmp_path / "a.json").write_bytes(WHOLE)
    assert files.read(tmp_path / "a.json", Counts, "counts") == Counts("é", [0, 2])
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "none", Counts, "counts")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Input data was truncated"),
        (WHOLE[:40], "Input data was truncated"),
        (b"\xff\xfe\x00", "JSON is malformed: invalid character (byte 0)"),
        (b"{}", "Object missing required field `name`"),
        (WHOLE.replace(b"[0, 2]", b'[0, "0"]'), "Expected `int`, got `str` - at `$.counts[1]`"),
        (WHOLE.replace(b"2", b"NaN"), "JSON is malformed: invalid character"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
    ],
)
def test_anything_else_is_one_line_with_its_place(tmp_path, content, reason):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        files.read(path, list[int] if content.startswith(b"[") else Counts, "a list")
    assert str(raised.value).startswith(f"{path} is not a list, or is damaged: ")
    assert reason in str(raised.value) or content.startswith(b"[")
    assert "\n" not in str(raised.value)


def test_numbers_of_arrays_are_written_and_what_is_not_finite_is_null():
    value = {"a": np.array([1, np.nan]), "b": (np.float32(0.5), float("inf")), "c": "é"}
    assert files.to_json(value) == b'{"a": [1.0, null], "b": [0.5, null], "c": "\\u00e9"}\n'


def test_a_file_has_its_old_content_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "out"
    files.write_whole(path, b"old")
    (tmp_path / ".out.tmp").write_bytes(b"of a killed command, and longer")
    with pytest.raises(TypeError), files.replacing(path) as file:
        file.write("no bytes")
    assert path.read_bytes() == b"old"
    files.write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_the_user_knows(tmp_path):
    with pytest.raises(OSError, match=r"none/out'$"):
        files.write_whole(tmp_path / "none" / "out", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"'.*/folder'$"):
        files.write_whole(tmp_path / "folder", b"")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_a_large_image_is_not_read(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"12")
    assert files.read_bounded(tmp_path / "a.jpg", 2) == b"12"
    with pytest.raises(OSError, match="it has 2 bytes; more than 0 MiB are not read"):
        files.read_bounded(tmp_path / "a.jpg", 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_door_reads_what_editors_and_spreadsheets_write(tmp_path, encoding):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding)
        return tmp_path / name

    assert [*table.read(write("a.csv", "forêt\n1\n"))] == ["forêt"]
    given = ChosenClassifier(classes=str(write("names.txt", "hêtre\n三\r\nash\n\n \n")))
    assert given.class_names() == ("hêtre", "三", "ash")


def test_another_encoding_is_told(tmp_path):
    (tmp_path / "names.txt").write_bytes("hêtre\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"names\.txt cannot be read: 'utf-8' codec"):
        ChosenClassifier(classes=str(tmp_path / "names.txt")).class_names()


def test_the_second_is_told_in_one_line_and_the_next_finds_nothing(tmp_path):
    folder = tmp_path / "new" / "run"
    with files.lock(folder, "another test"):
        with pytest.raises(UserError) as raised, files.lock(folder, "another test"):
            pass
        told = f"another test is using {folder}; wait until it ends, or stop it"
        assert str(raised.value) == told
    assert list(folder.iterdir()) == []
    with files.lock(folder, "another test"):
        pass


def test_a_killed_holder_loses_the_lock(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="is using"), files.lock(tmp_path, "another test"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    with files.lock(tmp_path, "another test"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changed_or_is_missing_is_told(tmp_path):
    (tmp_path / "part").mkdir()
    paths = [tmp_path / "a", tmp_path / "part" / "b"]
    for path in paths:
        path.write_bytes(path.name.encode())
    files.write_checksums(tmp_path, paths)
    files.check_checksums(tmp_path)
    paths[1].write_bytes(b"c")
    with pytest.raises(OSError, match=r"/part/b changed since it was written$"):
        files.check_checksums(tmp_path)
    paths[0].unlink()
    with pytest.raises(FileNotFoundError, match="/a'"):
        files.check_checksums(tmp_path)


def test_another_digit_of_a_checked_file_is_told(tmp_path):
    path, value = tmp_path / "rules.json", {"limit": 0.5, "names": ["é"]}
    path.write_bytes(files.to_json(files.with_checksum(value), indent=1))
    assert files.read_checked(path, "rules") == value
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6"))
    for content in (path.read_bytes(), b'{"limit": 0.6}'):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"is not rules as it was written: it was changed"):
            files.read_checked(path, "rules")
