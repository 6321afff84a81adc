"""The pages of docs/ say what runs, and leave out no public name."""

import importlib
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from topk_jax import heads, losses, operators, sets
from train.evaluation.conformal_rules import RULES
from train.models import MODELS, NORMALIZATIONS

DOCS = Path(__file__).parents[1] / "docs"
# Its block reads a trained run, which the page makes first.
NEEDS_A_RUN = {"sets.md"}
# They call optax, whose step schedule compares floats with integers.
TRAINS = {"python_api.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def pages_that_run():
    pages = (path for path in sorted(DOCS.glob("*.md")) if path.name not in NEEDS_A_RUN)
    return [path for path in pages if BLOCK.search(path.read_text())]


def test_there_are_pages_that_run():
    assert DOCS / "import_a_loss.md" in pages_that_run()


@pytest.mark.slow
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


def test_the_tables_of_the_evidence_are_those_of_the_collected_numbers():
    evidence = runpy.run_path(str(DOCS / "evidence.py"), run_name="evidence")
    page = (DOCS / "evidence.md").read_text()
    assert evidence["filled"](page) == page
    assert not {*evidence["TABLES"], *evidence["CLAIMS"]} - set(re.findall("<!-- (.+) -->", page))


def test_the_tables_of_the_second_edition_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "evidence")
    edition = runpy.run_path(str(DOCS / "evidence" / "second_edition.py"), run_name="edition")
    page = (DOCS / "evidence" / "second_edition.md").read_text()
    assert edition["filled"](page) == page
    assert {*edition["tables"]()} == {*re.findall("<!-- (?!end)(.+) -->", page)}


@pytest.mark.parametrize(
    ("expected", "found", "verdict"),
    [
        ("better", ["better", "better", "undecided"], "reproduced"),
        ("better", ["better", "better", "worse"], "mixed"),
        ("better", ["better", "undecided"], "mixed"),
        ("better", ["equivalent", "worse", "better"], "not reproduced"),
        ("better", ["better", "better", "open"], "open"),
        ("worse", ["worse"], "reproduced"),
        ("worse", ["undecided"], "mixed"),
        ("equivalent", ["equivalent"], "reproduced"),
        ("equivalent", ["equivalent", "equivalent", "worse"], "mixed"),
    ],
)
def test_when_a_claim_is_reproduced(expected, found, verdict, monkeypatch):
    edition = runpy.run_path(str(DOCS / "evidence" / "answers.py"))
    claim = edition["Claim"]("A claim", "a table", expected=expected)
    answers = [SimpleNamespace(verdict=one) for one in found]
    monkeypatch.setattr(edition["Claim"], "answers", answers)
    assert claim.verdict == verdict


def test_every_tested_claim_has_its_contrasts():
    edition = runpy.run_path(str(DOCS / "evidence" / "answers.py"))
    for claim in edition["claims"]():
        studies = [answer.study for answer in claim.answers]
        wanted = [] if claim.untested else list(edition["QUESTIONS"][claim.question])
        assert studies == wanted, claim.claim


def test_the_page_of_the_collection_has_every_public_name():
    page = (DOCS / "collection.md").read_text()
    names = {name for module in (heads, losses, operators, sets) for name in module.__all__}
    assert not names - set(re.findall(r"`(\w+)`", page))


def test_the_page_of_sets_has_every_conformal_rule_of_the_program():
    page = (DOCS / "sets.md").read_text()
    assert not [name for name in RULES if f"\n| `{name}`" not in page]


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


@pytest.mark.parametrize("module", ["heads", "losses", "operators", "sets", "metrics"])
def test_every_public_name_is_on_the_page_of_its_module(module):
    text = (DOCS / "api" / f"{module}.md").read_text()
    found = re.findall(rf"^\.\. auto(?:function|class):: topk_jax\.{module}\.(\w+)$", text, re.M)
    assert sorted(found) == sorted(importlib.import_module(f"topk_jax.{module}").__all__)
