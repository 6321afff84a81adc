"""The pages, and the code and the command lines on them."""

import re
from pathlib import Path

import jax

ROOT = Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
# Three seconds and more each: `tests/parts/test_pages.py` runs them.
LONG = {"calibrated_losses", "import_a_loss", "observations", "python_api", "scaling"}
# They call optax, whose step schedule compares floats with integers.
_TRAIN = {"python_api", "sets_losses"}
_BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"python -m (train\.[a-z]+)\b((?:[^`\n\\]|\\\n)*)")


def that_run():
    """README, and the pages that have code."""
    return [README, *(path for path in sorted(DOCS.glob("*.md")) if _BLOCK.search(_text(path)))]


def run(page):
    """Runs the blocks of a page, one after another, and returns what they define."""
    text, names = _text(page), {}
    promotion = "standard" if page.stem in _TRAIN else "strict"
    for block in _BLOCK.finditer(text):
        # As many empty lines as come before, so that an error names the line of the page.
        before = "\n" * text.count("\n", 0, block.start(1))
        with jax.numpy_dtype_promotion(promotion):
            exec(compile(before + block[1], str(page), "exec"), names)
    return names


def commands():
    """The command lines of README and all pages: each the command and the names of its flags."""
    pages = [README, *sorted(DOCS.rglob("*.md"))]
    return [
        (command, re.findall(r"(?<=\s--)[\w.]+", arguments))
        for page in pages
        for command, arguments in _COMMAND.findall(_text(page))
    ]


def _text(page):
    return page.read_text(encoding="utf-8")
