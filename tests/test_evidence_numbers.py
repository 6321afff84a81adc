"""The numbers of the comparison of losses, computed a second time from the files of its results.

The code in `tests/reference/` that computes them and the code that makes the pages share nothing
but those files and the rules of the design. The standard errors of the files come from a bootstrap
of 10,000 resamples: they are compared with their closed form, within that randomness. All other
numbers follow from the files without any randomness, and agree to the last digit that is printed.
"""

import csv
import functools
import hashlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.reference import _studies as studies
from tests.reference import _study_answers as answers
from tests.reference import _study_places as places
from tests.reference import _study_statistics as statistics
from tests.reference._study_blocks import BLOCKS, TEMPLATES, words
from tests.reference._study_sentences import sentence
from tests.reference._study_tables import RECORDS
from tests.reference._study_tables import TABLES as MADE

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "docs" / "evidence.md",
    ROOT / "docs" / "evidence" / "claims.md",
    ROOT / "docs" / "evidence" / "fine_tuned.md",
    ROOT / "docs" / "evidence" / "tables.md",
    ROOT / "docs" / "which_loss.md",
    ROOT / "README.md",
]
# Their places have numbers of other measurements.
OTHER_PAGES = [
    ROOT / "docs" / "evidence" / "design.md",
    ROOT / "docs" / "evidence" / "pretrained.md",
    # `tests/benchmarks/test_table.py` tests these.
    ROOT / "docs" / "ambiguity.md",
    ROOT / "docs" / "evidence" / "proofs.md",
    ROOT / "docs" / "votes.md",
]
TABLES = {**MADE, **BLOCKS}
ALL_STUDIES = (*studies.STUDIES, *studies.FINE_TUNED)
CONTRASTS = [contrast for study in studies.STUDIES for contrast in studies.contrasts(study)]
ARMS = [arm["name"] for study in studies.STUDIES for arm in studies.results(study)["arms"]]

# A standard error of 10,000 resamples of a normal law has a relative deviation of one over the
# root of 2 * 10,000, which is 0.7 %. The resamples of a mean of thousands of values are nearly
# normal. Five deviations would be seen once in two million contrasts.
RESAMPLING = 5 / (2 * 10_000) ** 0.5
# Both sides are float64, and sums of at most 200,000 numbers below 1.
ROUNDING = 1e-12
# The noncentral effects are found by search, which is less exact than the closed forms.
SEARCHING = 1e-6
# The accuracies of a run are sums of at most 20,000 float32 numbers below 1.
SINGLE_ROUNDING = 1e-6


@functools.cache
def page_of(path):
    return path.read_text()


@functools.cache
def expected(name):
    return TABLES[name]()


def wrong_places(page):
    return [place.name for place in places.places(page) if place.text != expected(place.name)]


def all_places():
    return [place for path in PAGES for place in places.places(page_of(path))]


def test_the_studies_are_those_that_have_files():
    assert set(studies.STUDIES) == {
        path.stem for path in (studies.EVIDENCE / "studies").glob("*.toml")
    }
    assert set(studies.STUDIES) == {
        path.stem for path in (studies.EVIDENCE / "results").glob("*.json")
    }


@pytest.mark.parametrize("study", ALL_STUDIES)
def test_a_study_was_made_as_it_was_planned(study):
    found = studies.results(study)
    assert not found["runs_to_go"]
    assert found["study"]["sha256"] == studies.digest(study)
    assert hashlib.sha256(found["study"]["content"].encode()).hexdigest() == studies.digest(study)
    for name in ("select_by", "split"):
        assert found[name] == studies.planned(study)[name]
    assert [arm["name"] for arm in found["arms"]] == [
        arm["name"] for arm in studies.planned(study)["arms"]
    ]
    for arm in found["arms"]:
        assert [run["seed"] for run in arm["runs"]] == studies.planned(study)["seeds"]
    assert studies.contrasts(study) == tuple(
        studies.Contrast(
            study,
            *(one[name] for name in ("name", "first", "second", "metric", "primary")),
            one["equivalence_margin"],
        )
        for one in found["contrasts"]
    )


