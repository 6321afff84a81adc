"""Texts in the encodings that editors and spreadsheets write, at every door that takes one."""

import codecs

import pytest

from tests.rows import rows
from train.classifiers.flags import ChosenClassifier
from train.comparison import toml_files
from train.foundation import fields, json_files, text_files
from train.foundation.errors import UserError

ENCODINGS = {
    "utf-8": b"",
    "utf-8-sig": b"",
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@pytest.fixture(params=rows(["utf-8", "utf-8-sig", "utf-16-le"], [*ENCODINGS][3:]))
def write(request, tmp_path):
    """Writes a text in an encoding, with its mark."""

    def write(name, text):
        path = tmp_path / name
        path.write_bytes(ENCODINGS[request.param] + text.encode(request.param))
        return path

    return write


def test_every_door_reads_every_encoding(write):
    assert toml_files.read(write("a.toml", 'name = "é"'), "study") == {"name": "é"}
    assert json_files.read(write("a.json", '"hêtre"'), fields.text(), "a name") == "hêtre"
    given = ChosenClassifier(classes=str(write("names.txt", "hêtre\n三\r\nash\n\n \n")))
    assert given.class_names() == ("hêtre", "三", "ash")


def test_another_encoding_is_told(tmp_path):
    (tmp_path / "names.txt").write_bytes("hêtre\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"names\.txt cannot be read: 'utf-8' codec"):
        ChosenClassifier(classes=str(tmp_path / "names.txt")).class_names()
    with pytest.raises(UnicodeDecodeError):
        text_files.decoded(codecs.BOM_UTF16_LE + b"a")
