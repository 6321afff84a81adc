"""The pages whose code takes long runs, and the pages have the names of what they list."""

import importlib
import re
import runpy
import sys

import pytest

from tests.promises import pages
from tests.promises.pages import DOCS
from topk_jax import drift, heads, losses, operators, rules, sets
from train.models import MODELS
from train.models.model_spec import NORMALIZATIONS


@pytest.mark.parametrize("name", sorted(pages.LONG))
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    # Where it may write files, as the runs of those that train.
    monkeypatch.chdir(tmp_path)
    assert pages.run(DOCS / f"{name}.md")


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


def test_the_page_of_sets_has_a_row_for_every_rule():
    page = (DOCS / "sets.md").read_text()
    rows = [rules.parse(text) for text in re.findall(r"^\| `(\w+=.+?)` \|", page, re.M)]
    assert {row.name for row in rows} == set(rules.KINDS)
    assert {row.conformal for row in rows} - {None} == set(rules.CONFORMAL)


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


@pytest.mark.parametrize(
    "script",
    [path for path in DOCS.glob("*.py") if "__main__" in path.read_text()],
    ids=lambda path: path.stem,
)
def test_a_script_imports_the_program_of_its_own_checkout(script, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(script.parent), "/installed", *sys.path])
    runpy.run_path(str(script), run_name="imported")
    assert sys.path.index(str(DOCS.parent)) < sys.path.index("/installed")