@pytest.mark.parametrize("study", ALL_STUDIES)
def test_the_accuracies_are_those_of_the_hits(study):
    for arm in studies.results(study)["arms"]:
        for metric in arm["hits"]:
            np.testing.assert_allclose(
                answers.stored_accuracies(study, arm["name"], metric),
                answers.accuracies(study, arm["name"], metric),
                rtol=0,
                atol=100 * SINGLE_ROUNDING,
            )


@pytest.mark.parametrize("study", ALL_STUDIES)
def test_the_contrasts_are_those_of_the_hits(study):
    for contrast in studies.contrasts(study):
        numbers = studies.stored(contrast)["numbers"]
        weights = statistics.example_weights(
            studies.labels(study), macro=studies.is_macro(contrast.metric)
        )
        estimate = (studies.differences(contrast) @ weights).mean()
        assert numbers["estimate"] == pytest.approx(estimate, rel=0, abs=ROUNDING)
        error = answers.expected_standard_error(contrast)
        assert numbers["standard_error"] == pytest.approx(error, rel=RESAMPLING, abs=0)


@pytest.mark.parametrize("study", ALL_STUDIES)
def test_what_follows_from_the_standard_errors_of_a_file(study):
    # Its correction is only for the study, and its detectable effects are not corrected.
    same = functools.partial(pytest.approx, rel=SEARCHING, abs=0)
    found = {one: answers.difference(one) for one in studies.contrasts(study)}
    for contrast, difference in found.items():
        stored = studies.stored(contrast)
        numbers = stored["numbers"]
        assert 100 * numbers["half_width"] == same(difference.half_width)
        assert numbers["p_value"] == same(difference.p_value)
        effect = statistics.detectable_errors(difference.num_seeds, 1) * difference.error
        assert 100 * numbers["minimal_detectable"] == same(effect)
        if contrast.margin is None:
            assert stored["p_value_equivalence"] is None
        else:
            assert stored["p_value_equivalence"] == same(difference.equivalence)
    primary = [one for one in found.values() if one.contrast.primary]
    corrected = statistics.holm([one.p_value for one in primary])
    assert [studies.stored(one.contrast)["p_value_holm"] for one in primary] == same(corrected)


@pytest.mark.parametrize("macro", [False, True])
def test_the_standard_error_of_the_bootstrap_is_that_of_all_resamples(macro):
    labels = np.array([0, 1, 0, 2, 1, 1])
    values = np.random.default_rng(0).integers(-1, 2, size=(3, len(labels))).astype(float)
    weights = statistics.example_weights(labels, macro=macro)
    of_class = [np.flatnonzero(labels == label) for label in range(3)]
    # All draws of the examples of each class, one after the other: 4, 27 and 1.
    draws = [list(itertools.product(found, repeat=len(found))) for found in of_class]
    columns = np.array([sum(drawn, ()) for drawn in itertools.product(*draws)])
    rows = np.array(list(itertools.product(range(3), repeat=3)))
    resamples = (values * weights)[rows[:, None, :, None], columns[None, :, None, :]]
    deviation = resamples.mean(axis=2).sum(axis=2).std()
    found = statistics.bootstrap_standard_error(values, labels, macro=macro)
    assert found == pytest.approx(deviation * (3 / 2) ** 0.5, rel=ROUNDING)


def test_the_standard_error_of_an_analysis_of_variance_by_hand():
    error = statistics.analysis_of_variance_standard_error
    labels = np.array([0, 0, 1, 1])
    # Seeds -1 and 1, examples 0 and 4 in each class, and no rest: 2 / 2 of the seeds, and a
    # variance of 8 over four examples.
    values = np.array([[-1.0, 3.0, -1.0, 3.0], [1.0, 5.0, 1.0, 5.0]])
    assert error(values, labels, macro=True) ** 2 == pytest.approx(1 + 2, rel=ROUNDING)
    # Only a rest of 1 or -1, with one degree of freedom in each class: 4 / 8. Seeds and examples
    # have less than that, and would have negative components.
    values = np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])
    assert error(values, labels, macro=False) ** 2 == pytest.approx(4 / 8, rel=ROUNDING)


