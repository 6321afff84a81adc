"""README runs as it stands, each command on a page is one, and the pages have every public name."""

import importlib
import re

import numpy as np
import pytest

from tests.promises import commands, pages

MODULES = ("drift", "heads", "losses", "metrics", "operators", "rules", "sets")


def test_readme_runs(tmp_path):
    pages.photographs(tmp_path)
    shown = pages.run(pages.README, tmp_path)
    assert shown["value"] == 0
    covered = shown["chosen"][np.arange(1000), shown["labels"][shown["new"]]]
    # Over calibrations and 1,000 new examples its standard deviation is 0.013.
    assert 0.86 < covered.mean() < 0.94
    assert (tmp_path / "sets.html").read_text().count("data:image/png") == 6


@pytest.mark.parametrize("page", pages.all_pages(), ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_parsed_to_their_configurations(page):
    for command in pages.commands_of(page):
        ended = commands.parsed(command)
        assert ended.code == 0, f"{command}\n{ended.err}"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_the_page_of_its_module(module):
    page = (pages.DOCS / "api" / f"{module}.md").read_text()
    named = set(re.findall(r"\w+", page))
    assert not set(importlib.import_module(f"topk_jax.{module}").__all__) - named
