"""Zip files of others are as large as they look."""

import io
import zipfile

import pytest

from tests.parts.program import bombs
from train.foundation import zip_files


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return file.getvalue()


def test_what_archivers_write_is_opened(tmp_path):
    path = tmp_path / "a.zip"
    content = archive(first=b"1" * 100, folder="", second=b"2")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.comment = b"a comment"
        opened.mkdir("é")
        opened.writestr("é/zero", bytes(10**6))
        # With an unknown size, as in a pipe.
        with opened.open("large", "w", force_zip64=True) as member:
            member.write(b"123")
    for file in (path, io.BytesIO(content), io.BytesIO(b"before it" + content)):
        with zip_files.opened(file) as opened:
            assert opened.testzip() is None


BOMBS = {
    "one in another": (bombs.quoted(400, bytes(10**6)), r"'398\.npy' in it overlaps another of"),
    "twice": (
        bombs.same_bytes(archive(a=b"1" * 9), "a"),
        "'a' in it overlaps another of its files",
    ),
    "nothing, twice": (
        bombs.same_bytes(archive(a=b""), "a"),
        "'a' in it overlaps another of its f",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_members_share_no_bytes(bomb, tmp_path):
    content, message = BOMBS[bomb]
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    for file in (path, io.BytesIO(content)):
        with pytest.raises(zipfile.BadZipFile, match=message):
            zip_files.opened(file)


def test_no_member_unpacks_to_much_more_than_a_gibibyte():
    content = bytearray(archive(a=b"1" * 1000))
    directory = content.index(b"PK\x01\x02")
    for size, message in (
        (2**30, None),
        (2**30 + 1, "'a' in it has 1,000 bytes, and claims to"),
    ):
        content[directory + 24 : directory + 28] = size.to_bytes(4, "little")
        if message is None:
            zip_files.opened(io.BytesIO(content)).close()
        else:
            with pytest.raises(zipfile.BadZipFile, match=message):
                zip_files.opened(io.BytesIO(content))
