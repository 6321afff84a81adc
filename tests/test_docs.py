"""The code on the pages of docs/ runs, and the pages have every public name."""

import importlib
import io
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from topk_jax import drift, heads, losses, operators, sets
from train.evaluation.conformal_rules import RULES
from train.models import MODELS, NORMALIZATIONS

DOCS = Path(__file__).parents[1] / "docs"
EVIDENCE = DOCS / "evidence"
# They call optax, whose step schedule compares floats with integers.
TRAINS = {"python_api.md", "sets_losses.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
PLACE = re.compile(r"<!-- (?!end)(.+?) -->")


def pages_that_run():
    return [path for path in sorted(DOCS.glob("*.md")) if BLOCK.search(path.read_text())]


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


@pytest.fixture
def evidence(monkeypatch):
    """What makes a module of the folder of the evidence."""
    monkeypatch.syspath_prepend(EVIDENCE)
    return importlib.import_module


def test_the_tables_of_the_first_edition_are_those_of_the_collected_numbers(evidence):
    page = (EVIDENCE / "design.md").read_text()
    assert evidence("write_pages").filled(page) == page
    assert not {*evidence("first_edition").TABLES} - set(PLACE.findall(page))


def test_the_numbers_of_the_evidence_are_those_of_the_results(evidence):
    write_pages = evidence("write_pages")
    asked = []
    for path in write_pages.PAGES:
        page = path.read_text()
        assert write_pages.filled(page) == page, path
        asked += PLACE.findall(page)
    # A comment with a slip would be left as it is, and so would its table.
    assert set(asked) == set(write_pages.TABLES)


def test_the_figures_of_the_evidence_are_those_of_the_results(evidence):
    for name, draw in evidence("figures").FIGURES.items():
        committed = DOCS / "figures" / f"{name}.png"
        drawn, shown = (plt.imread(one).astype(float) for one in (io.BytesIO(draw()), committed))
        assert drawn.shape == shown.shape, name
        # Another processor rounds the place of a line by a part of a pixel; a number that is
        # another one moves a mark by pixels.
        assert abs(drawn - shown).mean() < 1e-5, name


def test_the_functions_of_the_page_of_problems_exist():
    page = (DOCS / "which_function.md").read_text()
    names = re.findall(r"`(drift|losses|sets|metrics)\.(\w+)`", page)
    assert len(names) > 40
    for module, name in names:
        assert name in importlib.import_module(f"topk_jax.{module}").__all__, name


def test_the_sentences_of_the_pages_hold(evidence):
    assert not evidence("sentences").wrong()


@pytest.mark.parametrize(
    ("words", "holds", "mistakes"),
    [
        ("Start with cross-entropy", [], 0),
        ("Start with the hinge", [], 1),
        ("with a linear and", [["gain tail_organs; {}", "below", "0"]], 0),
        ("with a linear and", [["0", "below", "gain tail_organs; {}"]], 1),
        ("with a linear and", [["gain tail; {}", "below", "gain tail; {}"]], 1),
        ("with a linear and", [["in studies tail; {}", "is", "worse in 4 of 4 studies"]], 0),
        ("with a linear and", [["in studies tail_organs; {}", "is", "better"]], 1),
    ],
)
def test_a_sentence_that_does_not_hold_is_found(words, holds, mistakes, evidence):
    contrast = "imbalanced noised hinge, cosine - logit adjustment, cosine"
    relations = [[part.format(contrast) for part in relation] for relation in holds]
    page = "**Start with cross-entropy, with a linear\nand a cosine head.**"
    assert len(evidence("sentences").mistakes(page, words, relations)) == mistakes


def test_what_may_stand_in_the_place_of_a_question(evidence):
    answers = evidence("answers")
    parts = [answers.studies_of(f"noise of {data}") for data in ("features", "photographs")]
    # Each study of the question is in one part.
    assert [study for part in parts for study in part] == list(answers.studies_of("noise"))
    assert list(answers.studies_of("tail_regions")) == ["tail_regions"]
    with pytest.raises(ValueError, match="no question is 'noise of texts'; it may be one of"):
        answers.studies_of("noise of texts")


def test_braces_of_a_block_that_ask_for_nothing_are_refused(evidence):
    block = evidence("texts").block
    assert block("of {best in the last epoch epsilon_regions}") == "\nof 29 of 30\n"
    for asked in ("gains tail; a - b", "gain", "accuracies"):
        with pytest.raises(ValueError, match=r"a number must be one of .*; got "):
            block(f"| {{{asked}}} |")


def test_equivalences_are_those_that_the_program_found(evidence):
    answers = evidence("answers")
    for answer in answers.answers():
        if answer.found is not None:
            contrasts = answers.results(answer.study)["contrasts"]
            (found,) = (one for one in contrasts if one["name"] == answer.planned.name)
            # Both are one formula of one estimate.
            assert answer.equivalence == found["p_value_equivalence"]


def test_the_standard_errors_of_an_analysis_of_variance_are_right_on_average(evidence):
    rng = np.random.default_rng(0)
    num_seeds, sizes = 5, (4, 8)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    variances, means = [], []
    for _ in range(4000):
        of_seeds = rng.normal(size=(num_seeds, 1))
        of_examples = rng.normal(size=(1, len(labels)))
        found = of_seeds + of_examples + rng.normal(size=(num_seeds, len(labels)))
        error = evidence("sensitivity").standard_error(found, labels, macro=True)
        variances.append(error**2)
        means.append(np.mean([found[:, labels == label].mean() for label in (0, 1)]))
    # The variance of 4,000 means is known to 2 %. Components that are not negative add a little.
    assert 0.95 < np.mean(variances) / np.var(means) < 1.1


@pytest.mark.parametrize(
    ("expected", "found", "verdict"),
    [
        ("better", ["better", "better", "undecided"], "reproduced"),
        ("better", ["better", "better", "worse"], "mixed"),
        ("better", ["better", "undecided"], "mixed"),
        ("better", ["equivalent", "worse", "better"], "not reproduced"),
        ("worse", ["worse"], "reproduced"),
        ("worse", ["undecided"], "undecided"),
        ("equivalent", ["equivalent"], "reproduced"),
        ("equivalent", ["equivalent", "equivalent", "worse"], "mixed"),
    ],
)
def test_when_a_claim_is_reproduced(expected, found, verdict, evidence, monkeypatch):
    claims = evidence("claims")
    claim = claims.Claim("A claim", "a table", expected=expected)
    answers = [SimpleNamespace(verdict=one) for one in found]
    monkeypatch.setattr(claims.Claim, "answers", answers)
    assert claim.verdict == verdict


def test_every_tested_claim_has_its_contrasts(evidence):
    for claim in evidence("claims").claims():
        studies = [answer.study for answer in claim.answers]
        wanted = list(evidence("answers").QUESTIONS[claim.question]) if claim.contrast else []
        assert studies == wanted, claim.claim
        if claim.fine_tuned:
            assert len(claim.fine_tuned_answers) == 1, claim.claim
        if claim.pretrained:
            contrasts = evidence("pretrained.design").study().contrasts
            assert claim.pretrained in [[one.question, one.name] for one in contrasts], claim.claim
        names = {name for _, name, _ in evidence("answers").secondary()}
        assert not {*claim.secondary} - names, claim.claim
        if claim.verdict == "not tested":
            assert claim.untested, claim.claim


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
    [
        path
        for path in (*DOCS.glob("*.py"), *EVIDENCE.glob("*.py"))
        if "__main__" in path.read_text()
    ],
    ids=lambda path: path.stem,
)
def test_a_script_imports_the_program_of_its_own_checkout(script, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(script.parent), "/installed", *sys.path])
    runpy.run_path(str(script), run_name="imported")
    assert sys.path.index(str(DOCS.parent)) < sys.path.index("/installed")
