"""The door of JSON files: a value of the shape, or one line, whatever the file has."""

import os

import pytest

from train.foundation import json_files, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Number, integer, text

SHAPE = shapes.record(
    {"name": text(), "counts": shapes.list_of(integer(0), at_least=1)},
    {"metrics": shapes.table_of(shapes.NUMBER_OR_NULL)},
)
WHOLE = b'{"name": "\xc3\xa9", "counts": [0, 2], "metrics": {"a": 0.5, "b": null}, "more": [[]]}'


def test_a_value_of_the_shape_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(WHOLE)
    assert json_files.read(path, SHAPE, "a list")["metrics"] == {"a": 0.5, "b": None}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (WHOLE[:40], "Unterminated string"),
        (b"\xff\xfe\x00", "byte 2 is not UTF-16"),
        (b"{}", "it must be an object with 'name'"),
        (WHOLE.replace(b"[0, 2]", b'["0"]'), "whose 'counts' is a list whose element 0 is an int"),
        (WHOLE.replace(b"[0, 2]", b"[]"), "whose 'counts' is a list of at least 1"),
        (WHOLE.replace(b"0.5", b"NaN"), "it has NaN, which is not JSON"),
        (WHOLE.replace(b"0.5", b"1e999"), "it has 1e999, which is too large"),
        (WHOLE.replace(b"\xc3\xa9", b"\\ud800"), "it has half a character"),
        (b"[" * 100_000 + b"]" * 100_000, "its lists and objects are nested more than 32 deep"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "its lists and objects are nested more than 32 deep"),
    ],
)
def test_anything_else_is_one_line(tmp_path, content, reason):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        json_files.read(path, SHAPE, "a list")
    assert str(raised.value).startswith(f"{path} is not a list: ")
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_depth_is_counted_to_the_last_level():
    deepest = b"[" * 32 + b"1" + b"]" * 32
    json_files.parse(deepest, shapes.anything)
    with pytest.raises(ValueError, match="more than 32"):
        json_files.parse(b"[" + deepest + b"]", shapes.anything)


def test_files_that_never_end_or_are_too_large_are_not_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"is not a list: it is not a regular file$"):
        json_files.read(pipe, SHAPE, "a list")
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UserError, match="it has 1,099,511,627,776 bytes, and more than 268,435,45"):
        json_files.read(sparse, SHAPE, "a list")
    with pytest.raises(FileNotFoundError):
        json_files.read(tmp_path / "none", SHAPE, "a list")


def test_numbers_that_no_float_can_hold_are_refused():
    assert Number()(10**400) == "a finite number"
    assert Number()(10**300) == "a finite number, also after rounding to 32 bits"
    assert Number()(10**30) is None
