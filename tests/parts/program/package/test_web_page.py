"""`train.export --format=web` writes a folder of files; `tests/peers/browser` opens it."""

from pathlib import Path

import pytest

from train.foundation.errors import UserError
from train.package.web import web


def test_the_files_of_onnx_runtime_are_those_of_one_version(tmp_path):
    with pytest.raises(UserError, match=r"needs --onnxruntime_web.*npm pack onnxruntime-web@"):
        web.runtime(None)
    (tmp_path / "dist").mkdir()
    for content in (None, "another version"):
        if content is not None:
            (tmp_path / "dist" / next(iter(web.DIGESTS))).write_text(content)
        with pytest.raises(UserError, match=r"must be the folder.* is missing or another one"):
            web.runtime(str(tmp_path))


def test_the_guide_names_that_version():
    guide = (Path(__file__).parents[4] / "docs" / "deployment.md").read_text()
    assert f"npm pack {web.PACKAGE}@{web.VERSION}\n" in guide
