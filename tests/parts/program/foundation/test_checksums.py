"""The checksums of the files in a folder."""

import json

import pytest

from train.foundation import checksums


def test_what_changed_and_what_is_missing_is_told(tmp_path):
    (tmp_path / "part").mkdir()
    paths = [tmp_path / "a", tmp_path / "part" / "b", tmp_path / "c"]
    for path in paths:
        path.write_bytes(path.name.encode())
    checksums.write(tmp_path, paths)
    checksums.check(tmp_path)
    (tmp_path / "more").write_bytes(b"not known, and so not looked at")
    paths[2].unlink()
    with pytest.raises(OSError, match=r"/c is missing$"):
        checksums.check(tmp_path)
    paths[2].write_bytes(b"c")
    paths[1].write_bytes(b"c")
    with pytest.raises(OSError, match=r"/part/b changed since it was written$"):
        checksums.check(tmp_path)


@pytest.mark.parametrize("content", [b"", b'{"a": 1}', b"[" * 10**5])
def test_damaged_checksums_are_one_line(tmp_path, content):
    (tmp_path / checksums.FILE).write_bytes(content)
    with pytest.raises(OSError, match=r"/checksums\.json is damaged: ") as caught:
        checksums.check(tmp_path)
    assert "\n" not in str(caught.value)


def test_each_file_of_a_part_must_have_a_checksum(tmp_path):
    (tmp_path / "part" / "within").mkdir(parents=True)
    (tmp_path / "part" / "within" / "a").write_bytes(b"a")
    checksums.write(tmp_path, [tmp_path / "part" / "within" / "a"])
    for name in ("@eaDir", "within/.AppleDouble", "within/.~tmp~"):
        (tmp_path / "part" / name).mkdir()
        (tmp_path / "part" / name / "a").touch()
    for name in (".DS_Store", "desktop.ini", "within/Thumbs.db"):
        (tmp_path / "part" / name).touch()
    checksums.check(tmp_path, ["part"])
    (tmp_path / "part" / "b").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"is damaged: its checksums\.json does not list part/b$"):
        checksums.check(tmp_path, ["part"])
    checksums.write(tmp_path, [])
    checksums.check(tmp_path)
    with pytest.raises(OSError, match=r"does not list part/b$"):
        checksums.check(tmp_path, ["part"])


@pytest.mark.parametrize("name", ["../outside", "part/../../outside", "/etc/hostname", "", "a\0"])
def test_a_name_outside_of_the_folder_is_refused(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").touch()
    (tmp_path / "folder" / checksums.FILE).write_text(json.dumps({name: "0"}))
    with pytest.raises(OSError, match="is not a file in its folder") as caught:
        checksums.check(tmp_path / "folder")
    assert "\n" not in str(caught.value)
