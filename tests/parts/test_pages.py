"""The pages of docs/ run, and have the names of what they list."""

import importlib
import re
import shutil

import pytest

from tests.promises import pages
from topk_jax import rules

SHOWN = [page for page in pages.all_pages()[1:] if pages.has_blocks(page)]


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    folder = tmp_path_factory.mktemp("things")
    pages.things(folder)
    return folder


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_a_page_runs(page, things, tmp_path):
    pages.run(page, shutil.copytree(things, tmp_path / "folder"))


def test_the_functions_that_a_page_names_exist():
    modules, endings = "drift|heads|losses|metrics|rules|sets", "csv|html|jsonl?|py"
    named = re.compile(rf"`({modules})\.(?!(?:{endings})`)(\w+)`")
    for page in pages.all_pages():
        names = named.findall(page.read_text())
        for module, name in names:
            assert hasattr(importlib.import_module(f"topk_jax.{module}"), name), (page, name)


def test_the_functions_in_the_tables_of_the_library_exist():
    page = (pages.DOCS / "library.md").read_text()
    tables = re.findall(r"function in `(\w+)` \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    assert [module for module, _ in tables] == ["losses", "metrics"]
    for module, rows in tables:
        names = set(re.findall(r"`(\w+)`", rows))
        assert len(names) > 15
        assert names <= set(importlib.import_module(f"topk_jax.{module}").__all__)


def test_the_page_of_sets_has_a_row_for_every_rule():
    page = (pages.DOCS / "sets.md").read_text()
    texts = re.findall(r"^\| `(\w+=.+?)` \|", page, re.M)
    # A row may leave out the coverage of the rows above.
    rows = [rules.parse(re.sub("^rule=", "coverage=0.9, rule=", text)) for text in texts]
    assert {row.name for row in rows} == set(rules.KINDS)
    assert {row.conformal for row in rows} - {None} == set(rules.CONFORMAL)
