"""`train.export --format=web` writes a folder of files; `tests/peers/browser` opens it."""

import hashlib
import json
import re
import stat
from pathlib import Path

import pytest

from train.foundation.errors import UserError
from train.prediction.web_page import runtime, site

DESCRIPTION = {"images": {"shape": ["n", 8, 8, 1], "steps": []}, "classes": ["a", "b"]}
RUNTIME = {name: name.encode() for name in runtime.DIGESTS}


@pytest.fixture
def folder(tmp_path):
    site.write(tmp_path / "site", b"model", DESCRIPTION, b"card", RUNTIME)
    return tmp_path / "site"


def test_the_folder_has_all_that_the_page_names(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    named = re.search(r"const FILES = (\[.*\]);", (folder / "offline.js").read_text())
    assert named is not None
    # A service worker does not keep itself.
    assert set(json.loads(named[1])) == files - {"offline.js"} | {"./"}
    for name in files:
        if name.endswith((".js", ".html")) and not name.startswith("onnxruntime"):
            text = (folder / name).read_text()
            wanted = re.findall(
                r"""(?:from|src=|href=|URL\(|download\(|read\() ?"(?:\./)?([\w./-]+)["]""", text
            )
            assert {one for one in wanted if not one.startswith("data:")} <= files, name
    # Nothing is from elsewhere.
    assert not [name for name in files if b"https://" in (folder / name).read_bytes()]
    assert json.loads((folder / "classifier.json").read_text()) == DESCRIPTION
    assert list(folder.parent.iterdir()) == [folder]


def test_the_texts_of_the_page_are_in_the_language_file(folder):
    words = json.loads((folder / "words.json").read_text())
    code = "".join(path.read_text() for path in folder.glob("*.js"))
    used = set(re.findall(r"\bwords\.(\w+)", code)) | set(re.findall(r'Refused\("(\w+)"', code))
    assert used - {"join", "js", "json"} <= words.keys()


def test_another_model_has_another_version(tmp_path):
    versions = set()
    for number in (1, 2):
        folder = tmp_path / str(number)
        site.write(folder, b"model %d" % number, DESCRIPTION, b"card", RUNTIME)
        versions.add(re.findall(r'VERSION = "(.*)"', (folder / "offline.js").read_text())[0])
    assert len(versions) == 2


def test_the_runtime_is_read_from_a_folder(tmp_path, monkeypatch):
    (tmp_path / "dist").mkdir()
    with pytest.raises(UserError, match=r"lacks the file dist/.*npm pack onnxruntime-web@"):
        runtime.read(str(tmp_path))
    for name, content in RUNTIME.items():
        (tmp_path / "dist" / name).write_bytes(content)
    with pytest.raises(UserError, match="is not version"):
        runtime.read(str(tmp_path))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in RUNTIME.items()}
    monkeypatch.setattr(runtime, "DIGESTS", digests)
    assert runtime.read(str(tmp_path)) == RUNTIME


def test_the_guide_names_the_version():
    guide = (Path(__file__).parents[4] / "docs" / "deployment.md").read_text()
    assert f"npm pack {runtime.PACKAGE}@{runtime.VERSION}\n" in guide
