"""The blocks of docs/library.md run, with the one that needs Equinox."""

import re

import jax

from tests.promises.pages import DOCS

_BLOCK = re.compile(r"^```(?:python|\{code-block\} python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_blocks_of_the_page_run():
    names = {}
    for block in _BLOCK.findall((DOCS / "library.md").read_text(encoding="utf-8")):
        with jax.numpy_dtype_promotion("strict"):
            exec(compile(block, "library.md", "exec"), names)
        if "import equinox" in block:
            assert names["value"] < 1
    assert "equinox" in names
