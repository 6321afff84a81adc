"""The code on the pages of docs/ runs, and the pages have every public name."""

import importlib
import re
import runpy
import sys
from pathlib import Path

import jax
import pytest

from topk_jax import drift, heads, losses, operators, sets
from train.evaluation.conformal_rules import RULES
from train.models import MODELS, NORMALIZATIONS

DOCS = Path(__file__).parents[2] / "docs"
# They call optax, whose step schedule compares floats with integers.
TRAINS = {"python_api.md", "sets_losses.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def pages_that_run():
    return [path for path in sorted(DOCS.glob("*.md")) if BLOCK.search(path.read_text())]


def test_there_are_pages_that_run():
    assert DOCS / "import_a_loss.md" in pages_that_run()


@pytest.mark.parametrize("page", pages_that_run(), ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_their_order(page, tmp_path, monkeypatch):
    # Where the blocks of a page may write files, as the runs of those that train.
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    names = {}
    promotion = "standard" if page.name in TRAINS else "strict"
    for block in BLOCK.finditer(text):
        # As many empty lines as come before, so that an error names the line of the page.
        before = "\n" * text.count("\n", 0, block.start(1))
        with jax.numpy_dtype_promotion(promotion):
            exec(compile(before + block[1], str(page), "exec"), names)


def test_the_functions_of_the_page_of_problems_exist():
    page = (DOCS / "which_function.md").read_text()
    names = re.findall(r"`(drift|losses|sets|metrics)\.(\w+)`", page)
    assert len(names) > 40
    for module, name in names:
        assert name in importlib.import_module(f"topk_jax.{module}").__all__, name


def test_the_page_of_the_collection_has_every_public_name():
    page = (DOCS / "collection.md").read_text()
    names = {name for module in (drift, heads, losses, operators, sets) for name in module.__all__}
    assert not names - set(re.findall(r"`(\w+)`", page))


def test_the_page_of_sets_has_every_conformal_rule_of_the_program():
    page = (DOCS / "sets.md").read_text()
    assert not [name for name in RULES if f"`{name}`" not in page]


def test_the_page_of_networks_says_what_each_takes():
    page = (DOCS / "networks.md").read_text()
    rows = re.findall(r"^\| (`.+?) \| .+ \| ([\d, ]+) \| `(\w+)` \|$", page, re.M)
    told = {}
    for names, sizes, colours in rows:
        found = re.findall(r"`(\w+)`", names)
        each = [int(size) for size in sizes.split(", ")] * (1 if ", " in sizes else len(found))
        for name, size in zip(found, each, strict=True):
            told[name] = (size, NORMALIZATIONS[colours])
    published = {name: spec for name, spec in MODELS.items() if spec.names is not None}
    for name, spec in published.items():
        assert told[name] == (spec.image_size, spec.normalization), name


@pytest.mark.parametrize("module", ["drift", "heads", "losses", "operators", "sets", "metrics"])
def test_every_public_name_is_on_the_page_of_its_module(module):
    text = (DOCS / "api" / f"{module}.md").read_text()
    found = re.findall(rf"^\.\. auto(?:function|class):: topk_jax\.{module}\.(\w+)$", text, re.M)
    assert sorted(found) == sorted(importlib.import_module(f"topk_jax.{module}").__all__)


@pytest.mark.parametrize(
    "script",
    [path for path in DOCS.glob("*.py") if "__main__" in path.read_text()],
    ids=lambda path: path.stem,
)
def test_a_script_imports_the_program_of_its_own_checkout(script, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(script.parent), "/installed", *sys.path])
    runpy.run_path(str(script), run_name="imported")
    assert sys.path.index(str(DOCS.parent)) < sys.path.index("/installed")
