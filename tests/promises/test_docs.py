"""What README and the pages of docs/ show runs, and the pages have every public name."""

import collections
import importlib
import inspect
import re

import jax.numpy as jnp
import pytest

from tests.promises import commands, pages
from topk_jax import losses

MODULES = ("drift", "heads", "losses", "metrics", "operators", "rules", "sets")


@pytest.mark.parametrize(
    "page",
    [page for page in pages.that_run() if page.stem not in pages.LONG],
    ids=lambda page: page.stem,
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    # Where it may write files.
    monkeypatch.chdir(tmp_path)
    names = pages.run(page)
    if page == pages.README:
        assert jnp.isfinite(names["value"])
        assert names["gradient"].shape == (8, 100)
        assert jnp.isfinite(names["gradient"]).all()


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_the_page_of_its_module(module):
    page = (pages.DOCS / "api" / f"{module}.md").read_text()
    found = re.findall(rf"^\.\. (?:auto\w+|py:data):: topk_jax\.{module}\.(\w+)$", page, re.M)
    assert sorted(found) == sorted(importlib.import_module(f"topk_jax.{module}").__all__)


def test_the_pages_have_flags_and_fields_that_exist():
    shown = collections.defaultdict(set)
    for command, names in pages.commands():
        shown[command].update(names)
    assert len(shown) > 10
    fields = set(re.findall(r"^- `([\w.]+)", (pages.DOCS / "configuration.md").read_text(), re.M))
    functions = [getattr(losses, name) for name in losses.__all__]
    arguments = [inspect.signature(one).parameters for one in functions if callable(one)]
    fields |= {f"loss.{name}" for one in arguments for name in one}
    for command, names in shown.items():
        told = commands.ok(f"{command} --help").out
        known = set(re.findall(r"^\s+(?:-\w,)?--(?:\[no\])?(\w+)", told, re.M))
        of_fields = {name for name in names if name.startswith("config.")}
        assert names - of_fields <= known | {f"no{name}" for name in known}, command
        assert {name.removeprefix("config.") for name in of_fields} <= fields, command