def test_the_corrections_by_hand():
    # 4 * 0.01, 3 * 0.02, 2 * 0.025 which is less than the one before, and 1 * 0.5.
    corrected = statistics.holm([0.02, 0.5, 0.01, 0.025])
    assert corrected == pytest.approx([0.06, 0.5, 0.04, 0.06], rel=ROUNDING)
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    # SciPy's noncentral distribution has the power, if it does not fail.
    effect = statistics.detectable_errors(10, 1)
    critical = stats.t.ppf(0.975, 9)
    power = stats.nct.sf(critical, 9, effect) + stats.nct.cdf(-critical, 9, effect)
    assert power == pytest.approx(0.8, abs=SEARCHING)


def test_every_place_is_a_table():
    assert not {place.name for place in all_places()} - {*TABLES}


def test_no_other_page_has_places():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {page for page in pages if "<!-- end -->" in page_of(page)}
    assert found == {*PAGES, *OTHER_PAGES}


@pytest.mark.parametrize("name", TABLES)
def test_a_table(name):
    (text,) = (place.text for place in all_places() if place.name == name)
    assert text.splitlines() == expected(name).splitlines()


@pytest.mark.parametrize("name", RECORDS)
def test_a_record(name):
    with (ROOT / "docs" / "evidence" / name).open(newline="") as file:
        assert [*csv.reader(file)] == RECORDS[name]()


@pytest.mark.parametrize("name", BLOCKS)
def test_no_number_of_a_block_is_typed(name):
    text = words(name)
    for known in (*(one.name for one in CONTRASTS), *studies.STUDIES, "top-1", "top-5"):
        text = text.replace(known, "")
    assert not re.search(r"\d", text)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_numbers_of_a_row_are_of_its_contrast_or_loss(name):
    known = {*ARMS, *(one.name for one in CONTRASTS)}
    rows = re.findall(r"^\| (.*?) \| (.*)$", TEMPLATES[name], flags=re.MULTILINE)
    for label, cells in rows:
        if label in known:
            asked = re.findall(r"\{(.*?)\}", cells)
            assert {one.split("; ")[1] for one in asked} == {label}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_number_was_compared(path):
    # All that stands in a place, found without the code that reads the places.
    parts = [part.split("-->")[-1] for part in page_of(path).split("<!-- end -->")[:-1]]
    printed = [number for part in parts for number in places.NUMBER.findall(part)]
    compared = [
        number
        for place in places.places(page_of(path))
        for number in places.NUMBER.findall(expected(place.name))
    ]
    assert printed
    assert compared == printed


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_number_that_is_one_off_in_its_last_digit_is_found(path):
    page = page_of(path)
    assert not wrong_places(page)
    for place, start in places_with_starts(page):
        for number in places.NUMBER.finditer(place.text):
            last = start + number.end() - 1
            for step in (1, 9):
                digit = (int(page[last]) + step) % 10
                changed = f"{page[:last]}{digit}{page[last + 1 :]}"
                assert wrong_places(changed) == [place.name]


def places_with_starts(page):
    """Each place, and the start of its text on the page."""
    found, position = [], 0
    for place in places.places(page):
        position = page.index("-->", page.index(f"<!-- {place.name} -->", position))
        found.append((place, page.index(place.text, position)))
    return found


@pytest.mark.parametrize(
    "page",
    [
        "<!-- findings -->73",
        "<!-- end -->73<!-- findings -->",
        "<!-- a remark --> and <!-- findings -->73<!-- end -->",
    ],
)
def test_a_place_without_an_end_is_found(page):
    with pytest.raises(ValueError, match="its end"):
        places.places(page)


@pytest.mark.parametrize("asked", ["gains tail; a - b", "gain tails; a - b", "gain tail; a - b"])
def test_a_number_of_an_unknown_kind_is_found(asked):
    with pytest.raises((KeyError, ValueError)):
        sentence(asked)
